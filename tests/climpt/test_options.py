"""Both forms of options, and what is refused in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.options import Options

EVERYTHING = Options("json", "detailed", "in.md", "out.md", "text", {"target": "x", "n": "5"})


@pytest.mark.parametrize(
    "given_options",
    [
        {
            "edition": "json",
            "adaptation": "detailed",
            "file": "in.md",
            "destination": "out.md",
            "stdin": "text",
            "uv": {"target": "x", "n": 5},
        },
        {
            "edition": "json",
            "adaptation": "detailed",
            "from": "in.md",
            "destination": "out.md",
            "stdin": "text",
            "uv-target": "x",
            "uv": {"uv-n": "5"},
        },
    ],
)
def test_an_object_is_read(given_options: dict[str, Any]) -> None:
    assert Options.of(given_options) == EVERYTHING


@pytest.mark.parametrize(
    "arguments",
    [
        ["-e=json", "-a=detailed", "-f=in.md", "-o=out.md", "--uv-target=x", "--uv-n=5"],
        [
            "--edition=json",
            "--adaptation=detailed",
            "--from=in.md",
            "--destination=out.md",
            "--uv-target=x",
            "--uv-n=5",
        ],
    ],
)
def test_the_originals_list_is_read_and_written(arguments: list[str]) -> None:
    options = Options.of(arguments)
    assert (options.edition, options.file, options.variables) == (
        "json",
        "in.md",
        {"target": "x", "n": "5"},
    )
    assert Options.of(options.arguments()) == options


def test_what_says_nothing_is_left_out() -> None:
    nothing = {"edition": None, "adaptation": "", "file": False, "stdin": False, "uv": {"a": ""}}
    assert Options.of(nothing) == Options.of({}) == Options.of([]) == Options()


def test_a_value_may_hold_an_equals_sign() -> None:
    assert Options.of(["--uv-a=b=c"]).variables == {"a": "b=c"}


def test_truth_becomes_text_in_a_variable() -> None:
    assert Options.of({"uv": {"a": True, "b": False, "c": 1.5}}).variables == {
        "a": "true",
        "b": "false",
        "c": "1.5",
    }


@pytest.mark.parametrize(
    ("given_options", "complaint"),
    [
        (5, "options: must be an object"),
        ("--edition=x", "options: must be an object"),
        (None, "options: must be an object"),
        ({"editions": "x"}, "options.editions: unknown option; use one of edition"),
        ({"edition": ["default"]}, "options.edition: must be text"),
        ({"file": True}, "options.file: must be text"),
        ({"uv": "x"}, "options.uv: must be an object"),
        ({"uv": {"a b": "x"}}, "options.uv-a b: a variable's name"),
        ({"uv-input_text": "x"}, "options.uv-input_text: this name is reserved"),
        ({"uv": {"a": {}}}, "options.uv-a: must be text or a number"),
        ({"file": "a", "from": "b"}, "options.file: given twice"),
        ({"uv-a": "1", "uv": {"a": "2"}}, "options.uv-a: given twice"),
        (["--config=other"], "options.--config: unknown option"),
        (["--help"], "options.--help: write it as flag=value"),
        (["-h"], "flag=value"),
        (["--uv-a="], "options.uv-a: must not be empty"),
        (["--uv-=x"], "a variable's name"),
        ([5], "options: the list form takes text"),
        (["-e=a", "--edition=b"], "options.edition: given twice"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given_options: Any, complaint: str) -> None:
    with pytest.raises(ClimptError) as caught:
        Options.of(given_options)
    payload = caught.value.payload()
    assert payload.keys() == {"error", "details"}
    assert payload["error"] == "Invalid arguments"
    assert complaint in payload["details"]


def test_everything_wrong_is_named_at_once() -> None:
    with pytest.raises(ClimptError, match=r"options.a: unknown .*options.b: unknown "):
        Options.of({"a": 1, "b": 2})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["edition", "uv", "uv-a", "file", "from", "stdin"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(values)
def test_any_value_is_read_or_refused(value: Any) -> None:
    try:
        options = Options.of(value)
    except ClimptError:
        return
    assert all(isinstance(text, str) for text in options.variables.values())
    assert isinstance(options.edition, str | None)
