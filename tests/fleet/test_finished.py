"""An agent's work is seen, merged, brought up to date and proposed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.wire.server import build_server
from tests.fleet.local_fleet import LocalFleet, ended, git
from tests.fleet.test_surfaces import command


async def worked(local: LocalFleet, *tasks: str) -> None:
    await local.create("papi")
    for task in tasks or ("write notes.txt all is well",):
        await local.work("papi", task)


async def refused(work: Any) -> dict[str, Any]:
    with pytest.raises(FleetError) as caught:
        await work
    return caught.value.payload()


async def test_a_merge_brings_the_work_into_the_branch_that_the_agent_came_from(
    local: LocalFleet,
) -> None:
    await worked(local)
    merged = await local.fleet.finished.merge("papi")
    assert merged.message == "1 commit of agent/papi merged into main"
    assert merged.files == ("notes.txt",)
    assert (local.project / "notes.txt").read_text() == "all is well"
    assert git(local.project, "rev-parse", "HEAD") == merged.commit
    assert git(local.project, "status", "--porcelain") == ""
    assert (await local.fleet.show("papi")).agent.metadata["fleet_mcp_ahead"] == "0"
    again = await local.fleet.finished.merge("papi")
    assert "nothing to merge" in again.message and again.commit == merged.commit


async def test_a_squash_is_one_commit_and_another_branch_needs_no_checkout(
    local: LocalFleet,
) -> None:
    git(local.project, "branch", "release")
    await worked(local, "write a.txt one", "write b.txt two")
    merged = await local.fleet.finished.merge("papi", into="release", squash=True)
    assert git(local.project, "rev-list", "--count", "main..release") == "1"
    assert git(local.project, "show", "release:b.txt") == "two"
    body = git(local.project, "log", "-1", "--format=%B", str(merged.commit))
    assert "* write a.txt one" in body and "Agent: papi" in body
    assert not (local.project / "a.txt").exists()


async def test_branches_that_went_apart_are_joined_by_a_merge_commit(local: LocalFleet) -> None:
    await worked(local)
    (local.project / "mine.txt").write_text("mine")
    git(local.project, "add", "--all")
    git(local.project, "commit", "--quiet", "-m", "Mine")
    await local.fleet.finished.merge("papi")
    assert git(local.project, "log", "-1", "--format=%P").count(" ") == 1
    assert (local.project / "notes.txt").exists() and (local.project / "mine.txt").exists()


async def test_a_conflict_is_409_names_the_files_and_changes_nothing(local: LocalFleet) -> None:
    await worked(local, "write README.md Theirs")
    (local.project / "README.md").write_text("Mine\n")
    git(local.project, "commit", "--quiet", "-am", "Mine")
    before = git(local.project, "for-each-ref"), git(local.project, "status", "--porcelain=v2")
    error = await refused(local.fleet.finished.merge("papi"))
    assert (error["error"], error["details"]["status"]) == ("conflict", 409)
    assert error["details"]["conflicts"] == ["README.md"]
    after = git(local.project, "for-each-ref"), git(local.project, "status", "--porcelain=v2")
    assert before == after and (local.project / "README.md").read_text() == "Mine\n"


async def test_a_dirty_target_is_refused_and_untracked_files_are_not_overwritten(
    local: LocalFleet,
) -> None:
    await worked(local)
    (local.project / "README.md").write_text("Changed\n")
    error = await refused(local.fleet.finished.merge("papi"))
    assert error["details"]["uncommitted"] == ["README.md"]
    git(local.project, "checkout", "--quiet", "README.md")
    (local.project / "notes.txt").write_text("precious")
    error = await refused(local.fleet.finished.merge("papi"))
    assert error["error"] == "conflict" and "notes.txt" in error["message"]
    assert (local.project / "notes.txt").read_text() == "precious"
    assert git(local.project, "log", "-1", "--format=%s") == "First"


async def test_a_busy_agent_and_an_unknown_branch_are_refused(local: LocalFleet) -> None:
    await worked(local)
    error = await refused(local.fleet.finished.merge("papi", into="nowhere"))
    assert (error["error"], error["details"]["field"]) == ("bad_request", "into")
    await local.fleet.start("papi", "sleep 60")
    assert (await refused(local.fleet.finished.merge("papi")))["details"]["status"] == 409


async def test_hooks_of_the_repository_do_not_run_at_a_merge(local: LocalFleet) -> None:
    await worked(local)
    for name in ("post-merge", "pre-merge-commit", "reference-transaction"):
        hook = local.project / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {local.project}/ran\n")
        hook.chmod(0o755)
    await local.fleet.finished.merge("papi")
    assert not (local.project / "ran").exists()


async def test_a_sync_puts_the_work_on_top_of_the_base(local: LocalFleet) -> None:
    await worked(local)
    (local.project / "mine.txt").write_text("mine")
    git(local.project, "add", "--all")
    git(local.project, "commit", "--quiet", "-m", "Mine")
    synced = await local.fleet.finished.sync("papi")
    assert "on top of main" in synced.message
    log = git(local.project, "log", "--format=%s", "agent/papi").splitlines()
    assert log == ["write notes.txt all is well", "Mine", "First"]
    assert (local.tree("papi") / "mine.txt").read_text() == "mine"
    assert "up to date" in (await local.fleet.finished.sync("papi")).message
    await local.work("papi", "write more.txt text")
    assert git(local.project, "rev-list", "--count", "main..agent/papi") == "2"


async def test_a_sync_that_conflicts_changes_nothing(local: LocalFleet) -> None:
    await worked(local, "write README.md Theirs")
    (local.project / "README.md").write_text("Mine\n")
    git(local.project, "commit", "--quiet", "-am", "Mine")
    before = git(local.project, "rev-parse", "agent/papi")
    error = await refused(local.fleet.finished.sync("papi"))
    assert error["details"]["conflicts"] == ["README.md"]
    assert git(local.project, "rev-parse", "agent/papi") == before
    assert git(local.tree("papi"), "status", "--porcelain") == ""


async def test_a_pull_request_goes_through_gh_or_is_explained(
    local: LocalFleet, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await worked(local)
    assert (await refused(local.fleet.finished.propose("papi")))["error"] == "bad_request"
    git(local.project, "remote", "add", "origin", "git@github.com:me/demo.git")
    told = await local.fleet.finished.propose("papi")
    assert told.url == "https://github.com/me/demo/compare/main...agent/papi?expand=1"
    assert told.push == f"git -C {local.project} push origin agent/papi"
    bare = home / "bare.git"
    git(local.project, "clone", "--quiet", "--bare", str(local.project), str(bare))
    git(local.project, "remote", "set-url", "origin", str(bare))
    programs = home / "programs"
    programs.mkdir()
    (programs / "gh").write_text(
        '#!/bin/sh\ncase "$1 $2" in "pr view") [ -e made ] || exit 1;'
        ' echo \'{"url": "https://github.com/me/demo/pull/7", "state": "OPEN",'
        ' "statusCheckRollup": [{"conclusion": "SUCCESS"}]}\';;'
        ' "pr create") touch made;; esac\n'
    )
    (programs / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    from fleet_agentpack.settings import Settings

    local.settings = Settings.read()
    fleet = local.restarted()
    made = await fleet.finished.propose("papi")
    assert made.url == "https://github.com/me/demo/pull/7"
    shown = (await fleet.show("papi")).agent.metadata
    assert shown["fleet_mcp_pull_request_status"] == "open"
    assert shown["fleet_mcp_pull_request_check_status"] == "passing"
    assert git(bare, "show", "agent/papi:notes.txt") == "all is well"
    (local.project / "README.md").write_text("Another project\n")
    git(local.project, "commit", "--quiet", "--all", "-m", "Base")
    await fleet.finished.sync("papi")
    await fleet.finished.propose("papi")  # what was rebased is pushed again
    assert git(bare, "show", "agent/papi:README.md") == "Another project"
    other = home / "other"
    git(home, "clone", "--quiet", "--branch", "agent/papi", str(bare), str(other))
    git(other, "commit", "--quiet", "--allow-empty", "-m", "A reviewer's")
    git(other, "push", "--quiet")
    await fleet.start("papi", "write more.txt more")
    await ended(fleet, "papi")
    with pytest.raises(FleetError, match="could not push"):
        await fleet.finished.propose("papi")
    assert git(bare, "log", "-1", "--format=%s", "agent/papi") == "A reviewer's"
    await fleet.close()


async def test_the_extra_merges_only_with_yes(local: LocalFleet) -> None:
    await worked(local)
    async with Client(build_server(local.settings)) as client:
        answer = await client.call_tool(
            "merge_agent_work", {"agent_name": "papi"}, raise_on_error=False
        )
        assert answer.structured_content["error"] == "bad_request"
        assert answer.structured_content["details"] == {"status": 400, "field": "yes"}
        assert not (local.project / "notes.txt").exists()
        done = await client.call_tool("merge_agent_work", {"agent_name": "papi", "yes": True})
        assert done.structured_content["files"] == ["notes.txt"]
        assert done.structured_content["commit"] == git(local.project, "rev-parse", "main")


async def test_the_command_line_shows_and_merges(local: LocalFleet) -> None:
    git(local.project, "branch", "other")
    command(local, "create", "papi", "--project", "demo", "--spec", "x", "--from", "other")
    await local.work("papi", "write notes.txt all is well")
    table = command(local, "diff", "papi", "--stat")
    assert "notes.txt" in table and "+1" in table
    assert "+all is well" in command(local, "diff", "papi")
    assert "merged into other" in command(local, "merge", "papi", "--yes")
    assert git(local.project, "show", "other:notes.txt") == "all is well"
    assert command(local, "open", "papi").strip() == str(local.tree("papi"))


def test_the_documented_first_session_can_be_repeated(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2] / "docs/fleet.md"
    session = page.read_text().split("## A first session")[1].split("```")[1]
    rows = session.removeprefix("console\n").strip().split("$ ")[1:]
    said = [row.rstrip("\n").split("\n", 1) for row in rows]
    work = home / "session"
    work.mkdir()
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    nobody = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    script = "set -e\n" + "\n".join(f"echo '$$'; {line}" for line, *_ in said)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=work,
        capture_output=True,
        text=True,
        env={**nobody, "PATH": programs},
    )
    assert done.returncode == 0, done.stderr
    answers = [part.strip() for part in done.stdout.split("$$\n")[1:]]
    assert answers == ["\n".join(rest).strip() for _, *rest in said]
