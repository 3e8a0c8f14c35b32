"""Characters that do not show, made visible: they can hide or reorder the words of a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar, cast

T = TypeVar("T")

# Control characters; marks, embeddings and overrides of direction; line and paragraph separators;
# invisible operators, the byte order mark, annotations; tags and the selectors beyond them; letters
# without a shape; more joiners and selectors in a row than any writing or picture needs.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0]"
    "|[\u200c\u200d\ufe00-\ufe0f]{3,}"
)


def visible(text: str) -> str:
    """Text with each such character written as its escape, such as `\\x1b`."""
    return _HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)


def visible_throughout(data: T) -> T:
    """JSON data in which every text is visible, names included."""
    made: object = data
    if isinstance(data, str):
        made = visible(data.replace("\r\n", "\n"))
    elif isinstance(data, Mapping):
        made = {visible_throughout(k): visible_throughout(v) for k, v in data.items()}
    elif isinstance(data, list):
        made = [visible_throughout(each) for each in data]
    return cast("T", made)
