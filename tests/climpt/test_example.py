"""The example tree: complete, consistent, and copied without harm."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.scaffold import init
from fleet_agentpack.kit import frontmatter, yaml12
from tests.climpt.project import service, write
from tests.climpt.test_service import tree

CONTRACT_COMMANDS = {
    ("git", "decide-branch", "working-branch"),
    ("git", "find-oldest", "descendant-branch"),
    ("git", "group-commit", "unstaged-changes"),
    ("git", "list-select", "pr-branch"),
    ("git", "merge-up", "base-branch"),
    ("meta", "build", "frontmatter"),
    ("meta", "create", "instruction"),
}
EXAMPLE = Path(str(files("fleet_agentpack.climpt") / "example"))
COMMANDS: list[dict[str, Any]] = json.loads((EXAMPLE / "registry.json").read_text())["tools"][
    "commands"
]


def key(command: dict[str, Any]) -> tuple[str, str, str]:
    return command["c1"], command["c2"], command["c3"]


def test_it_has_the_contracts_commands() -> None:
    assert {key(command) for command in COMMANDS} == CONTRACT_COMMANDS
    assert len(COMMANDS) == 7


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command["c2"])
async def test_every_advertised_variant_renders(
    work: Path, home: Path, command: dict[str, Any]
) -> None:
    init(work)
    climpt = service(work, home)
    options = command["options"]
    given = {
        **({"stdin": "The text"} if options["stdin"] else {}),
        **({"file": "docs/in.md"} if options["file"] else {}),
        **({"destination": "git/new.md"} if options["destination"] else {}),
    }
    prompts = [
        await climpt.execute(
            "climpt", *key(command), {**given, "edition": edition, "adaptation": adaptation}
        )
        for edition in options["edition"]
        for adaptation in options["adaptation"]
    ]
    assert len(set(prompts)) == len(prompts)
    for prompt in prompts:
        assert prompt.text.startswith("# ")
        assert prompt.unfilled == ()
        assert ("The text" in prompt.text) == options["stdin"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command["c2"])
def test_headers_agree_with_the_registry(command: dict[str, Any]) -> None:
    folder = EXAMPLE.joinpath("prompts", *key(command))
    adapted = [name for name in command["options"]["adaptation"] if name != "default"]
    names = {"f_default.md", *(f"f_default_{name}.md" for name in adapted)}
    assert {file.name for file in folder.iterdir()} == names
    for file in folder.iterdir():
        header = yaml12.load(frontmatter.split(file.read_text()).header or "")
        assert header.pop("title")
        assert header.pop("c3l_version") == "0.5"
        assert header == command


async def test_the_contracts_session_works(work: Path, home: Path) -> None:
    init(work)
    climpt = service(work, home)
    found = climpt.search("group changes and commit").results
    assert found[0].description == (
        "Group file changes by semantic proximity and execute multiple commits sequentially"
    )
    described = climpt.describe(found[0].c1, found[0].c2, found[0].c3)
    assert described.usage == "climpt-git group-commit unstaged-changes"
    prompt = await climpt.execute("climpt", found[0].c1, found[0].c2, found[0].c3, {})
    assert "git add" in prompt.text
    assert climpt.reload().commandCount == 7


def test_init_is_complete_and_can_be_repeated(work: Path) -> None:
    first = init(work)
    assert first.kept == ()
    assert ".agent/climpt/registry.json" in first.written
    copied = tree(work / ".agent/climpt")
    assert copied == tree(EXAMPLE)
    again = init(work)
    assert (again.written, again.kept) == ((), first.written)
    assert tree(work / ".agent/climpt") == copied


def test_init_keeps_what_was_edited_and_adds_what_is_missing(work: Path) -> None:
    init(work)
    edited = ".agent/climpt/prompts/git/merge-up/base-branch/f_default.md"
    gone = ".agent/climpt/config/meta-app.yml"
    write(work, edited, "mine")
    (work / gone).unlink()
    copied = init(work)
    assert copied.written == (gone,)
    assert edited in copied.kept
    assert (work / edited).read_text() == "mine"


def test_init_leaves_a_registry_of_ones_own_alone(work: Path) -> None:
    write(work, ".agent/climpt/registry.json", "{}")
    before = tree(work)
    with pytest.raises(ClimptError, match="has commands of its own; nothing was written"):
        init(work)
    assert tree(work) == before


@pytest.mark.skipif(os.name == "nt", reason="links of POSIX")
def test_init_does_not_write_through_a_link(work: Path, home: Path) -> None:
    (home / "outside").mkdir()
    (work / ".agent").symlink_to(home / "outside")
    with pytest.raises(ClimptError, match="leads out"):
        init(work)
    assert list((home / "outside").iterdir()) == []


def test_init_says_what_is_in_the_way(work: Path) -> None:
    write(work, ".agent", "a file")
    with pytest.raises(ClimptError, match="Cannot initialise"):
        init(work)
