"""One serialiser: what is unknown is left out, and the text is always valid JSON."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.kit.results import UNKNOWN, Maybe, jsonable, to_text
from fleet_agentpack.kit.secret import Secret


class Colour(enum.Enum):
    RED = "red"


class Name(enum.StrEnum):
    A = "a"


@dataclass(frozen=True)
class Row:
    name: str
    size: Maybe[int] = UNKNOWN
    note: str | None = None


class Point(NamedTuple):
    x: int
    y: Maybe[int] = UNKNOWN


def test_unknown_is_left_out_and_none_is_null() -> None:
    assert jsonable(Row("a")) == {"name": "a", "note": None}
    assert jsonable(Row("a", 0)) == {"name": "a", "size": 0, "note": None}
    assert jsonable(Point(1)) == {"x": 1}
    assert jsonable((Point(1, 2), (1, 2))) == [{"x": 1, "y": 2}, [1, 2]]
    assert jsonable({"a": UNKNOWN, "b": [UNKNOWN, 1], "c": {UNKNOWN}}) == {"b": [1], "c": []}


def test_enums_paths_and_collections_become_plain() -> None:
    value = {Colour.RED: Name.A, Name.A: Colour.RED, "path": PurePosixPath("a/b"), 1: (1, True)}
    plain = jsonable(value)
    assert plain == {"red": "a", "a": "red", "path": "a/b", "1": [1, True]}
    assert type(plain["red"]) is str


def test_sets_come_in_one_order() -> None:
    names = {f"name-{i}" for i in range(50)}
    assert jsonable(names) == sorted(names)
    assert jsonable(frozenset({3, 1, 2})) == [1, 2, 3]


def test_numbers_that_json_lacks_are_null() -> None:
    assert jsonable([math.nan, math.inf, -math.inf, 0.5]) == [None, None, None, 0.5]


def test_file_names_that_are_no_text_can_be_sent() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert to_text(jsonable({name: name, "ü": "ü"})).encode() == '{"caf?":"caf?","ü":"ü"}'.encode()


def test_a_field_may_have_the_name_of_a_keyword() -> None:
    Step = dataclasses.make_dataclass("Step", ["from_", "to"])
    assert jsonable(Step("1.0.0", "2.0.0")) == {"from": "1.0.0", "to": "2.0.0"}


@pytest.mark.parametrize("value", [object(), b"x", Row, Secret("x"), {"deep": [object()]}])
def test_anything_else_is_a_mistake(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be part of a result"):
        jsonable(value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=15,
)


@given(values)
def test_every_result_is_json_that_can_be_encoded(value: Any) -> None:
    plain = jsonable(value)
    assert json.loads(to_text(plain).encode()) == plain
    assert "\n" not in to_text(plain)
