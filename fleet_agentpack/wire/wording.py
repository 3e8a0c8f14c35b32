"""Texts that name tools, said in terms of the tools that are served.

In such a text `{plan}` stands for a tool and `{plan, diff or status}` for those of several that are
there; what stands in `[…]` is left out when a tool that it names is not there. The front imports
this module, so it uses the standard library's smallest parts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TOKENS = re.compile(r"(\[|\]|\{[a-z]\w*(?:(?:, | or | and )[a-z]\w*)*\})")
_BETWEEN = re.compile(r", | or | and ")


class _Segment:
    """The text so far, and whether it may stay."""

    def __init__(self) -> None:
        self.text = ""
        self.names_tools = self.names_absent = False

    def closed(self) -> str:
        if not self.names_tools:
            return f"[{self.text}]"
        return "" if self.names_absent else self.text


def worded(text: str, name: Callable[[str], str]) -> str:
    """A text in one line, with the tools' names; empty if all of it is about tools not there.

    `name` gives the name of a tool as it is served, or nothing.
    """
    segments = [_Segment()]
    for piece in _TOKENS.split(text):
        if piece == "[":
            segments.append(_Segment())
        elif piece == "]" and len(segments) > 1:
            closed = segments.pop().closed()
            segments[-1].text += closed
        elif piece.startswith("{") and _TOKENS.fullmatch(piece):
            segments[-1].names_tools = True
            found = _enumerated(piece[1:-1], name)
            segments[-1].names_absent |= not found
            segments[-1].text += found
        else:
            segments[-1].text += piece
    whole = segments[0]
    return "" if whole.names_absent else " ".join(whole.text.split())


def tools_named(text: str) -> list[str]:
    """The tools that a text names."""
    return [
        name
        for piece in _TOKENS.findall(text)
        if piece.startswith("{")
        for name in _BETWEEN.split(piece[1:-1])
    ]


def _enumerated(names: str, name: Callable[[str], str]) -> str:
    found = [served for each in _BETWEEN.split(names) if (served := name(each))]
    if len(found) < 2:
        return "".join(found)
    last: str = _BETWEEN.findall(names)[-1]
    return last.join([", ".join(found[:-1]), found[-1]])


def worded_arguments(
    arguments: Mapping[str, Mapping[str, object]],
    texts: Mapping[str, str],
    name: Callable[[str], str],
) -> dict[str, Mapping[str, object]]:
    """Arguments of a schema, those with a text described by it, or not at all."""
    found = dict(arguments)
    for argument, text in texts.items():
        described = {**arguments[argument], "description": worded(text, name)}
        if not described["description"]:
            del described["description"]
        found[argument] = described
    return found
