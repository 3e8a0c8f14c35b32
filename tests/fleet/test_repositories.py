"""Agents' own repositories: what they borrow, what comes back, and what never does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.local import launching
from fleet_agentpack.settings import Settings
from tests.fleet.local_fleet import CONFIG, LocalFleet, git, repository

PLANTED = "#!/bin/sh\ntouch {mark}\nexit 0\n"


@pytest.fixture
def mark(home: Path) -> Path:
    """A file that only something planted makes."""
    return home / "planted"


@pytest.fixture
def trap(home: Path, mark: Path) -> Path:
    """A program that would make it."""
    path = home / "trap"
    path.write_text(PLANTED.format(mark=mark))
    path.chmod(0o755)
    return path


async def test_a_task_s_work_is_committed_and_fetched_into_the_user_s_repository(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    await local.work("papi", "write notes.txt all is well")
    assert git(local.project, "show", "agent/papi:notes.txt") == "all is well"
    subject, author = git(local.project, "log", "-1", "--format=%s%n%an", "agent/papi").split("\n")
    assert (subject, author) == ("write notes.txt all is well", "Test")
    assert git(local.tree("papi"), "status", "--porcelain") == ""  # committed in its own, too
    shown = (await local.fleet.show("papi")).agent.metadata
    assert (shown["fleet_mcp_ahead"], shown["fleet_mcp_changed_files"]) == ("1", "1")
    assert shown["fleet_mcp_last_outcome"] == "completed: Did: write notes.txt all is well"
    assert shown["fleet_mcp_cost_usd"] == "0.2500"
    await local.work("papi", "write more.txt text")
    log = git(local.project, "log", "--format=%s", "main..agent/papi").splitlines()
    assert log == ["write more.txt text", "write notes.txt all is well"]


async def test_commits_of_ours_can_be_switched_off_and_have_another_author(
    local: LocalFleet,
) -> None:
    path = local.settings.config_path
    assert path
    named = CONFIG.replace("[fleet]", '[fleet]\nauthor = "Robot <robot@example.test>"')
    path.write_text(named)
    await local.create("papi")
    local.fleet = open_fleet(Settings.read(), source="human")
    await local.work("papi", "write notes.txt one")
    assert git(local.project, "log", "-1", "--format=%ae", "agent/papi") == "robot@example.test"
    path.write_text(CONFIG.replace("[fleet]", "[fleet]\ncommit = false"))
    local.fleet = open_fleet(Settings.read(), source="human")
    await local.work("papi", "write notes.txt two")
    assert git(local.project, "show", "agent/papi:notes.txt") == "one"
    assert (local.tree("papi") / "notes.txt").read_text() == "two"


async def test_an_agent_commits_in_its_sandbox_and_the_commit_arrives(local: LocalFleet) -> None:
    await local.create("papi")
    row = await local.work("papi", "sh echo x > x && git add x && git commit -qm Mine")
    assert row.summary.endswith("→ 0:")
    assert git(local.project, "log", "-1", "--format=%s", "agent/papi") == "Mine"


async def test_borrowed_objects_survive_a_pruning_of_the_user_s_repository(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    git(local.project, "checkout", "--quiet", "--orphan", "fresh")
    git(local.project, "commit", "--quiet", "-m", "Anew")
    git(local.project, "branch", "--quiet", "-D", "main", "agent/papi")
    git(local.project, "reflog", "expire", "--expire=now", "--all")
    git(local.project, "gc", "--quiet", "--prune=now")
    assert git(local.tree("papi"), "fsck", "--no-dangling") == ""
    await local.work("papi", "write notes.txt still here")
    assert git(local.project, "show", "agent/papi:notes.txt") == "still here"


async def test_nothing_of_the_user_s_git_directory_can_be_written_by_an_agent(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    gits = local.project / ".git"
    before = {path: path.read_bytes() for path in gits.rglob("*") if path.is_file()}
    tries = [f"echo x > {gits}/{name}" for name in ("config", "hooks/post-merge", "HEAD", "x")]
    tries += [f"rm -rf {gits}/objects/*", f"git --git-dir={gits} update-ref refs/heads/main HEAD~0"]
    for one in tries:
        await local.work("papi", f"sh {one}")
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(gits.rglob("x")) == []


def _hook(tree: Path, trap: Path) -> None:
    for name in ("pre-commit", "post-commit", "post-checkout", "reference-transaction"):
        hook = tree / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.symlink_to(trap)


def _settings(tree: Path, trap: Path) -> None:
    names = ("fsmonitor", "pager", "sshCommand", "editor", "alternateRefsCommand", "askPass")
    for name in (*(f"core.{each}" for each in names), "diff.external", "gpg.program"):
        git(tree, "config", name, str(trap))
    for name in ("uploadpack.packObjectsHook", "pager.log", "diff.evil.textconv", "alias.add"):
        git(tree, "config", name, str(trap))
    (tree / ".gitattributes").write_text("* diff=evil\n")


def _filter(tree: Path, trap: Path) -> None:
    for name in ("clean", "smudge", "process"):
        git(tree, "config", f"filter.evil.{name}", str(trap))
    (tree / ".gitattributes").write_text("* filter=evil\n")


def _included(tree: Path, trap: Path) -> None:
    (tree / "more.cfg").write_text(f"[core]\n\tfsmonitor = {trap}\n\thooksPath = {tree}\n")
    git(tree, "config", "include.path", str(tree / "more.cfg"))


def _promisor(tree: Path, trap: Path) -> None:
    git(tree, "config", "remote.evil.promisor", "true")
    git(tree, "config", "remote.evil.url", f"ext::{trap}")
    git(tree, "config", "core.repositoryFormatVersion", "1")
    git(tree, "config", "extensions.partialClone", "evil")


def _replaced(tree: Path, trap: Path) -> None:
    subprocess.run(["rm", "-rf", str(tree / ".git")], check=True)
    git(tree, "init", "--quiet")
    for name in ("core.fsmonitor", "core.pager", "core.sshCommand", "diff.external"):
        git(tree, "config", name, str(trap))
    _hook(tree, trap)


def _elsewhere(tree: Path, trap: Path) -> None:
    other = repository(tree.parent.parent / "other")
    git(other, "config", "core.fsmonitor", str(trap))
    subprocess.run(["rm", "-rf", str(tree / ".git")], check=True)
    (tree / ".git").write_text(f"gitdir: {other}/.git\n")


def _linked(tree: Path, trap: Path) -> None:
    other = repository(tree.parent.parent / "other")
    git(other, "config", "core.fsmonitor", str(trap))
    subprocess.run(["rm", "-rf", str(tree / ".git")], check=True)
    (tree / ".git").symlink_to(other / ".git")


def _pipe_as_head(tree: Path, trap: Path) -> None:
    (tree / ".git/HEAD").unlink()
    os.mkfifo(tree / ".git/HEAD")


def _head_outside(tree: Path, trap: Path) -> None:
    (tree / ".git/HEAD").write_text("ref: refs/heads/../../../../../x\n")


def _broken_objects(tree: Path, trap: Path) -> None:
    (tree / "y").write_text("y")
    git(tree, "add", "y")
    git(tree, "commit", "--quiet", "-m", "Broken")
    for path in (tree / ".git/objects").glob("??/*"):
        path.chmod(0o644)
        path.write_bytes(b"garbage")


def _evil_tree(tree: Path, trap: Path) -> None:
    blob = git(tree, "hash-object", "-w", str(trap))
    inner = (
        subprocess.run(
            ["git", "-C", str(tree), "mktree"],
            input=f"100755 blob {blob}\tpost-checkout\n".encode(),
            capture_output=True,
            check=True,
        )
        .stdout.decode()
        .strip()
    )
    raw = b"40000 .git\0" + bytes.fromhex(inner)
    evil = (
        subprocess.run(
            ["git", "-C", str(tree), "hash-object", "-t", "tree", "-w", "--literally", "--stdin"],
            input=raw,
            capture_output=True,
            check=True,
        )
        .stdout.decode()
        .strip()
    )
    commit = git(tree, "commit-tree", evil, "-p", "HEAD", "-m", "Evil")
    git(tree, "update-ref", "HEAD", commit)


PLANTS = {
    "hooks": _hook,
    "settings": _settings,
    "filter": _filter,
    "included": _included,
    "promisor": _promisor,
    "replaced": _replaced,
    "elsewhere": _elsewhere,
    "linked": _linked,
    "pipe": _pipe_as_head,
    "outside": _head_outside,
    "broken": _broken_objects,
    "evil tree": _evil_tree,
}


@pytest.mark.parametrize("plant", PLANTS)
async def test_nothing_that_an_agent_plants_runs_or_reaches_the_user_s_repository(
    local: LocalFleet,
    plant: str,
    trap: Path,
    mark: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if plant == "pipe":  # git waits for it as long as it may
        monkeypatch.setattr(launching, "COMMIT_S", 1.0)
    await local.create("papi")
    tree = local.tree("papi")
    (tree / "work.txt").write_text("work")
    PLANTS[plant](tree, trap)  # type: ignore[operator]
    mark.unlink(missing_ok=True)
    refs = git(local.project, "for-each-ref", "refs/heads/main", "refs/tags", "refs/remotes")
    settings = (local.project / ".git/config").read_text()
    await local.fleet.show("papi")
    await local.fleet.deletion("papi")
    assert not mark.exists()
    await local.work("papi", "write more.txt text")
    assert not mark.exists()
    message = (await local.fleet.delete("papi")).message
    assert not mark.exists()
    assert not tree.exists()
    assert (
        git(local.project, "for-each-ref", "refs/heads/main", "refs/tags", "refs/remotes") == refs
    )
    assert (local.project / ".git/config").read_text() == settings
    assert git(local.project, "fsck", "--strict") == ""
    kept = [*(local.settings.directories.data / "kept").glob("*/work.txt")]
    if not kept:  # no work is lost, whatever happened to the repository
        assert git(local.project, "show", "agent/papi:work.txt") == "work", message


async def test_a_branch_called_agent_does_not_stand_in_the_way(local: LocalFleet) -> None:
    git(local.project, "branch", "agent")
    made = await local.create("papi")
    assert made.agent.metadata["fleet_mcp_branch"] == "agent-papi"
    await local.work("papi", "write notes.txt text")
    assert git(local.project, "show", "agent-papi:notes.txt") == "text"


async def test_the_user_s_own_commits_on_the_branch_are_not_overwritten(local: LocalFleet) -> None:
    await local.create("papi")
    await local.work("papi", "write notes.txt one")
    git(local.project, "checkout", "--quiet", "agent/papi")
    (local.project / "notes.txt").write_text("mine")
    git(local.project, "commit", "--quiet", "-am", "Mine")
    await local.work("papi", "write more.txt two")  # while it is checked out
    git(local.project, "checkout", "--quiet", "main")
    await local.work("papi", "write more.txt three")
    assert git(local.project, "log", "-1", "--format=%s", "agent/papi") == "Mine"
    message = (await local.fleet.delete("papi")).message
    assert "agent/papi-kept" in message
    assert git(local.project, "show", "agent/papi-kept:more.txt") == "three"


async def test_changes_and_submodules_that_a_new_agent_lacks_are_named(local: LocalFleet) -> None:
    inner = repository(local.project.parent / "inner")
    allow = ("-c", "protocol.file.allow=always")
    git(local.project, *allow, "submodule", "--quiet", "add", str(inner), "vendor")
    git(local.project, "commit", "--quiet", "-m", "Submodule")
    (local.project / "README.md").write_text("Changed\n")
    (local.project / "new.txt").write_text("new")
    warnings = (await local.create("papi")).warnings
    assert isinstance(warnings, tuple) and len(warnings) == 2
    assert "2 uncommitted changes" in warnings[0] and "README.md, new.txt" in warnings[0]
    assert "vendor" in warnings[1]


async def test_a_plain_directory_with_a_socket_and_a_pipe_is_copied_without_them(
    local: LocalFleet, home: Path
) -> None:
    plain = home / "plain"
    plain.mkdir()
    (plain / "file.txt").write_text("text")
    os.mkfifo(plain / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(plain / "socket"))
        path = local.settings.config_path
        assert path
        path.write_text(f'{CONFIG}\n[fleet.projects.Plain]\npath = "{plain}"\n')
        fleet = open_fleet(Settings.read(), source="human")
        made = await fleet.create("papi", "plain", "coder", "x")
        assert [one.name for one in local.tree("papi").iterdir()] == ["file.txt"]
        assert isinstance(made.warnings, tuple) and "pipe, socket" in made.warnings[0]
        assert (await fleet.delete("papi")).message == "Agent 'papi' deleted successfully"
    await fleet.close()


async def test_an_agent_file_of_another_version_or_an_unreadable_one_breaks_no_list(
    local: LocalFleet,
) -> None:
    await local.create("newer")
    await local.create("broken")
    folders = local.settings.directories.state / "agents"
    known = json.loads((folders / "newer/agent.json").read_text())
    (folders / "newer/agent.json").write_text(json.dumps({**known, "colour": "blue"}))
    whole = (folders / "broken/agent.json").read_text()
    (folders / "broken/agent.json").write_text("{")
    rows = {row.name: row.status for row in (await local.fleet.agents()).agents}
    assert rows == {"newer": "idle", "broken": "offline"}
    assert (await local.work("newer", "go")).status == "completed"
    (folders / "broken/agent.json").write_text(whole)


async def test_an_agent_of_version_0_1_goes_on_working_in_its_worktree(local: LocalFleet) -> None:
    await local.create("papi")
    path = local.settings.directories.state / "agents/papi/agent.json"
    old = json.loads(path.read_text())
    tree = local.tree("papi")
    subprocess.run(["rm", "-rf", str(tree)], check=True)
    git(local.project, "branch", "--quiet", "-D", "agent/papi")
    git(local.project, "worktree", "add", "--quiet", "-b", "agent/papi", str(tree))
    path.write_text(
        json.dumps({k: v for k, v in old.items() if k not in ("base", "base_branch", "model")})
    )
    assert (await local.work("papi", "write notes.txt old")).status == "completed"
    assert git(local.project, "show", "agent/papi:notes.txt") == "old"
    assert git(tree, "status", "--porcelain") == ""
    work = await local.fleet.work("papi")
    assert [one.path for one in work.files] == ["notes.txt"]
    (tree / "later.txt").write_text("later")
    assert "agent/papi" in (await local.fleet.delete("papi")).message
    assert git(local.project, "show", "agent/papi:later.txt") == "later"
    assert git(local.project, "worktree", "list").count("\n") == 0


async def test_an_agent_that_took_away_its_own_rights_can_be_deleted(local: LocalFleet) -> None:
    await local.create("papi")
    locked = local.tree("papi") / "locked"
    locked.mkdir()
    (locked / "file").write_text("x")
    locked.chmod(0o500)
    await local.fleet.delete("papi")
    assert not local.tree("papi").exists()
