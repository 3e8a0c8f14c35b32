"""Configuration in a declared shape."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from fleet_agentpack.kit import shapes
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.kit.shapes import JSON, Count, Misfit, Rule, Seconds, ShapeError, Text


@dataclass(frozen=True)
class Coder:
    app_slug: Text | None = None
    projects: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Project:
    path: str
    token: Secret | None = None

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ValueError("needs an absolute path")


@dataclass(frozen=True)
class Fleet:
    engine: Literal["coder", "local"] | None = None
    timeout_s: Seconds = 600.0
    size: Count = 1
    verbose: bool = False
    coder: Coder = field(default_factory=Coder)
    projects: Mapping[str, Project] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    hosts: Annotated[tuple[str, ...], Rule("a list of names")] = ()
    folder: Path = Path("here")
    either: Annotated[str | int | None, "a note for others"] = None
    extra: Any = None


def problems(data: Any, shape: Any = Fleet) -> list[str]:
    return [str(each) for each in shapes.misfits(shape, data, ("fleet",))]


def test_data_that_fits_becomes_a_value_with_defaults() -> None:
    found = shapes.convert(
        Fleet,
        {
            "engine": "local",
            "timeout_s": 5,
            "coder": {"projects": {"web": "web-template"}},
            "projects": {"a": {"path": "/a", "token": "s3cret"}},
            "names": ["x"],
            "folder": "there",
            "either": None,
            "unheard_of": 1,
        },
    )
    assert found == Fleet(
        engine="local",
        timeout_s=5.0,
        coder=Coder(projects={"web": "web-template"}),
        projects={"a": Project("/a", Secret("s3cret"))},
        names=("x",),
        folder=Path("there"),
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (5, "fleet must be a table"),
        ({"engine": "cloud"}, 'fleet.engine must be "coder" or "local", not \'cloud\''),
        ({"engine": 5}, 'fleet.engine must be "coder" or "local"'),
        ({"timeout_s": 0}, "fleet.timeout_s must be a number of seconds above 0"),
        ({"timeout_s": "1"}, "fleet.timeout_s must be a number of seconds above 0"),
        ({"size": True}, "fleet.size must be a whole number that is not negative"),
        ({"size": -1}, "fleet.size must be a whole number that is not negative"),
        ({"verbose": 1}, "fleet.verbose must be true or false"),
        ({"verbose": None}, "fleet.verbose must be true or false"),
        ({"coder": []}, "fleet.coder must be a table"),
        ({"coder": {"app_slug": " "}}, "fleet.coder.app_slug must be text that is not empty"),
        ({"coder": {"projects": {"web": 5}}}, "fleet.coder.projects.web must be text"),
        ({"coder": {"projects": "web"}}, "fleet.coder.projects must be a table"),
        ({"projects": {"a": {}}}, "fleet.projects.a.path is missing"),
        ({"projects": {"a": {"path": "b"}}}, "fleet.projects.a needs an absolute path"),
        ({"projects": {"a": {"path": "/", "token": 5}}}, "fleet.projects.a.token must be text"),
        ({"projects": {5: {"path": "/"}}}, "fleet.projects has a key that is not text"),
        ({"names": "abc"}, "fleet.names must be a list"),
        ({"names": ["a", 5]}, "fleet.names[1] must be text"),
        ({"hosts": ["a", 5]}, "fleet.hosts must be a list of names"),
        ({"folder": 5}, "fleet.folder must be a path"),
        ({"either": []}, "fleet.either must be text or a whole number"),
    ],
)
def test_a_misfit_names_its_field_and_what_is_wanted(data: Any, problem: str) -> None:
    assert problems(data) == [problem]


def test_all_misfits_are_named_at_once_and_no_value_is_quoted() -> None:
    data = {"names": 5, "coder": {"app_slug": 5}, "projects": {"a": {"path": "/", "token": [1]}}}
    with pytest.raises(ShapeError) as caught:
        shapes.convert(Fleet, data, nouns=JSON)
    assert str(caught.value) == (
        "coder.app_slug must be text that is not empty; projects.a.token must be text;"
        " names must be a list"
    )
    assert caught.value.misfits[0].place == ("coder", "app_slug")


def test_unknown_keys_are_named_with_the_nearest_known_one() -> None:
    data = {"engin": 1, "projects": {"a": {"path": "/", "pth": 1}}, "coder": 5, "extra": {"x": 1}}
    found = shapes.unknown_keys(Fleet, data, ("fleet",))
    assert [str(each) for each in found] == [
        "fleet.engin is not a known key; did you mean engine?",
        "fleet.projects.a.pth is not a known key; did you mean path?",
    ]
    assert shapes.unknown_keys(Fleet, {"zzz": 1})[0].hint == ""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    everywhere: bool = msgspec.field(name="global", default=False)


def test_a_struct_is_a_shape_too_with_its_own_names_and_its_own_strictness() -> None:
    assert shapes.convert(Entry, {"name": "a", "global": True}) == Entry("a", True)
    found = problems({"globl": 1, "global": "yes"}, Entry)
    assert found == [
        "fleet.name is missing",
        "fleet.globl is not a known key; did you mean global?",
        "fleet.global must be true or false",
    ]


def test_what_does_not_fit_can_be_left_out() -> None:
    data = {"engine": 5, "names": ["a", 5, "b"], "coder": {"app_slug": 5, "other": 1}}
    places = [each.place for each in shapes.misfits(Fleet, data)]
    assert shapes.without(data, places) == {"names": ["a", "b"], "coder": {"other": 1}}


def test_every_key_of_a_shape_is_known_by_name() -> None:
    assert shapes.known_keys(Fleet) >= {"engine", "app_slug", "path", "token"}


def test_a_misfit_at_the_top_has_no_name() -> None:
    assert str(Misfit((), "must be a table")) == "must be a table"


def test_unknown_keys_are_found_without_msgspec() -> None:
    code = (
        "import sys\n"
        "from dataclasses import dataclass\n"
        "from fleet_agentpack.kit import shapes\n"
        "@dataclass\nclass Shape:\n    a: int = 1\n"
        "assert shapes.unknown_keys(Shape, {'b': 1})\n"
        "sys.exit('msgspec' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
