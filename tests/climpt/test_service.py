"""The four use cases, without MCP."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.results import CommandOptions, Found, Reloaded
from fleet_agentpack.kit.results import jsonable
from tests.climpt.project import (
    DECIDE_BRANCH,
    GROUP_COMMIT,
    SAMPLE,
    service,
    write,
    write_echo,
    write_registry,
)

REGISTRY = ".agent/climpt/registry.json"


def tree(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }


def test_a_change_on_disk_is_seen_after_reload(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE[:1])
    climpt = service(work, home)
    assert [row.c2 for row in climpt.search("branch commit").results] == ["group-commit"]
    write_registry(work, SAMPLE[:2])
    assert [row.c2 for row in climpt.search("branch commit").results] == ["group-commit"]
    assert climpt.reload() == Reloaded(
        True, "climpt", 2, "Successfully reloaded 2 commands for agent 'climpt'"
    )
    assert {row.c2 for row in climpt.search("branch commit").results} == {
        "group-commit",
        "decide-branch",
    }


@pytest.mark.parametrize("agent", ["../climpt", "climpt/../climpt", ".", "/etc", "a b", "-x"])
def test_an_agent_that_is_a_path_is_refused_before_any_file_is_looked_for(
    work: Path, home: Path, agent: str
) -> None:
    write_registry(work, SAMPLE)
    climpt = service(work, home)
    for call in (climpt.reload, lambda name: climpt.search("commit", name)):
        with pytest.raises(ClimptError) as caught:
            call(agent)
        assert caught.value.payload()["error"] == "Invalid arguments"


@pytest.mark.parametrize("broken", ["{", '{"tools": {"commands": [{"c1": "x"}]}}', None])
async def test_a_broken_registry_leaves_the_last_good_one_in_use(
    work: Path, home: Path, broken: str | None
) -> None:
    write_echo(work, "prompt")
    climpt = service(work, home)
    climpt.reload()
    if broken is None:
        (work / REGISTRY).unlink()
    else:
        write(work, REGISTRY, broken)
    for _ in range(2):
        with pytest.raises(ClimptError) as caught:
            climpt.reload()
        payload = caught.value.payload()
        assert payload["error"] == "Failed to load registry"
        assert payload["path"] == REGISTRY
        assert payload["details"]
    assert climpt.search("echo").results[0].c2 == "echo"
    assert climpt.describe("test", "echo", "input").c3 == "input"
    assert (await climpt.execute("climpt", "test", "echo", "input")).text == "prompt\n"


def test_a_registry_that_appears_needs_no_reload(work: Path, home: Path) -> None:
    climpt = service(work, home)
    with pytest.raises(ClimptError):
        climpt.search("commit")
    write_registry(work, SAMPLE)
    assert climpt.search("commit").results


def test_reload_sees_a_changed_configuration(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE)
    climpt = service(work, home)
    assert climpt.reload().commandCount == 4
    write_registry(work, SAMPLE[:1], "other")
    config = '{"registries": {"climpt": ".agent/other/registry.json"}}'
    write(work, ".agent/climpt/config/registry_config.json", config)
    assert climpt.reload().commandCount == 1


def test_an_empty_registry_is_no_error(work: Path, home: Path) -> None:
    write_registry(work, [])
    climpt = service(work, home)
    assert climpt.search("anything") == Found((), ("The registry has no commands.",))
    assert climpt.reload().commandCount == 0
    assert climpt.reload().message.startswith("No commands found for agent 'climpt'")
    with pytest.raises(ClimptError) as caught:
        climpt.describe("a", "b", "c")
    assert caught.value.payload()["hint"] == "call search with a description of the task"
    assert caught.value.advice() == ["try fleet-agentpack climpt search QUERY"]


def test_a_search_without_a_hit_says_what_there_is(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE)
    told = "No command matches. There are commands for git (2), meta (2); try other words."
    assert service(work, home).search("zebra") == Found((), (told,))


def test_one_bad_record_does_not_disable_the_others(work: Path, home: Path) -> None:
    write_registry(work, [{"c1": "x"}, *SAMPLE])
    climpt = service(work, home)
    warning = f"{REGISTRY}: tools.commands[0].c2 is missing; this record is left out"
    assert climpt.search("commit").results[0].c2 == "group-commit"
    assert climpt.search("commit").warnings == (warning,)
    assert climpt.reload().warnings == (warning,)


def test_a_prompts_title_and_aliases_are_found(work: Path, home: Path) -> None:
    header = "---\ntitle: Parrot\naliases: [repeat after me]\n---\n"
    write_echo(work, f"{header}x")
    climpt = service(work, home)
    assert climpt.search("parrot").results[0].c2 == "echo"
    assert climpt.search("repeating").results[0].c2 == "echo"


def test_an_unknown_agent_is_told_of_every_agent(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE)
    write_registry(work, [], "reviewer")
    write(work, ".agent/climpt/config/registry_config.json", '{"registries": {"iterator": "x"}}')
    with pytest.raises(ClimptError) as caught:
        service(work, home).reload("nobody")
    assert "agents: climpt, iterator, reviewer;" in caught.value.payload()["hint"]


def test_describe_gives_the_contracts_fields(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE)
    climpt = service(work, home)
    expected = {key: value for key, value in GROUP_COMMIT.items() if key != "uv"}
    assert jsonable(climpt.describe("git", "group-commit", "unstaged-changes")) == expected
    assert jsonable(climpt.describe("git", "decide-branch", "working-branch")) == DECIDE_BRANCH


def test_describe_merges_variants(work: Path, home: Path) -> None:
    other = {**GROUP_COMMIT, "description": "x", "options": {"edition": ["bug"], "stdin": True}}
    write_registry(work, [*SAMPLE, other])
    found = service(work, home).describe("git", "group-commit", "unstaged-changes")
    assert found.description == GROUP_COMMIT["description"]
    assert found.options == CommandOptions(
        edition=("default", "bug"),
        adaptation=("default", "detailed"),
        file=True,
        stdin=True,
        destination=True,
    )


@pytest.mark.parametrize(
    ("usage", "shown"),
    [
        ("climpt-a b c --uv-x=<x>", "climpt-a b c --uv-x=<x> --uv-y=<y>\nuv-x: what"),
        ("climpt-a b c", "climpt-a b c --uv-x=<x> --uv-y=<y>\nuv-x: what"),
        (None, "a b c --uv-x=<x> --uv-y=<y>\nuv-x: what"),
    ],
)
def test_describe_tells_of_variables_in_the_usage(
    work: Path, home: Path, usage: str | None, shown: str
) -> None:
    command: dict[str, Any] = {"c1": "a", "c2": "b", "c3": "c", "uv": [{"x": "what"}, {"y": ""}]}
    write_registry(work, [command | ({"usage": usage} if usage else {})])
    assert service(work, home).describe("a", "b", "c").usage == shown


@pytest.mark.parametrize(
    "key", [("git", "group-commit", "x"), ("GIT", "group-commit", "unstaged-changes")]
)
async def test_a_command_that_is_not_there_is_the_contracts_error(
    work: Path, home: Path, key: tuple[str, str, str]
) -> None:
    write_registry(work, SAMPLE)
    climpt = service(work, home)
    with pytest.raises(ClimptError) as described:
        climpt.describe(*key)
    with pytest.raises(ClimptError) as executed:
        await climpt.execute("climpt", *key)
    assert described.value.payload() == executed.value.payload()
    payload = described.value.payload()
    assert payload.pop("hint").startswith("near: git group-commit unstaged-changes")
    assert payload == dict(
        zip(("error", "c1", "c2", "c3"), ("Command not found", *key), strict=True)
    )


async def test_empty_values_are_refused_by_name(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE)
    climpt = service(work, home)
    with pytest.raises(ClimptError, match="query: must not be empty"):
        climpt.search("  ")
    with pytest.raises(ClimptError, match="c1: must not be empty; c3: must not be empty"):
        climpt.describe("", "x", " ")
    with pytest.raises(ClimptError, match="agent: must not be empty"):
        await climpt.execute("", "a", "b", "c")


async def test_nothing_is_written(work: Path, home: Path) -> None:
    write_echo(work, "x {destination_path}")
    before = tree(home)
    climpt = service(work, home)
    climpt.search("echo")
    climpt.describe("test", "echo", "input")
    await climpt.execute("climpt", "test", "echo", "input", {"destination": "out.md"})
    climpt.reload()
    with pytest.raises(ClimptError):
        climpt.reload("nobody")
    assert tree(home) == before


def test_many_threads_may_ask_and_reload_at_once(work: Path, home: Path) -> None:
    write_registry(work, SAMPLE)
    climpt = service(work, home)
    problems: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(20):
                assert climpt.search("commit my changes").results[0].c2 == "group-commit"
                climpt.reload()
        except BaseException as error:  # noqa: BLE001 - to be looked at in the test's own thread
            problems.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_errors_read_well(work: Path, home: Path) -> None:
    with pytest.raises(ClimptError) as caught:
        service(work, home).reload()
    assert str(caught.value) == (
        "Failed to load registry: .agent/climpt/registry.json: File not found"
    )
    assert caught.value.advice() == ["`fleet-agentpack climpt init` puts an example there"]
    assert caught.value.is_missing_registry
    absent = ClimptError("Command not found", c1="a", c2="b", c3="c", hint="look")
    assert (str(absent), absent.advice()) == ("Command not found: a b c", ["look"])
    assert ClimptError.unexpected("search").payload()["error"] == "Unexpected error"
