"""Registry files: what is read, in which shapes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.climpt.registry import Command, RegistryFormatError, merged, parse
from fleet_agentpack.climpt.results import CommandOptions
from tests.climpt.project import GROUP_COMMIT, registry_text


def test_a_record_is_read_whole() -> None:
    assert parse(registry_text([GROUP_COMMIT])).commands == (
        Command(
            "git",
            "group-commit",
            "unstaged-changes",
            GROUP_COMMIT["description"],
            "climpt-git group-commit unstaged-changes",
            CommandOptions(("default",), ("default", "detailed"), True, False, True),
        ),
    )


@pytest.mark.parametrize(
    "shape",
    [
        {"uv": [{"target": "what"}, {"level": "how"}]},
        {"uv": {"target": "what", "level": "how"}},
        {
            "uv": [
                {"name": "target", "description": "what"},
                {"name": "uv-level", "description": "how"},
            ]
        },
        {"options": {"uv": {"target": "what", "level": "how"}}},
    ],
)
def test_variables_are_read_in_every_shape_there_is(shape: dict[str, Any]) -> None:
    (command,) = parse(registry_text([{"c1": "a", "c2": "b", "c3": "c", **shape}])).commands
    assert command.variables == {"target": "what", "level": "how"}


@pytest.mark.parametrize("odd", ["", None, 5, [], [5], {"": "x"}, [{"a": None}]])
def test_odd_variables_do_no_harm(odd: Any) -> None:
    (command,) = parse(registry_text([{"c1": "a", "c2": "b", "c3": "c", "uv": odd}])).commands
    assert set(command.variables) <= {"a"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not valid JSON"),
        ("{", "line 1, column 2"),
        ('{"tools": {"commands": [}', "column 25"),
        ("[" * 100_000, "not usable JSON"),
        ('{"tools": ' + "9" * 5000 + "}", "not usable JSON"),
        ("[]", "tools is missing"),
        ("null", "tools is missing"),
        ("{}", "tools is missing"),
        ('{"tools": []}', "tools must be an object"),
        ('{"tools": {}}', "tools.commands is missing"),
        ('{"tools": {"commands": {}}}', "tools.commands must be a list"),
        ('{"tools": {"commands": [5]}}', r"tools.commands\[0\] must be an object"),
        (registry_text([{}, {"c1": "a"}]), r"no record can be used: tools.commands\[0\].c1"),
        (registry_text([{"c1": 5, "c2": "b", "c3": "c"}]), r"\[0\].c1 must be text"),
        (registry_text([{"c1": " ", "c2": "b", "c3": "c"}]), r"\[0\].c1 is empty"),
        (
            registry_text([{"c1": "a", "c2": "b", "c3": "c", "description": 5}]),
            r"\[0\].description must be text",
        ),
    ],
)
def test_what_is_broken_is_named(text: str, complaint: str) -> None:
    with pytest.raises(RegistryFormatError, match=complaint):
        parse(text)


def test_a_bad_record_is_left_out_and_named() -> None:
    registry = parse(registry_text([{"c1": "a"}, GROUP_COMMIT, {**GROUP_COMMIT, "description": 5}]))
    assert [command.c2 for command in registry.commands] == ["group-commit"]
    assert registry.warnings == (
        "tools.commands[0].c2 is missing; this record is left out",
        "tools.commands[2].description must be text; this record is left out",
    )


def test_title_and_aliases_are_searched() -> None:
    record = {**GROUP_COMMIT, "title": "Tidy up", "aliases": ["checkpoint", 5]}
    (command,) = parse(registry_text([record])).commands
    assert (command.title, command.aliases) == ("Tidy up", ("checkpoint",))
    assert command.text.endswith("Tidy up checkpoint")


def test_variants_are_merged_into_the_first() -> None:
    base = {"c1": "a", "c2": "b", "c3": "c"}
    first = {**base, "description": "first", "options": {"edition": ["default"], "file": False}}
    second = {
        **base,
        "description": "second",
        "usage": "other",
        "options": {"edition": ["json", "default"], "adaptation": ["x"], "file": True},
        "uv": [{"n": "name"}],
    }
    both = merged(parse(registry_text([first, second])).commands)
    assert both == Command(
        "a",
        "b",
        "c",
        "first",
        None,
        CommandOptions(edition=("default", "json"), adaptation=("x",), file=True),
        {"n": "name"},
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["tools", "commands", "c1", "c2", "c3", "options", "uv", "edition"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_any_json_is_read_or_refused(value: Any) -> None:
    for data in (value, {"tools": value}, {"tools": {"commands": [value]}}):
        try:
            commands = parse(json.dumps(data)).commands
        except RegistryFormatError:
            continue
        assert all(isinstance(part, str) for command in commands for part in command.key)
