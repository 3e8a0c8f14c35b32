"""Keeps every answer within a bound; what was left out is kept for a while, to be read in pages."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fastmcp.server.dependencies import get_context

from fleet_agentpack.kit.fit import Keep, Part, Rows, fitted
from fleet_agentpack.kit.pages import (
    ROOM_FOR_FRAME,
    Pages,
    TextPages,
    check_page,
    digest_of,
    how_to_read,
    size,
)
from fleet_agentpack.kit.results import jsonable, to_text
from fleet_agentpack.wire.call import session_of
from fleet_agentpack.wire.replies import Reply, ToolRefused, Written, written

if TYPE_CHECKING:
    from fastmcp.tools.base import ToolResult

LIMITS: Final = "limits"  # in the server's lifespan context
ALWAYS_FITS = 1_000  # characters; no bound can be set below that many bytes
MOST_KEPT = 64
MOST_BYTES_KEPT = 32_000_000


class KeptPages:
    """What answers have left out: the newest, bounded in number and bytes, by session."""

    def __init__(self, most: int = MOST_KEPT, most_bytes: int = MOST_BYTES_KEPT) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._pages: OrderedDict[tuple[str | None, str], Pages] = OrderedDict()
        self._bytes = 0
        self._turn = threading.Lock()

    def put(self, session: str | None, address: str, pages: Pages) -> None:
        """Keep pages; the oldest go, but never these."""
        with self._turn:
            self._drop((session, address))
            self._pages[session, address] = pages
            self._bytes += _bytes(pages)
            while len(self._pages) > self._most or self._bytes > self._most_bytes:
                if len(self._pages) == 1:
                    break
                self._drop(next(iter(self._pages)))

    def get(self, session: str | None, address: str) -> Pages | None:
        """The pages at an address, if they are still there."""
        return self._pages.get((session, address))

    def forget(self, session: str) -> None:
        """Drop what was kept for a session."""
        with self._turn:
            for key in [key for key in self._pages if key[0] == session]:
                self._drop(key)

    def _drop(self, key: tuple[str | None, str]) -> None:
        pages = self._pages.pop(key, None)
        if pages:
            self._bytes -= _bytes(pages)


def _bytes(pages: Pages) -> int:
    return sum(map(size, pages.chunks))


class Limits:
    """How long an answer may be, and where the rest of it is."""

    def __init__(self, result_bytes: int) -> None:
        self.result_bytes = result_bytes
        self.kept = KeptPages()

    def fit(self, answer: Written, place: str, session: str | None) -> Written:
        """An answer within the bound; the rest can be read below `place`."""
        if answer.structured is None or _encoded_size(answer) <= self.result_bytes:
            return answer
        keep = self._keeper(place, session)
        short = fitted(answer.value, answer.structured, self.result_bytes, keep)
        reply = answer.value
        if not isinstance(reply, Reply):
            return replace(answer, text=to_text(short), structured=short)
        if reply.conforms and reply.too_long and not reply.conforms(short):
            pages = TextPages.of(answer.text, 0, self.result_bytes - ROOM_FOR_FRAME)
            raise ToolRefused(reply.too_long(how_to_read(keep(pages, None), 1)))
        return replace(answer, text=reply.write(short), structured=short)

    def text(self, value: object, place: str, session: str | None) -> str:
        """A value as the text of a resource, within the bound."""
        return self.fit(written(value), place, session).text

    def page(self, value: object, number: int, address: str, session: str | None) -> str:
        """A page of a value's rows, as they are now. Raises `NoSuchPageError`."""
        plain = jsonable(value)
        text = to_text(plain)
        if size(text) <= self.result_bytes:
            check_page(number, 1, address)
            return text
        rows: list[Pages] = []
        elsewhere = self._keeper(f"{address.partition(':')[0]}://answers/resource", session)

        def keep(pages: Pages, part: Part | None) -> str:
            if rows or not isinstance(part, Rows):
                return elsewhere(pages, None)
            rows.append(pages)
            return address

        short = fitted(value, plain, self.result_bytes, keep)
        if number == 1 or not rows:
            check_page(number, 1, address)
            return to_text(short)
        return rows[0].read(number, address)

    def _keeper(self, place: str, session: str | None) -> Keep:
        def keep(pages: Pages, part: Part | None) -> str:
            if isinstance(part, Rows) and part.collection:
                return part.collection
            address = f"{place}/{digest_of(pages)}"
            self.kept.put(session, address, pages)
            return address

        return keep


def _encoded_size(answer: Written) -> int:
    """The bytes of an answer's JSON; of plain text too, whose characters may each take six."""
    encoded = to_text(answer.structured) if isinstance(answer.value, Reply) else ""
    return max(size(answer.text), size(encoded))


def bounded(answer: Written, place: str) -> ToolResult:
    """The result of the call under way, within the server's bound."""
    if len(answer.text) > ALWAYS_FITS:
        context = get_context()
        limits: Limits = context.lifespan_context[LIMITS]
        answer = limits.fit(answer, place, session_of(context))
    return answer.result()


def error_result(payload: object, place: str = "") -> ToolResult:
    """The wire result of a domain's error, within the server's bound."""
    return bounded(written(payload, is_error=True), place)
