"""Answers that are too long: cut, summed up and paged, with nothing lost on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.kit.fit import Part, Rows, Text, Whole, fitted, shortened
from fleet_agentpack.kit.pages import NoSuchPageError, Pages, RowPages, TextPages, size
from fleet_agentpack.kit.results import UNKNOWN, Maybe, jsonable, to_text

LIMIT = 4096


class Row(NamedTuple):
    name: str
    urgent: bool = False


def by_initial(rows: Sequence[Row]) -> Iterator[Sequence[dict[str, Any]]]:
    for length in (8, 1):
        names = [row.name[:length] for row in rows]
        yield [{"name": name, "rows": names.count(name)} for name in dict.fromkeys(names)]


@dataclass(frozen=True)
class Listing:
    parts: ClassVar[tuple[Part, ...]] = (
        Rows("rows", first=lambda row: not row.urgent, groups=("initials", by_initial)),
    )
    rows: tuple[Row, ...]
    total: int


@dataclass(frozen=True)
class Frame:
    data: Listing
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    parts: ClassVar[tuple[Part, ...]] = (Text("text"), Whole("prompt"), Rows("rows"))
    text: Any
    prompt: Maybe[str] = UNKNOWN
    rows: tuple[Row, ...] = ()
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


class Shelf:
    """Keeps pages as the server does."""

    def __init__(self) -> None:
        self.kept: dict[str, Pages] = {}

    def __call__(self, pages: Pages, _part: Part | None) -> str:
        address = f"x://kept/{len(self.kept)}"
        self.kept[address] = pages
        return address

    def rest(self, how: str) -> str:
        """Everything from a page on, as it was before it was cut."""
        address, _, page = how.removeprefix("read ").partition("?page=")
        return "".join(self.kept[address].chunks[int(page or 1) - 1 :])


def fit(value: object, limit: int = LIMIT) -> tuple[dict[str, Any], Shelf]:
    shelf = Shelf()
    short = fitted(value, jsonable(value), limit, shelf)
    json.loads(to_text(short))
    return short, shelf


ROWS = tuple(Row(f"{'abcdefgh'[n % 8]}{n:05d}", n in (700, 901)) for n in range(1000))


def test_rows_are_cut_urgent_ones_first_with_true_totals_and_a_summary() -> None:
    short, shelf = fit(Frame(Listing(ROWS, 1000)))
    data = short["data"]
    assert size(to_text(short)) <= LIMIT
    assert data["total"] == 1000
    assert [row["name"] for row in data["rows"][:3]] == ["e00700", "f00901", "a00000"]
    assert data["omitted"]["count"] == 1000 - len(data["rows"])
    assert data["omitted"]["how"] == "read x://kept/0?page=2"
    summary = data["omitted"]["initials"]
    assert sorted(group["name"] for group in summary) == [*"abcdefgh"]
    assert sum(group["rows"] for group in summary) == data["omitted"]["count"]
    assert len(data["rows"]) > 50
    rest = json.loads(f"[{','.join(shelf.kept['x://kept/0'].chunks)}]")
    assert sorted(row["name"] for row in rest) == sorted(row.name for row in ROWS)


def test_every_page_of_rows_fits_and_leads_to_the_next() -> None:
    short, shelf = fit(Frame(Listing(ROWS, 1000)))
    pages = shelf.kept["x://kept/0"]
    shown = short["data"]["rows"]
    for number in range(2, len(pages.chunks) + 1):
        text = pages.read(number, "x://kept/0")
        page = json.loads(text)
        assert size(text) <= LIMIT
        assert (page["page"], page["pages"], page["total"]) == (number, len(pages.chunks), 1000)
        shown += page["rows"]
        left = page.get("omitted", {"count": 0})
        assert left["count"] == 1000 - len(shown)
        if left["count"]:
            assert left["how"] == f"read x://kept/0?page={number + 1}"
    assert len(shown) == 1000
    with pytest.raises(NoSuchPageError, match=f"has {len(pages.chunks)} pages"):
        pages.read(len(pages.chunks) + 1, "x://kept/0")
    with pytest.raises(NoSuchPageError):
        pages.read(0, "x://kept/0")


def test_a_row_longer_than_an_answer_is_shortened() -> None:
    short, shelf = fit(Listing((Row("x" * 9000), Row("y")), 2))
    assert size(to_text(short)) <= LIMIT
    assert [row["name"][:1] for row in short["rows"]] == ["x", "y"]
    assert "more characters: read x://kept/0]" in short["rows"][0]["name"]
    assert json.loads(shelf.rest("read x://kept/0"))[0]["name"] == "x" * 9000


def test_text_is_cut_at_a_line_and_read_on_from_there() -> None:
    text = "".join(f"line {n}\n" for n in range(2000))
    short, shelf = fit(Page(text))
    shown, _, note = short["text"].partition("… [")
    assert shown.endswith("\n") and len(shown) > LIMIT // 2
    assert f"{short['omitted']['count']:,} more characters: {short['omitted']['how']}" in note
    assert shown + shelf.rest(short["omitted"]["how"]) == text
    first = shelf.kept["x://kept/0"].read(2, "x://kept/0")
    assert first.endswith("read x://kept/0?page=3]\n") and size(to_text(first)) <= LIMIT


def test_what_is_no_text_is_shortened_and_read_as_json() -> None:
    value = {"items": [{"n": n} for n in range(2000)], "kind": "list"}
    short, shelf = fit(Page(value))
    assert short["text"]["kind"] == "list"
    assert short["text"]["items"][:2] == [{"n": 0}, {"n": 1}]
    assert short["text"]["omitted"]["count"] == 2000 - len(short["text"]["items"])
    assert json.loads(shelf.rest(short["omitted"]["how"])) == value


def test_what_is_never_cut_stays_whole_and_its_size_is_told() -> None:
    prompt = "Be brief. " * 1000
    short, _ = fit(Page("short", prompt, ROWS))
    assert short["prompt"] == prompt
    assert short["warnings"] == ["prompt has 10,002 bytes; it is never cut."]
    assert size(to_text({**short, "prompt": ""})) <= LIMIT


def test_rows_and_text_share_the_room() -> None:
    short, shelf = fit(Page("word " * 5000, rows=ROWS))
    assert size(to_text(short)) <= LIMIT
    assert len(short["rows"]) > 30 and len(short["text"]) > 1000
    assert short["omitted"]["count"] == 1000 - len(short["rows"])
    assert "more characters: read x://kept/" in short["text"]
    assert len(shelf.kept) == 2


def test_long_warnings_are_cut_where_no_part_is_declared() -> None:
    warnings = tuple(f"warning {n}: something is odd" for n in range(2000))
    short, shelf = fit(Frame(Listing(ROWS[:3], 3), warnings))
    assert size(to_text(short)) <= LIMIT
    assert len(short["data"]["rows"]) == 3
    assert short["warnings"][0] == warnings[0]
    assert short["warnings"][-1] == (
        f"… and {2001 - len(short['warnings']):,} more: read x://kept/0"
    )
    assert json.loads(shelf.rest("read x://kept/0"))["warnings"] == list(warnings)


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=300)
NESTED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=12), inner, max_size=12)
    ),
    max_leaves=60,
)


@given(NESTED, st.integers(0, 3000))
def test_anything_can_be_shortened_into_valid_json(value: Any, copies: int) -> None:
    long = {"value": value, "many": [value] * (copies // 10), "text": "é\n" * copies}
    short = shortened(long, LIMIT, "read x://kept/0")
    text = to_text(short)
    assert json.loads(text) == short
    assert size(text) <= LIMIT * 2  # members that are small each may still be many
    assert short.keys() - {"omitted"} == long.keys()
    if size(to_text(long)) <= LIMIT:
        assert short == long


@given(st.text(max_size=5000), st.integers(0, 100), st.integers(40, 500))
def test_pages_of_text_join_to_the_text(text: str, shown: int, room: int) -> None:
    pages = TextPages.of(text, min(shown, len(text)), room)
    assert "".join(pages.chunks) == text
    assert all(size(to_text(chunk)) <= room for chunk in pages.chunks[1:])


@given(st.lists(st.integers(0, 10**9).map(str), max_size=200), st.integers(0, 50))
def test_pages_of_rows_have_each_row_once(rows: list[str], shown: int) -> None:
    shown = min(shown, len(rows))
    pages = RowPages.of("rows", rows, shown, 100)
    assert ",".join(filter(None, pages.chunks)) == ",".join(rows)
    assert sum(pages.counts) == len(rows) and pages.counts[0] == shown
    assert all(len(chunk) <= 100 for chunk in pages.chunks[1:])
