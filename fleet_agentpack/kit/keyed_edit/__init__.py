"""Edits of one entry in a text that somebody else wrote: comments, order and all else stay."""

from __future__ import annotations


class FormatError(ValueError):
    """A text that is not what its format says, or that cannot take the entry; says where."""
