"""What does not fit into one answer, in pages that each do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fleet_agentpack.kit.results import to_text

ROOM_FOR_FRAME = 320  # what a page says beside its rows: their name, its number, where the rest is


class NoSuchPageError(ValueError):
    """A page that does not exist; the message says which do."""


class Pages(Protocol):
    """Something long in several pages."""

    @property
    def chunks(self) -> Sequence[str]:
        """The pages' own contents."""

    @property
    def media_type(self) -> str:
        """What a page is: JSON or text."""

    def read(self, number: int, address: str) -> str:
        """A page, counted from 1, as the resource at this address. Raises `NoSuchPageError`."""


@dataclass(frozen=True)
class RowPages:
    """Rows as JSON, page by page; the first page is what the answer itself has shown."""

    name: str
    chunks: tuple[str, ...]
    counts: tuple[int, ...]
    media_type: str = "application/json"

    @classmethod
    def of(cls, name: str, rows: Sequence[str], shown: int, room: int) -> RowPages:
        """Rows, each as JSON: those shown, then as many per page as there is room for."""
        chunks, counts = [",".join(rows[:shown])], [shown]
        start, used = shown, 0
        for number in range(shown, len(rows)):
            more = size(rows[number]) + 1
            if used + more > room and number > start:
                chunks.append(",".join(rows[start:number]))
                counts.append(number - start)
                start, used = number, 0
            used += more
        if start < len(rows):
            chunks.append(",".join(rows[start:]))
            counts.append(len(rows) - start)
        return cls(name, tuple(chunks), tuple(counts))

    def read(self, number: int, address: str) -> str:
        """See `Pages.read`."""
        check_page(number, len(self.chunks), address)
        facts: dict[str, Any] = {
            "page": number,
            "pages": len(self.chunks),
            "total": sum(self.counts),
        }
        left = sum(self.counts[number:])
        if left:
            facts["omitted"] = {"count": left, "how": how_to_read(address, number + 1)}
        return f"{{{to_text(self.name)}:[{self.chunks[number - 1]}],{to_text(facts)[1:]}"


@dataclass(frozen=True)
class TextPages:
    """Text, page by page."""

    chunks: tuple[str, ...]
    media_type: str = "text/plain"

    @classmethod
    def of(cls, text: str, shown: int, room: int) -> TextPages:
        """Text whose first characters were shown, cut at line ends where there are any."""
        chunks = [text[:shown]] if shown else []
        while shown < len(text):
            length = prefix_within(text[shown : shown + room], room)
            chunks.append(text[shown : shown + length])
            shown += length
        return cls(tuple(chunks))

    def read(self, number: int, address: str) -> str:
        """See `Pages.read`; the last line says where it goes on."""
        check_page(number, len(self.chunks), address)
        text = self.chunks[number - 1]
        if number == len(self.chunks):
            return text
        end = "" if text.endswith("\n") else "\n"
        of = f"page {number} of {len(self.chunks)}"
        return f"{text}{end}… [{of}; {how_to_read(address, number + 1)}]\n"


def how_to_read(address: str, page: int) -> str:
    """What gives a page, in words."""
    return f"read {address}?page={page}" if page > 1 else f"read {address}"


def check_page(number: int, pages: int, address: str) -> None:
    """Raises `NoSuchPageError` for a page beyond the last."""
    if not 1 <= number <= pages:
        what = "1 page" if pages == 1 else f"{pages} pages"
        raise NoSuchPageError(f"{address} has {what}; there is no page {number}")


def size(text: str) -> int:
    """How many bytes a text has on the wire."""
    return len(text) if text.isascii() else len(text.encode())


def prefix_within(text: str, room: int) -> int:
    """How many characters fit when written as JSON; up to a line's end if one is near."""
    low, high = 0, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(to_text(text[:middle])) <= room else (low, middle - 1)
    line = text.rfind("\n", low // 2, low) + 1
    return max(1, line if line and low < len(text) else low)


def digest_of(pages: Pages) -> str:
    """A short name for some pages: the same content has the same."""
    found = hashlib.blake2s(digest_size=5)
    for chunk in _distinct(pages):
        found.update(chunk.encode())
    return found.hexdigest()


def _distinct(pages: Pages) -> Iterator[str]:
    for chunk in pages.chunks:
        yield f"{len(chunk)}:"
        yield chunk
