"""Imports and keeps among odd files, other processes and kills: all of it, or nothing."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.importing.importer import ImportRequest
from fleet_agentpack.deploy.keeping.keeper import KeepRequest
from fleet_agentpack.deploy.keeping.results import KeepData
from fleet_agentpack.deploy.module_entries import NewEntry
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.swap import Swap
from tests.deploy.existing import TOKEN, furnish
from tests.deploy.lab import COMMAND, Lab, files, tree
from tests.deploy.test_import import bring_in, modules, reason
from tests.rig import Stdio


class Killed(BaseException):
    """What a process does not survive."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """End the process at a step of the swap: nothing is undone, nothing is tidied up."""
    steps = 0
    put = Swap._put

    def die(self: Swap, *arguments: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            raise Killed
        put(self, *arguments)

    monkeypatch.setattr(Swap, "_put", die)
    monkeypatch.setattr(Swap, "_go_back", lambda *_: None)


def keep(lab: Lab) -> KeepData:
    return lab.service().keeper.run(KeepRequest(Request())).data


def edited(lab: Lab) -> list[str]:
    return [row.path for row in lab.status().drift if row.kind != "extra"]


def two_modules(lab: Lab) -> Path:
    """A file of two modules."""
    lab.instructions("a", "first\n")
    lab.instructions("b", "second\n")
    lab.deploy(target="codex")
    return lab.project / "AGENTS.md"


@pytest.mark.parametrize("step", [1, 3, 7])
def test_what_a_killed_import_left_is_finished_and_not_made_twice(
    step: int, tmp_path: Path
) -> None:
    lab = furnish(tmp_path, "claude_user")
    wanted = {row.path for row in bring_in(lab, dry_run=True).modules}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, step)
        bring_in(lab)
    bring_in(lab)
    manifest = yaml12.load(lab.repo.joinpath("agentpack.yaml").read_text())
    assert {row["source"]["local_path"]["path"] for row in manifest["modules"]} == wanted
    stray = [
        name
        for name in files(tree(lab.repo))
        if name not in ("agentpack.yaml", ".agentpack/pack-id")
        and not any(name.startswith(path) for path in wanted)
    ]
    assert stray == [] and lab.changes() == []


def test_an_apply_finishes_what_a_killed_keep_left(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    path = two_modules(lab)
    path.write_text(path.read_text().replace("first", "FIRST").replace("second", "SECOND"))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 2)
        keep(lab)
    sources = [lab.repo / f"modules/instructions/{name}/AGENTS.md" for name in "ab"]
    assert [source.read_text() for source in sources] == ["FIRST\n", "second\n"]
    assert any("cut short" in text for text in lab.service().plan(Request()).warnings)
    lab.deploy(target="codex")
    assert [source.read_text() for source in sources] == ["FIRST\n", "SECOND\n"]
    assert "SECOND" in path.read_text()


def test_of_two_imports_at_once_one_does_it(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user")
    ready, found = threading.Barrier(2, timeout=20), []

    def import_it() -> None:
        def confirm(*_: object) -> bool:
            ready.wait()
            return True

        found.append(lab.service().importer.run(ImportRequest(), confirm).data)

    threads = [threading.Thread(target=import_it) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(data.applied for data in found) == [False, True]
    assert lab.changes() == []


def test_modules_that_are_added_at_once_are_all_there(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.save()
    for number in range(6):
        lab.source(f"modules/p{number}.md", "x\n")

    def add(number: int) -> None:
        entry = NewEntry("prompt", f"local:modules/p{number}.md")
        lab.service().upkeep.add(Request(), entry)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    document = yaml12.load(lab.repo.joinpath("agentpack.yaml").read_text())
    assert {row["id"] for row in document["modules"]} == {f"prompt:p{n}" for n in range(6)}


def test_a_source_that_is_not_there_is_not_added(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.save()
    with pytest.raises(DeployError, match="does not exist"):
        lab.service().upkeep.add(Request(), NewEntry("prompt", "local:nowhere.md"))
    assert lab.changes() == []


def test_links_that_lead_in_a_circle(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.write("user/.claude/commands/ok.md", COMMAND.format(name="ok"))
    (lab.user / ".claude/commands/loop.md").symlink_to("loop.md")
    (lab.user / ".claude/skills").symlink_to("skills")
    data = bring_in(lab)
    assert set(modules(data)) == {"command:ok"}
    assert reason(data, "loop.md") == "a link to loop.md, which stays a link"


def test_blank_lines_that_belong_to_no_module_go(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    path = two_modules(lab)
    lab.deploy()
    text = path.read_text()
    path.write_text(f"\n{text}\n\n")
    assert edited(lab)
    done = keep(lab)
    assert done.applied and not done.kept and done.updated == [str(path)]
    assert path.read_text() == text and not edited(lab)


def test_an_editor_that_writes_other_line_ends(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    path = two_modules(lab)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert keep(lab).applied and not edited(lab)
    source = lab.repo / "modules/instructions/a/AGENTS.md"
    assert source.read_bytes() == b"first\r\n"


def test_a_section_that_is_gone_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    path = two_modules(lab)
    path.write_text(path.read_text().partition("\n\n---\n\n")[0])
    (conflict,) = keep(lab).conflicts
    assert "remove instructions:b" in conflict.reason


def test_what_a_new_link_leads_to_is_not_kept(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.instructions("base", "# Base\n")
    lab.deploy(target="codex")
    outside = lab.write("elsewhere/private.txt", "private\n")
    (lab.project / "AGENTS.md").unlink()
    (lab.project / "AGENTS.md").symlink_to(outside)
    done = keep(lab)
    assert not done.applied and "a link to" in done.conflicts[0].reason
    assert (lab.repo / "modules/instructions/base/AGENTS.md").read_text() == "# Base\n"


def test_a_token_that_was_typed_into_a_file_does_not_reach_the_pack(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.instructions("base", "# Base\n")
    lab.deploy(target="codex")
    (lab.project / "AGENTS.md").write_text(f"# Base\nuse {TOKEN}\n")
    done = keep(lab)
    assert not done.applied and "secret" in done.conflicts[0].reason
    assert TOKEN not in json.dumps([row.reason for row in done.conflicts])
    assert (lab.repo / "modules/instructions/base/AGENTS.md").read_text() == "# Base\n"


@pytest.mark.permissions
def test_what_cannot_be_read_is_listed(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.write("user/.claude/commands/ok.md", COMMAND.format(name="ok"))
    lab.write("user/.claude/commands/closed/in.md", COMMAND.format(name="in"))
    lab.write("user/.codex/prompts/in.md", "in\n")
    lab.write("user/.codex/config.toml", "model = 1\n", 0)
    for name in (".claude/commands/closed", ".codex/prompts"):
        (lab.user / name).chmod(0)
    data = bring_in(lab)
    assert set(modules(data)) == {"command:ok"} and lab.changes() == []
    for ending in ("commands/closed", ".codex/prompts", "config.toml"):
        assert reason(data, ending) == "it cannot be read"


@pytest.mark.permissions
def test_a_repo_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user")
    lab.save()
    before = tree(lab.repo)
    lab.repo.chmod(0o555)
    with pytest.raises(DeployError, match="Permission denied"):
        bring_in(lab)
    lab.repo.chmod(0o755)
    assert tree(lab.repo) == before


def test_an_agent_over_a_pipe_goes_from_nothing_to_a_kept_edit(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user", "whole_team_project", "gemini_user")
    before = lab.outside()
    with Stdio(cwd=lab.project, **lab.environ) as server:
        server.hello()

        def call(name: str, **arguments: Any) -> Any:
            return server.call(name, **arguments)["structuredContent"]

        error = call("plan")["errors"][0]
        assert error["details"]["next_actions"][0] == "import_config"
        assert any(word.strip("`(").startswith("/") for word in error["details"]["hint"].split())
        assert call("import_config")["errors"][0]["code"] == "E_CONFIRM_REQUIRED"
        assert not lab.repo.joinpath("agentpack.yaml").exists()
        assert call("import_config", dry_run=True)["data"]["modules"]
        assert call("import_config", yes=True)["data"]["applied"]
        assert call("plan")["data"]["changes"] == []
        assert call("deploy_apply", yes=True)["data"]["applied"]
        assert {path: lab.outside()[path] for path in before} == before
        (lab.project / "AGENTS.md").write_text("# Team\n- by hand\n")
        assert "keep_edits" in call("status")["data"]["next_actions"][0]
        assert call("keep_edits", yes=True)["data"]["applied"]
        assert call("status", only=["missing", "modified"])["data"]["drift"] == []
    assert server.bad_lines == []
