"""Plan, apply and status: journeys of a user, and what beyond the original must hold."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import DriftCounts
from fleet_agentpack.deploy.service import DeployService
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.results import UNKNOWN, jsonable
from fleet_agentpack.kit.stamps import Remembered
from tests.deploy.lab import CODEX, Lab, files, tree


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.furnish()
    return lab


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refusal(act: Any, *arguments: Any, **options: Any) -> DeployError:
    with pytest.raises(DeployError) as raised:
        act(*arguments, **options)
    return raised.value


def test_plan_payload(lab: Lab) -> None:
    lab.targets = {"codex": CODEX}
    lab.modules = [row for row in lab.modules if row["type"] == "prompt"]
    lab.save()
    answer = lab.service().plan(Request())
    path = str(lab.user / ".codex/prompts/hello.md")
    assert list(jsonable(answer)) == [
        "schema_version",
        "ok",
        "command",
        "command_id",
        "command_path",
        "version",
        "data",
        "warnings",
        "errors",
    ]
    assert jsonable(answer.data) == {
        "changes": [
            {
                "after_sha256": hashlib.sha256(b"Say hello.\n").hexdigest(),
                "before_sha256": None,
                "layer": "upstream",
                "module_ids": ["prompt:hello"],
                "op": "create",
                "path": path,
                "path_posix": path,
                "reason": "file missing",
                "target": "codex",
            }
        ],
        "plan_id": answer.data.plan_id,
        "profile": "default",
        "summary": {"create": 1, "delete": 0, "update": 0},
        "targets": ["codex"],
    }
    diff = lab.service().diff(Request())
    assert diff.command == "diff" and replace(diff.data, text=UNKNOWN) == answer.data
    assert diff.data.text.endswith("@@ -0,0 +1 @@\n+Say hello.\n")


def test_reading_writes_nothing_but_our_cache(lab: Lab) -> None:
    lab.deploy()
    before = tree(lab.root)
    service = lab.service()
    for act in (service.plan, service.diff, service.status, service.doctor):
        act(Request())
    service.deploy(Request(dry_run=True))
    service.snapshots()
    after = {name: entry for name, entry in tree(lab.root).items() if not name.startswith("cache")}
    assert after == {k: v for k, v in before.items() if not k.startswith("cache")}


def test_a_second_apply_leaves_everything_as_it_is(lab: Lab) -> None:
    lab.deploy()
    before = tree(lab.home_dir), lab.outside()
    data = lab.deploy().data
    assert (data.applied, data.reason, data.changes) == (False, "no_changes", [])
    assert (tree(lab.home_dir), lab.outside()) == before


def test_modes_of_new_and_updated_files(lab: Lab) -> None:
    before = os.umask(0o022)
    try:
        lab.deploy()
        prompt = lab.user / ".codex/prompts/hello.md"
        script = lab.user / ".codex/skills/tidy/scripts/run.sh"
        assert (mode(prompt), mode(script)) == (0o644, 0o755)
        prompt.chmod(0o640)
        script.chmod(0o700)
        lab.source("modules/prompts/hello.md", "two\n")
        lab.source("modules/skills/tidy/scripts/run.sh", "#!/bin/sh\necho two\n")
        lab.deploy()
        assert (mode(prompt), mode(script)) == (0o640, 0o700)
        assert prompt.read_text() == "two\n"
        script.chmod(0o644)
        (row,) = lab.plan().changes
        assert (row.op, row.reason) == ("update", "executable bit differs")
        lab.deploy()
        assert mode(script) == 0o755
        assert lab.changes() == []
    finally:
        os.umask(before)


def test_a_new_file_respects_the_umask(lab: Lab) -> None:
    before = os.umask(0o077)
    try:
        lab.deploy()
        assert mode(lab.user / ".codex/prompts/hello.md") == 0o600
        assert mode(lab.user / ".codex/skills/tidy/scripts/run.sh") == 0o700
    finally:
        os.umask(before)


def test_adopting_an_unmanaged_file(lab: Lab) -> None:
    mine = lab.write("user/.codex/prompts/hello.md", "mine\n")
    before = tree(lab.root)
    error = refusal(lab.deploy)
    assert error.code == "E_ADOPT_CONFIRM_REQUIRED"
    assert error.details["flag"] == "--adopt" and error.details["adopt_updates"] == 1
    assert error.details["sample_paths"] == [str(mine)]
    assert error.details["next_actions"] == ["retry_with_adopt"]
    unchanged = {k: v for k, v in tree(lab.root).items() if not k.startswith("cache")}
    assert unchanged == before  # not even a lock file
    dry = lab.service().deploy(Request(dry_run=True))
    assert dry.ok and any("adopt" in text for text in dry.warnings)
    (row,) = [row for row in lab.plan().changes if row.op == "update"]
    assert row.update_kind == "adopt_update"
    assert row.reason == "would overwrite unmanaged existing file"
    lab.deploy(adopt=True)
    assert mine.read_text() == "Say hello.\n"
    lab.source("modules/prompts/hello.md", "next\n")
    (row, _) = lab.plan().changes
    assert row.update_kind == "managed_update" and row.reason == "content differs"
    lab.deploy()


def test_an_identical_unmanaged_file_needs_adoption_once_the_pack_moves(lab: Lab) -> None:
    lab.write("user/.codex/prompts/hello.md", "Say hello.\n")
    lab.deploy()
    lab.source("modules/prompts/hello.md", "next\n")
    with pytest.raises(DeployError, match="not managed"):
        lab.deploy()
    lab.deploy(adopt=True)


def test_a_hand_edit_that_is_overwritten_is_kept_and_named(lab: Lab) -> None:
    lab.deploy()
    path = lab.write("user/.codex/prompts/hello.md", "my precious edit\n")
    answer = lab.deploy(adopt=True)
    (warning,) = answer.warnings
    assert str(path) in warning
    kept = Path(warning.rpartition(" ")[2])
    assert kept.read_text() == "my precious edit\n"
    assert path.read_text() == "Say hello.\n"


def test_only_managed_files_are_deleted(lab: Lab) -> None:
    lab.deploy()
    mine = lab.write("user/.codex/prompts/mine.md", "mine\n")
    lab.drop("prompt:hello")
    assert lab.changes() == [
        ("delete", "codex", "user/.codex/prompts/hello.md"),
        ("delete", "vscode", "project/.github/prompts/hello.prompt.md"),
    ]
    lab.deploy()
    assert mine.exists() and not (lab.user / ".codex/prompts/hello.md").exists()


def test_the_first_run_in_another_project_deletes_nothing_of_the_first(lab: Lab) -> None:
    lab.targets = {"cursor": lab.targets["cursor"], "codex": {**CODEX, "scope": "project"}}
    lab.save()
    lab.deploy()
    first = files(tree(lab.project))
    other = lab.root / "other"
    other.mkdir()
    answer = lab.service(other).deploy(Request())
    assert answer.data.summary.delete == 0 and answer.warnings == ()
    assert files(tree(lab.project)) == first
    lab.drop("instructions:base")
    inside = lab.project / "nested"  # a project inside the first one, without manifests of its own
    inside.mkdir()
    lab.git("init", "--quiet", cwd=inside)
    assert lab.service(inside).plan(Request()).data.summary.delete == 0


def test_a_moved_root_is_left_alone_and_named(lab: Lab) -> None:
    lab.targets = {"codex": {"mode": "files", "scope": "user", "options": {}}}
    lab.save()
    lab.deploy()
    before = files(tree(lab.user))
    lab.targets["codex"]["options"] = {"codex_home": str(lab.root / "moved")}
    lab.save()
    answer = lab.deploy()
    assert answer.data.summary.delete == 0
    assert files(tree(lab.user)) == before
    named = [text for text in answer.warnings if "left behind" in text]
    assert any(str(lab.user / ".codex") in text for text in named)


def test_a_narrowed_scope_is_left_alone_and_named(lab: Lab) -> None:
    lab.deploy()
    before = files(tree(lab.user))
    lab.targets["codex"] = {**CODEX, "scope": "project"}
    lab.save()
    answer = lab.service().plan(Request())
    assert answer.data.changes == []
    assert any("left behind" in text and "/.codex" in text for text in answer.warnings)
    assert files(tree(lab.user)) == before


def test_a_corrupt_manifest_is_repaired_by_the_next_apply(lab: Lab) -> None:
    lab.deploy()
    manifest = lab.user / ".codex/prompts/.agentpack.manifest.codex.json"
    for text in ("{", "[]", '{"schema_version": 999}', "", '{"schema_version":1,"tool":"zed"}'):
        manifest.write_text(text)
        assert lab.drift() == []
        warnings = lab.service().status(Request()).warnings
        assert any(str(manifest) in text for text in warnings)
        if "999" in text:
            manifest.write_text('{"schema_version": 999, "managed_files": []}')
            warnings = lab.service().plan(Request()).warnings
            assert any("unsupported schema_version" in text for text in warnings)
        assert lab.deploy().data.applied
        assert lab.service().status(Request()).warnings == ()
    lab.drop("prompt:hello")
    manifest.unlink()
    assert ("delete", "codex", "user/.codex/prompts/hello.md") in lab.changes()


def test_a_manifest_entry_that_leads_out_is_skipped(lab: Lab) -> None:
    lab.deploy()
    lab.write("user/precious", "x")
    manifest = lab.user / ".codex/.agentpack.manifest.codex.json"
    document = json.loads(manifest.read_text())
    for path in ("../precious", "/etc/passwd", "a/../../precious"):
        document["managed_files"].append({"path": path, "sha256": "0" * 64})
    manifest.write_text(json.dumps(document))
    assert lab.changes() == []
    assert sum("not a safe path" in text for text in lab.service().plan(Request()).warnings) == 3


def test_the_legacy_manifest_name_is_read_with_a_warning(lab: Lab) -> None:
    lab.deploy()
    new = lab.user / ".codex/prompts/.agentpack.manifest.codex.json"
    old = new.rename(new.with_name(".agentpack.manifest.json"))
    assert lab.drift() == []
    assert any(str(old) in text for text in lab.service().status(Request()).warnings)
    lab.drop("prompt:hello")
    assert ("delete", "codex", "user/.codex/prompts/hello.md") in lab.changes()


def test_status_tells_missing_modified_and_extra_apart(lab: Lab) -> None:
    before = lab.service().status(Request())
    assert before.data.summary.missing == 16
    assert "deploy_apply with yes: true" in jsonable(before.data.next_actions)
    lab.deploy()
    assert lab.status().next_actions is UNKNOWN
    (lab.user / ".codex/AGENTS.md").unlink()
    lab.write("user/.codex/prompts/hello.md", "edited\n")
    lab.write("user/.codex/skills/a/y", "1")
    lab.write("user/.codex/skills/a-b/y", "2")
    lab.write("user/.codex/skills/.git/config", "not looked at")
    lab.write("user/.codex/other.md", "not scanned")
    lab.skill("fresh")
    found = lab.drift(target="codex")
    assert found == [
        ("missing", "project/.codex/skills/fresh/SKILL.md"),
        ("missing", "user/.codex/AGENTS.md"),
        ("modified", "user/.codex/prompts/hello.md"),
        ("missing", "user/.codex/skills/fresh/SKILL.md"),
        ("extra", "user/.codex/skills/a/y"),
        ("extra", "user/.codex/skills/a-b/y"),
    ]
    data = lab.status(target="codex", only=("extra",))
    assert data.summary == DriftCounts(extra=2, missing=0, modified=0)
    assert data.summary_total == DriftCounts(extra=2, missing=3, modified=1)
    assert [row.summary.extra for row in data.summary_by_root] == [2]
    actions = [row.action for row in data.next_actions_detailed]
    assert actions == ["keep_edits", "diff", "deploy_apply"]
    assert jsonable(data.next_actions)[1] == 'diff with target: "codex"'


def test_two_applies_at_once_wait_for_each_other(lab: Lab) -> None:
    (lab.home_dir / "state").mkdir(parents=True)
    with file_lock(lab.home().lock):
        error = refusal(lab.service(lock_timeout_s=0.2).deploy, Request())
        assert error.code == "E_BUSY" and error.details["next_actions"] == ["wait", "retry_command"]
        assert files(lab.outside()) == {}
    answers: list[dict[str, Any]] = []
    services = [lab.service() for _ in range(4)]
    threads = [
        threading.Thread(target=lambda s=service: answers.append(s.deploy(Request())))
        for service in services
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.data.applied for answer in answers) == [False, False, False, True]
    assert lab.drift() == []


def test_a_file_that_changes_during_the_apply_makes_it_go_back(lab: Lab) -> None:
    lab.deploy()
    lab.source("modules/prompts/hello.md", "next\n")
    lab.source("modules/instructions/base/AGENTS.md", "next\n")
    before = files(lab.outside())
    touched = lab.project / ".github/prompts/hello.prompt.md"

    calls: list[float] = []

    def report(done: float, total: float | None, text: str) -> None:
        calls.append(done)
        if text.startswith("writing"):
            touched.write_text("somebody else\n")

    error = refusal(lab.service().deploy, Request(), report)
    assert error.details["reason_code"] == "changed_meanwhile"
    touched.write_text("Say hello.\n")
    assert files(lab.outside()) == before
    assert calls == sorted(calls)


def test_a_file_that_changes_after_the_plan_was_shown_stops_the_apply(lab: Lab) -> None:
    lab.deploy()
    lab.source("modules/prompts/hello.md", "next\n")
    touched = lab.project / ".github/prompts/hello.prompt.md"

    def confirm(_plan: object) -> bool:
        touched.write_text("somebody else\n")
        return True

    error = refusal(lambda: lab.service().deploy(Request(), confirm=confirm))
    assert error.details["reason_code"] == "changed_meanwhile"
    assert touched.read_text() == "somebody else\n"


def test_a_cancelled_apply_goes_back(lab: Lab) -> None:
    class Cancelled(Exception):
        pass

    def report(_done: float, _total: float | None, text: str) -> None:
        if text.startswith("writing"):
            raise Cancelled

    with pytest.raises(Cancelled):
        lab.service().deploy(Request(), report)
    assert files(lab.outside()) == {}
    assert not any((lab.home_dir / "state/snapshots").glob("*"))
    lab.deploy()


def test_what_stands_in_the_way(lab: Lab) -> None:
    (lab.user / ".codex/prompts/hello.md").mkdir(parents=True)
    error = refusal(lab.plan)
    assert error.code == "E_UNEXPECTED" and error.details["reason_code"] == "not_a_file"
    (lab.user / ".codex/prompts/hello.md").rmdir()
    (lab.user / ".codex/prompts").rmdir()
    (lab.user / ".codex/prompts").write_text("a file")
    error = refusal(lab.plan)
    assert error.details["reason_code"] == "not_a_directory"
    row = next(
        row
        for row in lab.service().doctor(Request()).data.roots
        if row.root.endswith("prompts") and row.target == "codex"
    )
    assert (row.exists, row.writable, row.issues, row.suggestion) == (
        True,
        False,
        ["not_a_directory"],
        None,
    )


def test_a_link_to_the_desired_bytes_is_clean_and_an_adopt_replaces_it(lab: Lab) -> None:
    target = lab.write("user/dotfiles/hello.md", "Say hello.\n")
    link = lab.user / ".codex/prompts/hello.md"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    lab.deploy()
    assert link.is_symlink()
    lab.source("modules/prompts/hello.md", "next\n")
    lab.deploy(adopt=True)
    assert not link.is_symlink() and link.read_text() == "next\n"
    assert target.read_text() == "Say hello.\n"


def test_doctor(lab: Lab) -> None:
    data = lab.service().doctor(Request()).data
    assert data.machine_id == "test-machine" and data.gitignore_fixes == []
    missing = [row for row in data.roots if row.issues == ["missing"]]
    assert missing[0].suggestion == f"create directory: mkdir -p {missing[0].root}"
    assert f"mkdir -p {missing[0].root}" in jsonable(data.next_actions)
    lab.deploy()
    lab.write("project/.gitignore", "node_modules", 0o644)
    answer = lab.service().doctor(Request())
    assert any(".agentpack.manifest*.json" in text for text in answer.warnings)
    assert jsonable(answer.data.next_actions) == ["fleet-agentpack doctor --fix"]
    fixed = lab.service().doctor(Request(), fix=True)
    assert fixed.command_id == "doctor --fix"
    assert [row.updated for row in fixed.data.gitignore_fixes] == [True]
    ignore = lab.project / ".gitignore"
    assert ignore.read_text() == "node_modules\n.agentpack.manifest*.json\n"
    assert mode(ignore) == 0o644
    again = lab.service().doctor(Request(), fix=True)
    assert again.data.gitignore_fixes == [] and again.warnings == ()


def test_a_target_that_is_not_configured(lab: Lab) -> None:
    lab.targets = {"codex": CODEX}
    lab.save()
    error = refusal(lab.plan, target="cursor")
    assert error.code == "E_CONFIG_INVALID" and error.details["target"] == "cursor"
    error = refusal(lab.plan, target="mars")
    assert error.code == "E_TARGET_UNSUPPORTED"
    assert error.details["allowed"][0] == "all"


def test_environment_and_identities(lab: Lab) -> None:
    from fleet_agentpack.deploy.home import Home, machine_id, normal_machine
    from fleet_agentpack.deploy.project import find_project

    assert find_project(lab.home(), Remembered()).id == "ae2752b5775071e2"
    for given, expected in {
        "My-MacBook.local": "my-macbook-local",
        "a--b": "a--b",
        "a-.b": "a-b",
        "a.-b": "a--b",
        "  Ünï.Box__1 ": "n-box__1",
        "...": "",
    }.items():
        assert normal_machine(given) == expected
    assert machine_id(lab.home(), "My Box") == "my-box"
    assert machine_id(lab.home(), "...") == "test-machine"
    nameless = replace(lab.home(), environ={})
    assert machine_id(nameless) == normal_machine(socket.gethostname())
    user, cwd = Path("/home/me"), Path("/work")
    places = {None: "/home/me/.agentpack", "~/x": "/home/me/x", "/abs": "/abs", "rel": "/work/rel"}
    for value, expected in places.items():
        environ = {} if value is None else {"AGENTPACK_HOME": value}
        assert str(Home.of(environ, user, cwd, cwd).root) == expected


def test_a_users_home_is_no_project(lab: Lab) -> None:
    answer = lab.service(lab.user).deploy(Request())
    paths = [row.path for row in answer.data.changes]
    assert str(lab.user / ".codex/skills/tidy/SKILL.md") in paths
    assert not (lab.user / "AGENTS.md").exists() and not (lab.user / ".cursor").exists()
    (warning,) = answer.warnings
    assert "there is no project" in warning and "--project DIR" in warning
    service = lab.service(lab.user)
    assert service.plan(Request()).data.changes == []
    assert service.status(Request()).data.drift == []


def test_what_was_only_staged_is_thrown_away_by_the_next_apply(lab: Lab) -> None:
    rubbish = lab.write("agentpack/state/staging/123/state/codex/abc", "half")
    lab.deploy()
    assert not rubbish.exists()


def test_a_git_pointer_file_is_not_deployed(lab: Lab) -> None:
    lab.source("modules/skills/tidy/.git", "gitdir: elsewhere\n")
    assert not [path for _, _, path in lab.changes() if path.endswith(".git")]


@pytest.mark.parametrize(("asked", "durable"), [(" Yes ", True), ("0", False), ("", False)])
def test_writes_survive_a_power_cut_when_asked_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, asked: str, durable: bool
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("needs /proc to tell which file was synced")
    monkeypatch.setattr(os, "fsync", noted)
    service = DeployService(lab.home(AGENTPACK_FSYNC=asked))
    snapshot = service.deploy(Request()).data.snapshot_id
    assert lab.drift() == []
    written = {str(path) for path in lab.user.rglob("*") if path.is_file()}
    if not durable:
        assert synced == []
        return
    folders = {os.path.dirname(path) for path in written}
    assert folders <= set(synced), "the names"
    contents = [path for path in synced if "/.agentpack-tmp-" in path]
    assert len(contents) >= len(written), "the bytes, before each got its name"
    assert str(lab.home_dir / "state") in synced, "the journal"
    before = len(synced)
    service.rollback(str(snapshot))
    assert len(synced) > before
