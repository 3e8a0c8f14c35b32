"""Makes an answer that is too long fit, without breaking its shape.

A result says in `parts` which of its fields hold rows or long text. Those are cut, and what is left
out can be read in pages. Whatever else is too long is shortened where it is longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias

from fleet_agentpack.kit.pages import (
    ROOM_FOR_FRAME,
    Pages,
    RowPages,
    TextPages,
    how_to_read,
    prefix_within,
    size,
)
from fleet_agentpack.kit.results import jsonable, to_text

ROOM_FOR_NOTE = 160  # `omitted`, or the end of a text that was cut
LEAST_WORTH_CUTTING = 80
LEAST_GROUP = 16
MANY_KEYS = 64  # an object with more is data, not a shape
DEEPEST = 40

Json: TypeAlias = Any
Groupings = Callable[[Sequence[Any]], Iterator[Sequence[object]]]


@dataclass(frozen=True)
class Rows:
    """Rows, of which an answer shows as many as fit.

    `first` ranks them: the lowest are shown first. `groups` sums up those left out, the finest
    summary first; the first one that fits is shown.
    """

    field: str
    collection: str = ""  # the resource that has all of them, if there is one
    first: Callable[[Any], int] | None = None
    groups: tuple[str, Groupings] | None = None  # the summary's name, and what makes it


@dataclass(frozen=True)
class Text:
    """Long text, cut at a line's end; any other value is shortened, and read as JSON text."""

    field: str


@dataclass(frozen=True)
class Whole:
    """What is never cut; a warning says how large it is."""

    field: str


Part = Rows | Text | Whole
# Takes pages, of the whole answer or of one part, and returns the address to read them at.
Keep = Callable[[Pages, "Part | None"], str]


@dataclass(frozen=True)
class _Found:
    """A declared part of an answer: which, where in the JSON, and the result that has it."""

    part: Part
    path: tuple[str, ...]
    holder: object


@dataclass(frozen=True)
class _Bounds:
    """The room for one part of an answer, and for a whole answer."""

    room: int
    limit: int

    @property
    def page(self) -> int:
        """The room for the content of a page."""
        return self.limit - ROOM_FOR_FRAME


def fitted(value: object, plain: dict[str, Json], limit: int, keep: Keep) -> dict[str, Json]:
    """An answer's JSON in at most `limit` bytes of text; what is left out goes to `keep`."""
    found = [each for each in _parts(value) if _inside(plain, each).get(each.part.field)]
    contents = [_inside(plain, each)[each.part.field] for each in found]
    frame = _without(plain, found)
    notes = ROOM_FOR_NOTE * len(found)
    most = limit // 2 if found else limit
    if _measure(frame) > most:
        pages = TextPages.of(to_text(plain), 0, limit - ROOM_FOR_FRAME)
        frame = shortened(frame, most, how_to_read(keep(pages, None), 1))
    room = limit - _measure(frame) - notes
    wanted = [
        0 if isinstance(p.part, Whole) else _measure(c)
        for p, c in zip(found, contents, strict=True)
    ]
    for each, content, share in zip(found, contents, _shares(wanted, room), strict=True):
        holder = _inside(frame, each)
        holder[each.part.field] = content
        if isinstance(each.part, Whole):
            told = f"{each.part.field} has {_measure(content):,} bytes; it is never cut."
            frame["warnings"] = [*frame.get("warnings", ()), told]
        elif _measure(content) > share:
            cut = _cut_rows if isinstance(each.part, Rows) else _cut_text
            cut(each, holder, _Bounds(share, limit), keep)
    return frame


def shortened(value: Json, room: int, how: str) -> Json:
    """JSON cut where it is longest; `how` says what gives the whole of it."""
    return _Shortener(how).cut(value, room, 0)


def _parts(value: object, path: tuple[str, ...] = ()) -> Iterator[_Found]:
    if not is_dataclass(value):
        return
    declared: Sequence[Part] = getattr(value, "parts", ())
    yield from (_Found(part, path, value) for part in declared)
    if len(path) < 2:
        for each in fields(value):
            yield from _parts(getattr(value, each.name), (*path, each.name.rstrip("_")))


def _inside(plain: dict[str, Json], found: _Found) -> dict[str, Json]:
    for name in found.path:
        plain = plain[name]
    return plain


def _without(plain: dict[str, Json], cut: Sequence[_Found]) -> dict[str, Json]:
    """A copy of the answer with the parts that may be cut empty, in their places."""
    frame = dict(plain)
    for each in cut:
        holder = frame
        for name in each.path:
            holder[name] = holder = dict(holder[name])
        holder[each.part.field] = None
    return frame


def _measure(value: Json) -> int:
    return size(to_text(value))


