"""YAML 1.2: core scalars, duplicate keys, places, limits, and text that comes back unchanged."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.yaml12 import YamlError, dump, load, load_document

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False)
    | texts
    | st.sampled_from(["yes", "on", "~", "null", "1_000", "0o7", "0x1f", "1e3", ".inf", "=", "<<"])
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(documents)
def test_what_is_dumped_loads_as_the_same_data(data: Any) -> None:
    assert load(dump(data)) == data


@given(st.text(st.characters(exclude_categories=["Cs"], min_codepoint=32), max_size=30))
def test_other_readers_take_dumped_text_for_the_same_text(text: str) -> None:
    assert yaml.load(dump({"key": text}), Loader=yaml.SafeLoader) == {"key": text}


@given(st.text(max_size=60))
def test_any_text_loads_or_is_refused_with_yaml_error(text: str) -> None:
    try:
        load(text)
    except YamlError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("NO", "NO"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("+12", 12),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2024-01-02", "2024-01-02"),
        ("1.", 1.0),
        (".5e1", 5.0),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        ("'5'", "5"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("!!float 5", 5.0),
        ("!custom 5", "5"),
        ("<<", "<<"),
    ],
)
def test_scalars_are_those_of_the_core_schema(text: str, value: Any) -> None:
    loaded = load(f"key: {text}\n")["key"]
    assert loaded == value and type(loaded) is type(value)


def test_not_a_number_is_one() -> None:
    assert math.isnan(load(".nan"))


@pytest.mark.parametrize("digits", ["9" * 5000, "0x" + "f" * 5000, "0o" + "7" * 5000])
def test_a_number_too_long_to_print_stays_text(digits: str) -> None:
    assert load(digits) == digits


def test_every_number_that_is_loaded_can_be_printed() -> None:
    assert str(load("0x" + "f" * 3400))


@pytest.mark.parametrize("text", ["!!int x", "!!float x", "!!bool 5"])
def test_a_tag_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(YamlError):
        load(text)


def test_a_duplicate_key_is_refused_with_its_line() -> None:
    with pytest.raises(YamlError, match=r"duplicate key 'a' \(line 4\)") as caught:
        load("top:\n  a: 1\n  b: 2\n  a: 3\n")
    assert (caught.value.line, caught.value.column) == (4, 3)


@pytest.mark.parametrize("text", ["a: [", "a: 'x", "\tb: 1", "a: 1\n b: 2", "--- 1\n--- 2", "@"])
def test_broken_text_is_refused_with_a_line(text: str) -> None:
    with pytest.raises(YamlError) as caught:
        load(text)
    assert caught.value.line is not None


@pytest.mark.parametrize("text", ["a: \ud800", "a: \x00", "a: \x07"])
def test_text_with_impossible_characters_is_refused(text: str) -> None:
    with pytest.raises(YamlError):
        load(text)


def test_a_collection_as_a_key_is_refused() -> None:
    with pytest.raises(YamlError, match="key must be a plain value"):
        load("? [a]\n: b\n")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "{a: " * 5000,
        "- " * 5000,
        "-  " * 5000,
        "? - " * 4000,
        "- ? " * 4000,
        "".join(f"{' ' * i}a:\n" for i in range(150)),
        "&a [*a]",
        "&a {b: *a}",
    ],
)
def test_bottomless_text_is_refused_even_on_a_small_stack(text: str) -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            load(text)
        except BaseException as error:  # noqa: BLE001 - to be looked at in the test's own thread
            caught.append(error)

    before = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert isinstance(caught[0], YamlError)


def test_aliases_expand_within_a_budget() -> None:
    assert load("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}
    lines = ["a0: &a0 [1, 1]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]
    with pytest.raises(YamlError, match="expand too far"):
        load("\n".join(lines))


def test_aliased_lists_are_not_shared() -> None:
    data = load("a: &x [1]\nb: *x\n")
    data["a"].append(2)
    assert data["b"] == [1]


def test_lines_of_keys_and_items_are_known() -> None:
    document = load_document("a: 1\nb:\n  - x\n  - c: 2\n    d: 3\n5: y\n")
    assert document.data == {"a": 1, "b": ["x", {"c": 2, "d": 3}], 5: "y"}
    wanted = {("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 1, "c"): 4, ("b", 1, "d"): 5, (5,): 6}
    assert {path: document.line(path) for path in wanted} == wanted
    assert document.line(("b", 1, "unknown", "deeper")) == 4
    assert yaml12.Document(None).line(("a",)) is None
