"""Edits of one entry in a file that we do not own; comments and order are preserved."""

from __future__ import annotations


class FormatError(ValueError):
    """A text that is not what its format says, or that cannot take the entry; says where."""