def _shares(sizes: Sequence[int], room: int) -> list[int]:
    """Room for each: small ones get what they need, large ones the same."""
    shares, left = [0] * len(sizes), max(0, room)
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    for place, number in enumerate(order):
        shares[number] = min(sizes[number], left // (len(sizes) - place))
        left -= shares[number]
    return shares


def _cut_rows(found: _Found, holder: dict[str, Json], bounds: _Bounds, keep: Keep) -> None:
    part = found.part
    assert isinstance(part, Rows)  # noqa: S101 - the caller looked
    rows: Sequence[Any] = getattr(found.holder, part.field)
    order = list(range(len(rows)))
    if part.first:
        ranks = [part.first(row) for row in rows]
        order.sort(key=ranks.__getitem__)
    plain = [holder[part.field][number] for number in order]
    written = _without_giants(plain, bounds, keep)
    summary = _measure(_summary(part, rows, bounds.room * 2 // 3))
    shown = _fitting(written, bounds.room - summary)
    holder[part.field] = plain[:shown]
    if shown < len(rows):
        left = [rows[number] for number in order[shown:]]
        address = keep(RowPages.of(part.field, written, shown, bounds.page), part)
        omitted = {"count": len(left), "how": how_to_read(address, 2)}
        holder["omitted"] = {**omitted, **_summary(part, left, summary)}


def _without_giants(rows: list[Json], bounds: _Bounds, keep: Keep) -> list[str]:
    """The rows as text; those are shortened that would fill half a page alone."""
    written = [to_text(row) for row in rows]
    giants = [number for number, text in enumerate(written) if size(text) > bounds.page // 2]
    if giants:
        pages = TextPages.of(f"[{','.join(written)}]", 0, bounds.page)
        how = how_to_read(keep(pages, None), 1)
        for number in giants:
            rows[number] = shortened(rows[number], bounds.page // 2, how)
            written[number] = to_text(rows[number])
    return written


def _summary(part: Rows, rows: Sequence[Any], room: int) -> dict[str, Json]:
    """The finest summary of rows that fits, under its name; nothing if none does."""
    if part.groups:
        name, groupings = part.groups
        for groups in groupings(rows):
            if len(groups) * LEAST_GROUP <= room:
                made = {name: jsonable(groups)}
                if _measure(made) <= room:
                    return made
    return {}


def _fitting(written: Sequence[str], room: int) -> int:
    """How many of the first fit."""
    used = 0
    for number, text in enumerate(written):
        used += size(text) + 1
        if used > room:
            return number
    return len(written)


def _cut_text(found: _Found, holder: dict[str, Json], bounds: _Bounds, keep: Keep) -> None:
    field = found.part.field
    value = holder[field]
    if isinstance(value, str):
        shown = prefix_within(value, max(0, bounds.room - ROOM_FOR_NOTE))
        left = len(value) - shown
        how = how_to_read(keep(TextPages.of(value, shown, bounds.page), found.part), 2)
        holder[field] = value[:shown] + _more(left, how)
    else:
        whole = to_text(value)
        how = how_to_read(keep(TextPages.of(whole, 0, bounds.page), found.part), 1)
        holder[field] = shortened(value, bounds.room, how)
        left = len(whole) - len(to_text(holder[field]))
    holder.setdefault("omitted", {"count": left, "how": how})


def _more(characters: int, how: str) -> str:
    return f"… [{characters:,} more characters: {how}]"


class _Shortener:
    """Shares the room between the members of a value, again and again on the way down."""

    def __init__(self, how: str) -> None:
        self._how = how

    def cut(self, value: Json, room: int, depth: int) -> Json:
        """The value in at most this room, as far as its shape allows."""
        if _measure(value) <= max(room, LEAST_WORTH_CUTTING):
            return value
        if isinstance(value, str):
            shown = prefix_within(value, max(0, room - ROOM_FOR_NOTE))
            return value[:shown] + _more(len(value) - shown, self._how)
        if isinstance(value, list) and depth < DEEPEST:
            return self._list(value, room, depth)
        if isinstance(value, dict) and depth < DEEPEST:
            return self._dict(value, room, depth)
        return None if isinstance(value, list | dict) else value

    def _list(self, items: list[Json], room: int, depth: int) -> list[Json]:
        """As many of the first as fit, none of them larger than a quarter of the room."""
        kept: list[Json] = []
        used = ROOM_FOR_NOTE
        for item in items:
            short = self.cut(item, room // 4, depth + 1)
            used += _measure(short) + 1
            if used > room:
                break
            kept.append(short)
        left = len(items) - len(kept)
        if left and all(isinstance(each, str) for each in items):
            kept.append(f"… and {left:,} more: {self._how}")
        return kept

    def _dict(self, value: dict[str, Json], room: int, depth: int) -> dict[str, Json]:
        if len(value) > MANY_KEYS:
            return self._mapping(value, room, depth)
        names = sum(_measure(key) + 2 for key in value)
        shares = _shares([_measure(each) for each in value.values()], room - names - ROOM_FOR_NOTE)
        made = {
            key: self.cut(item, share, depth + 1)
            for (key, item), share in zip(value.items(), shares, strict=True)
        }
        left = sum(
            max(0, len(value[key]) - len(item))
            for key, item in made.items()
            if isinstance(item, list) and not (item and isinstance(item[-1], str))
        )
        return {**made, **self._omitted(left)}

    def _mapping(self, value: dict[str, Json], room: int, depth: int) -> dict[str, Json]:
        """As many of the first members as fit."""
        kept: dict[str, Json] = {}
        used = ROOM_FOR_NOTE
        for key, item in value.items():
            short = self.cut(item, room // 4, depth + 1)
            used += _measure(key) + _measure(short) + 2
            if used > room:
                break
            kept[key] = short
        return {**kept, **self._omitted(len(value) - len(kept))}

    def _omitted(self, count: int) -> dict[str, Json]:
        return {"omitted": {"count": count, "how": self._how}} if count else {}
