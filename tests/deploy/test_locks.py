"""The lockfile binds: what is pinned is what is deployed, and the network is asked by `update`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.deploy.lab import CODEX, SKILL, Lab
from tests.deploy.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A pack with one pinned skill from a git repository, deployed."""
    lab = Lab(tmp_path / "lab")
    lab.targets = {"codex": {**CODEX, "scope": "user"}}
    shell = Shell(lab)
    lab.git("init", "--quiet", "--initial-branch=main", str(remote(lab)), cwd=lab.root)
    commit(lab, "v1\n")
    lab.git("tag", "v1", cwd=remote(lab))
    use(lab)
    shell("update")
    shell("deploy", "--apply", "--yes")
    return shell


def remote(lab: Lab) -> Path:
    return lab.root / "remote"


def commit(lab: Lab, text: str) -> None:
    top = remote(lab)
    (top / "skill").mkdir(exist_ok=True)
    (top / "skill/SKILL.md").write_text(SKILL.format(name="remote"))
    (top / "skill/data.txt").write_text(text)
    lab.git("add", "-A", cwd=top)
    lab.git("commit", "--quiet", "-m", "change", cwd=top)


def use(lab: Lab, **more: str) -> None:
    lab.modules = []
    source = {"git": {"url": f"file://{remote(lab)}", "subdir": "skill", **more}}
    lab.module("skill", "remote", "", source=source)


def deployed(lab: Lab) -> str:
    return (lab.user / ".codex/skills/remote/data.txt").read_text()


def test_a_changed_checkout_is_never_deployed(shell: Shell) -> None:
    lab = shell.lab
    (found,) = (lab.home_dir / "cache/git").rglob("data.txt")
    found.write_text("tampered\n")
    for words in (("plan",), ("status",), ("deploy", "--apply", "--yes")):
        error = shell.refusal(*words)
        assert error["details"]["reason_code"] == "store_content_mismatch"
        assert "fleet-agentpack update" in error["details"]["hint"]
    assert deployed(lab) == "v1\n"
    shell("update")
    assert found.read_text() == "v1\n"
    shell("plan", "--check")
    (found.parent / "extra.txt").write_text("one more\n")
    assert shell.refusal("plan")["details"]["reason_code"] == "store_content_mismatch"


@pytest.mark.parametrize("changed", ["ref", "commit", "url", "subdir"])
def test_a_lock_that_does_not_fit_says_update(shell: Shell, changed: str) -> None:
    lab = shell.lab
    commit(lab, "v2\n")
    moved = shutil.copytree(remote(lab), lab.root / "moved")
    lab.git("branch", "next", cwd=remote(lab))
    head = lab.git("rev-parse", "HEAD", cwd=remote(lab))
    values = {"ref": "next", "commit": head, "url": f"file://{moved}", "subdir": ""}
    use(lab, **{"ref" if changed == "commit" else changed: values[changed]})
    error = shell.refusal("plan")
    assert error["code"] == "E_LOCKFILE_OUTDATED"
    assert error["details"]["next_actions"] == ["run_update", "retry_command"]
    assert "fleet-agentpack update" in error["message"]
    if changed == "subdir":
        return
    shell("update")
    shell("deploy", "--apply", "--yes")
    assert deployed(lab) == "v2\n"


def test_update_pins_what_is_new_and_moves_nothing_else(shell: Shell) -> None:
    lab = shell.lab
    before = json.loads((lab.repo / "agentpack.lock.json").read_text())["modules"]
    commit(lab, "v2\n")
    lab.git("branch", "next", cwd=remote(lab))
    source = {"git": {"url": f"file://{remote(lab)}", "subdir": "skill", "ref": "next"}}
    lab.module("skill", "second", "", source=source)
    error = shell.refusal("plan")
    assert error["details"]["reason_code"] == "module_not_fetched"
    assert "fleet-agentpack update" in error["details"]["hint"]
    steps = shell.json("update", "--yes")["data"]["steps"]
    assert [step["name"] for step in steps] == ["lock", "fetch"]
    after = json.loads((lab.repo / "agentpack.lock.json").read_text())["modules"]
    assert after[0] == before[0] and after[1]["resolved_version"] != before[0]["resolved_version"]
    shell("deploy", "--apply", "--yes")
    assert deployed(lab) == "v1\n"
    assert (lab.user / ".codex/skills/second/data.txt").read_text() == "v2\n"


@pytest.mark.parametrize("ref", ["main", "v1"])
def test_what_is_not_pinned_stays_as_it_was_fetched(shell: Shell, ref: str) -> None:
    lab = shell.lab
    use(lab, ref=ref)
    shell("update")
    (lab.repo / "agentpack.lock.json").unlink()
    commit(lab, "v2\n")
    remote(lab).rename(lab.root / "offline")
    for words in (("plan", "--check"), ("status", "--check")):
        (warning,) = shell.json(*words)["warnings"]
        assert warning.startswith("unpinned: skill:remote;") and "update" in warning
    (lab.root / "offline").rename(remote(lab))
    shell("update")
    shell("deploy", "--apply", "--yes")
    assert deployed(lab) == ("v2\n" if ref == "main" else "v1\n")
