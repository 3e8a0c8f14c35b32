"""`doctor --all` through the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack import cli
from fleet_agentpack.doctor.checks import CHECKS
from tests.rig import run

Checks = dict[tuple[str, str], dict[str, Any]]
Look = Callable[[], tuple[int, Checks]]


def found(output: str) -> Checks:
    return {(check["area"], check["subject"]): check for check in json.loads(output)["checks"]}


@pytest.fixture
def look(capsys: pytest.CaptureFixture[str]) -> Look:
    def run() -> tuple[int, Checks]:
        capsys.readouterr()
        status = cli.run(["doctor", "--all", "--json"])
        captured = capsys.readouterr()
        assert captured.err == ""
        return status, found(captured.out)

    return run


def test_an_empty_home_has_no_problem_and_every_note_says_what_to_do(home: Path) -> None:
    done = run("doctor", "--all", "--json", status=0)
    assert done.stderr == ""
    checks = found(done.stdout)
    assert {area for area, _ in checks} == {
        "package",
        "agentpack",
        "fleet",
        "enact",
        "forge",
        "climpt",
    }
    assert not [check for check in checks.values() if check["state"] == "problem"]
    assert all(check["advice"] for check in checks.values() if check["state"] == "note")
    assert checks["agentpack", "config repo"]["advice"] == "fleet-agentpack init"


def test_what_is_broken_is_named_and_the_status_says_so(
    home: Path, work: Path, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".enact").mkdir()
    (home / ".enact/config.yaml").write_text("trust:\n  policy: sometimes\n")
    (work / ".agent/climpt").mkdir(parents=True)
    (work / ".agent/climpt/registry.json").write_text("{")
    (work / "config.toml").write_text('[fleet]\nprogramme = "x"\n')
    monkeypatch.setenv("FLEET_AGENTPACK_CONFIG", str(work / "config.toml"))
    monkeypatch.setenv("CODER_URL", "http://127.0.0.1:1")
    status, checks = look()
    assert status == 1
    broken = {key for key, check in checks.items() if check["state"] == "problem"}
    assert broken == {
        ("package", "configuration"),
        ("fleet", "engine"),
        ("enact", "configuration"),
        ("climpt", "registry"),
    }
    assert all(check["advice"] for check in checks.values() if check["state"] == "problem")
    assert checks["climpt", "registry"]["advice"] == "correct that file"
    assert "CODER_SESSION_TOKEN" in checks["fleet", "engine"]["detail"]
    assert "sometimes" in checks["enact", "configuration"]["detail"]


@pytest.mark.parametrize("text", ["[[", "fleet = 1\n[climpt]\n"])
def test_a_configuration_that_cannot_be_read_hides_nothing_else(
    work: Path, look: Look, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "config.toml").write_text(text)
    monkeypatch.setenv("FLEET_AGENTPACK_CONFIG", str(work / "config.toml"))
    status, checks = look()
    assert status == 1
    assert {area for area, _ in checks} >= {"package", "agentpack", "fleet", "enact", "forge"}
    broken = [check for check in checks.values() if check["state"] == "problem"]
    assert broken
    assert all(str(work / "config.toml") in check["detail"] for check in broken)
    assert all(check["advice"].startswith(("correct", "fix")) for check in broken)


def test_a_config_repo_that_is_not_valid_is_not_to_be_made_anew(home: Path, look: Look) -> None:
    (home / ".agentpack/repo").mkdir(parents=True)
    (home / ".agentpack/repo/agentpack.yaml").write_text("a: [")
    status, checks = look()
    assert status == 1
    assert checks["agentpack", "config repo"]["state"] == "problem"
    assert "init" not in checks["agentpack", "config repo"]["advice"]


def test_files_in_the_place_of_directories_are_lines_of_the_report(home: Path, look: Look) -> None:
    (home / ".enact").write_text("")
    (home / ".local/share").mkdir(parents=True)
    (home / ".local/share/fleet-agentpack").write_text("")
    status, checks = look()
    assert status == 1
    assert str(home / ".enact") in checks["enact", "store"]["advice"]
    assert checks["package", "data directory"]["state"] == "problem"
    assert ("climpt", "registry") in checks
    assert all(check["advice"] for check in checks.values() if check["state"] == "problem")


def test_what_is_there_is_counted(work: Path, look: Look) -> None:
    for words in (["init"], ["climpt", "init"], ["forge", "init"]):
        assert cli.run(words) == 0
    status, checks = look()
    assert status == 0
    assert checks["climpt", "registry"]["detail"] == "7 commands"
    assert ("agentpack", "machine id") in checks
    assert ".fractary" in checks["forge", "configuration"]["detail"]


@pytest.mark.permissions
def test_a_directory_that_cannot_be_written_is_a_problem(home: Path, look: Look) -> None:
    (home / ".cache").mkdir(mode=0o500)
    status, checks = look()
    assert status == 1
    assert checks["package", "cache directory"]["state"] == "problem"


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["doctor", "--all"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["AREA", "WHAT", "FOUND"]
    assert "→ fleet-agentpack init" in out
    assert out.splitlines()[-1].startswith("Nothing is broken; • is optional")


def test_a_room_that_does_not_import_hides_none_of_the_others(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHECKS, "fleet", "fleet_agentpack.no_such_room")
    status, checks = look()
    assert status == 1
    assert "no_such_room" in checks["fleet", "files"]["detail"]
    assert {area for area, _ in checks} >= {"agentpack", "enact", "forge", "climpt"}
