"""Where registries are looked for, and what is never followed, changed or hidden."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.project_files import MAX_BYTES
from tests.climpt.project import (
    DECIDE_BRANCH,
    ECHO,
    FRONTMATTER,
    GROUP_COMMIT,
    SAMPLE,
    registry_text,
    service,
    write,
    write_registry,
)

CONFIG = ".agent/climpt/config/registry_config.json"
REGISTRY = ".agent/climpt/registry.json"


def count(cwd: Path, home: Path, agent: str = "climpt") -> int:
    return service(cwd, home).reload(agent).commandCount


def refusal(cwd: Path, home: Path, agent: str = "climpt") -> dict[str, Any]:
    with pytest.raises(ClimptError) as caught:
        service(cwd, home).reload(agent)
    return caught.value.payload()


def register(root: Path, **registries: Any) -> None:
    write(root, CONFIG, json.dumps({"registries": registries}))


def test_no_registry_is_the_contracts_error_with_a_hint(work: Path, home: Path) -> None:
    assert refusal(work, home) == {
        "error": "Failed to load registry",
        "path": REGISTRY,
        "details": "File not found",
        "hint": "`fleet-agentpack climpt init` puts an example there",
    }
    assert list(work.iterdir()) == []


def test_the_project_comes_before_the_home(work: Path, home: Path) -> None:
    write_registry(home, SAMPLE)
    assert count(work, home) == 4
    write_registry(work, SAMPLE[:1])
    assert count(work, home) == 1


def test_a_broken_project_registry_is_not_hidden_by_the_homes(work: Path, home: Path) -> None:
    write_registry(home, SAMPLE)
    write(work, REGISTRY, "{")
    assert refusal(work, home)["path"] == REGISTRY


def test_a_broken_registry_in_the_home_is_named_as_there(work: Path, home: Path) -> None:
    write(home, REGISTRY, "{")
    error = refusal(work, home)
    assert error["path"] == f"~/{REGISTRY}"
    assert error["details"].startswith("not valid JSON")


def test_a_folder_inside_the_repository_finds_the_projects_registry(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE)
    below = work / "src/deep"
    below.mkdir(parents=True)
    assert refusal(below, home)["details"] == "File not found"
    (work / ".git").mkdir()
    assert count(below, home) == 4
    write_registry(work / "src", SAMPLE[:1])
    assert count(below, home) == 1


def test_nothing_above_the_repository_is_used(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE)
    inner = work / "repository/src"
    inner.mkdir(parents=True)
    (work / "repository/.git").mkdir()
    assert refusal(inner, home)["details"] == "File not found"


def test_agents_have_registries_of_their_own(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE)
    write_registry(work, SAMPLE[:2], "iterator")
    write(work, "elsewhere/list.json", registry_text([DECIDE_BRANCH]))
    register(work, climpt=REGISTRY, other="elsewhere/list.json", plain="./elsewhere/list.json")
    assert [count(work, home, agent) for agent in ("climpt", "iterator", "other", "plain")] == [
        4,
        2,
        1,
        1,
    ]
    assert count(work, home, "") == 4


def test_an_unknown_agent_is_told_which_there_are(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE)
    register(work, iterator=".agent/iterator/registry.json")
    error = refusal(work, home, "nobody")
    assert (error["path"], error["details"]) == (".agent/nobody/registry.json", "File not found")
    assert error["hint"].startswith("agents: climpt, iterator;")


@pytest.mark.parametrize("agent", ["../x", "a/b", "a b", "-x", ".", "~", "a\x00", "ü", "x" * 101])
def test_an_agents_name_never_becomes_another_path(work: Path, home: Path, agent: str) -> None:
    assert refusal(work, home, agent) == {
        "error": "Invalid arguments",
        "details": "agent: letters, digits, '-' and '_' only",
    }


def test_the_projects_configuration_hides_the_homes(work: Path, home: Path) -> None:
    write(home, "a.json", registry_text(SAMPLE))
    write(work, "b.json", registry_text(SAMPLE[:1]))
    register(home, extra="a.json")
    assert count(work, home, "extra") == 4
    register(work, extra="b.json")
    assert count(work, home, "extra") == 1
    register(work)
    assert refusal(work, home, "extra")["details"] == "File not found"


def test_a_configured_path_is_looked_for_in_the_home_too(work: Path, home: Path) -> None:
    register(work, extra="lists/extra.json")
    write(home, "lists/extra.json", registry_text(SAMPLE[:2]))
    assert count(work, home, "extra") == 2


def test_an_absolute_path_in_the_configuration_stands_for_itself(work: Path, home: Path) -> None:
    outside = write(home, "outside.json", registry_text(SAMPLE[:3]))
    register(work, extra=str(outside))
    assert count(work, home, "extra") == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not valid JSON"),
        ("[]", "registries must be an object"),
        ("{}", "registries must be an object"),
        ('{"registries": 5}', "registries must be an object"),
        ("[" * 100_000, "not usable JSON"),
    ],
)
def test_a_broken_configuration_is_reported_and_left_alone(
    work: Path, home: Path, text: str, complaint: str
) -> None:
    write_registry(work, SAMPLE)
    file = write(work, CONFIG, text)
    error = refusal(work, home)
    assert error["error"] == "Failed to load registry"
    assert error["path"] == CONFIG
    assert complaint in error["details"]
    assert file.read_text() == text


def test_a_path_out_of_the_project_is_refused(work: Path, home: Path) -> None:
    write(home, "secret.json", registry_text(SAMPLE))
    register(work, extra="../secret.json")
    assert "leads out" in refusal(work, home, "extra")["details"]


@pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
def test_links_and_pipes_are_not_followed_out(work: Path, home: Path) -> None:
    outside = write(home, "secret.json", registry_text(SAMPLE))
    (work / ".agent/climpt").mkdir(parents=True)
    registry = work / REGISTRY
    registry.symlink_to(outside)
    assert "leads out" in refusal(work, home)["details"]
    registry.unlink()
    registry.symlink_to(registry)
    assert refusal(work, home)["error"] == "Failed to load registry"
    registry.unlink()
    os.mkfifo(registry)
    assert refusal(work, home)["details"] == "not a regular file"
    registry.unlink()
    registry.mkdir()
    assert refusal(work, home)["details"] == "not a regular file"


def test_text_in_another_encoding_is_named(work: Path, home: Path) -> None:
    file = write_registry(work, SAMPLE)
    file.write_bytes(registry_text(SAMPLE).encode("utf-16"))
    assert refusal(work, home)["details"] == "not UTF-8 text"
    file.write_bytes(b"\xef\xbb\xbf" + registry_text(SAMPLE).encode())
    assert count(work, home) == 4


@pytest.mark.permissions
def test_a_registry_without_permission_is_named(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE).chmod(0)
    assert refusal(work, home)["details"] == "Permission denied"


def test_a_home_that_is_the_project_is_looked_at_once(home: Path) -> None:
    write_registry(home, [GROUP_COMMIT, FRONTMATTER])
    assert count(home, home) == 2
    write(home, REGISTRY, "{")
    assert refusal(home, home)["path"] == REGISTRY


def test_a_registry_that_is_too_large_is_not_read(work: Path, home: Path) -> None:
    registry = write_registry(work, [ECHO])
    with registry.open("r+b") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ClimptError, match="larger than 64 MB"):
        service(work, home).reload()


def test_a_chain_of_links_without_end_is_named(work: Path, home: Path) -> None:
    registry = write_registry(work, [ECHO])
    registry.unlink()
    registry.symlink_to(registry.name)
    with pytest.raises(ClimptError, match="not a usable path"):
        service(work, home).reload()
