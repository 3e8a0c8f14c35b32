"""Odd paths: refused or handled, never escaped."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fleet_agentpack.deploy import desired
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request
from tests.deploy.lab import CODEX, SKILL, Lab, files, tree


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path, git=False)
    lab.targets = {"codex": {**CODEX, "scope": "user"}}
    return lab


def refusal(lab: Lab) -> DeployError:
    with pytest.raises(DeployError) as raised:
        lab.deploy()
    return raised.value


def test_spaces_unicode_and_quotes_in_names(lab: Lab) -> None:
    names = {"with space.md": "1", "ünï/cödé 🚀.md": "2", 'it\'s "quoted".md': "3", "-rf": "4"}
    lab.skill("odd names", names)
    first = lab.deploy().data.snapshot_id
    top = lab.user / ".codex/skills/odd names"
    assert {str(p.relative_to(top)): p.read_text() for p in top.rglob("*") if p.is_file()} == {
        **names,
        "SKILL.md": SKILL.format(name="odd names"),
    }
    assert lab.drift() == [] and lab.changes() == []
    lab.drop("skill:odd names")
    lab.deploy(allow_mass_delete=True)
    assert not top.exists()
    lab.service().rollback(first)
    assert (top / "ünï/cödé 🚀.md").read_text() == "2"


def test_the_longest_name_that_a_disk_takes(lab: Lab) -> None:
    lab.skill("long", {"x" * 255: "fits"})
    lab.deploy()
    assert (lab.user / ".codex/skills/long" / ("x" * 255)).read_text() == "fits"


def test_a_name_that_is_too_long_has_its_own_code(lab: Lab) -> None:
    lab.source("modules/skills/s/SKILL.md", SKILL.format(name="s"))
    lab.module("skill", "x" * 300, "modules/skills/s")
    error = refusal(lab)
    assert error.code == "E_IO_PATH_TOO_LONG"
    assert error.details["next_actions"] == ["shorten_path", "enable_long_paths", "retry_command"]
    assert files(tree(lab.user)) == {}


def test_what_is_below_a_link_that_leads_out_is_left_alone(lab: Lab) -> None:
    outside = lab.root / "outside"
    outside.mkdir()
    skills = lab.user / ".codex/skills"
    skills.mkdir(parents=True)
    (skills / "tidy").symlink_to(outside)
    lab.skill("tidy")
    lab.skill("other")
    for answer in (lab.deploy(), lab.service().status(Request())):
        (warning,) = answer.warnings
        assert str(skills / "tidy") in warning and "left alone" in warning
    assert list(outside.iterdir()) == [] and (skills / "other/SKILL.md").exists()
    manifest = json.loads((skills / ".agentpack.manifest.codex.json").read_text())
    assert [row["path"] for row in manifest["managed_files"]] == ["other/SKILL.md"]
    (skills / "tidy").unlink()
    (skills / "real").mkdir()
    (skills / "tidy").symlink_to(skills / "real")  # a link that stays inside is followed
    lab.deploy()
    assert (skills / "real/SKILL.md").exists()


def test_a_managed_directory_that_became_a_link_is_not_deleted_through(lab: Lab) -> None:
    lab.skill("tidy")
    lab.deploy()
    outside = lab.root / "outside"
    (lab.user / ".codex/skills/tidy").rename(outside)
    (lab.user / ".codex/skills/tidy").symlink_to(outside)
    lab.drop("skill:tidy")
    answer = lab.service().plan(Request())
    assert answer.data.changes == [] and "left alone" in answer.warnings[0]
    lab.deploy()
    assert (outside / "SKILL.md").exists()


def test_a_root_that_is_a_link_is_followed(lab: Lab) -> None:
    real = lab.root / "real"
    real.mkdir()
    (lab.user / ".codex").symlink_to(real)
    lab.skill("tidy")
    lab.deploy()
    assert (real / "skills/tidy/SKILL.md").exists()
    assert lab.drift() == []


def test_links_inside_a_module(lab: Lab) -> None:
    lab.skill("tidy", {"shared.txt": "shared\n"})
    module = lab.repo / "modules/skills/tidy"
    (module / "link.txt").symlink_to("shared.txt")
    lab.deploy()
    deployed = lab.user / ".codex/skills/tidy/link.txt"
    assert deployed.read_text() == "shared\n" and not deployed.is_symlink()
    secret = lab.write("user/.ssh/id_rsa", "secret")
    (module / "steal").symlink_to(secret)
    assert refusal(lab).code == "E_CONFIG_INVALID"
    (module / "steal").unlink()
    for broken in ("nowhere", "."):
        (module / "bad").symlink_to(broken)
        assert refusal(lab).details["reason_code"] == "module_source_unusable"
        (module / "bad").unlink()
    os.mkfifo(module / "pipe")
    assert refusal(lab).code in ("E_CONFIG_INVALID", "E_UNEXPECTED")


def test_a_name_that_is_not_utf8_is_refused(lab: Lab) -> None:
    lab.skill("tidy")
    bad = os.fsencode(lab.repo / "modules/skills/tidy") + b"/\xff.md"
    try:
        with open(bad, "wb") as stream:
            stream.write(b"x")
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    error = refusal(lab)
    assert error.code == "E_CONFIG_INVALID" and "UTF-8" in error.message


def test_names_that_differ_in_case_only(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.skill("tidy", {"a.md": "1", "A.md": "2"})
    if len(list((lab.repo / "modules/skills/tidy").iterdir())) < 3:
        pytest.skip("this file system ignores case")
    lab.deploy()
    assert lab.changes() == []
    monkeypatch.setattr(desired, "folds_names", lambda _directory: True)
    with pytest.raises(DeployError) as raised:
        lab.plan()
    assert raised.value.code == "E_DESIRED_STATE_CONFLICT"


@pytest.mark.permissions
def test_permission_denied_has_its_own_code(lab: Lab) -> None:
    lab.prompt("hello", "x\n")
    (lab.user / ".codex").mkdir()
    (lab.user / ".codex").chmod(0o500)
    error = refusal(lab)
    assert error.code == "E_IO_PERMISSION_DENIED"


def test_a_module_that_is_missing(lab: Lab) -> None:
    lab.module("skill", "ghost", "modules/ghost")
    error = refusal(lab)
    assert error.code == "E_UNEXPECTED" and "does not exist" in error.message


@pytest.mark.parametrize("repo", ["\x00", "nowhere", "/dev/null", "~"])
def test_repos_that_are_none(lab: Lab, repo: str) -> None:
    with pytest.raises(DeployError) as raised:
        lab.plan(repo=repo)
    assert raised.value.code in ("E_CONFIG_MISSING", "E_INVALID_ARGUMENTS")
