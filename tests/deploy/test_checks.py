"""The deploy engine's part of `doctor --all`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_agentpack.deploy.checks import checks
from fleet_agentpack.kit.checks import Check
from fleet_agentpack.settings import Settings
from tests.deploy.lab import CODEX, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def found(lab: Lab) -> list[Check]:
    return list(checks(Settings.read(lab.environ, lab.project)))


def test_a_missing_config_repo_is_a_note(lab: Lab) -> None:
    (check,) = found(lab)
    assert (check.subject, check.state) == ("config repo", "note")
    assert check.advice == "fleet-agentpack init"


def test_a_broken_config_repo_is_a_problem(lab: Lab) -> None:
    lab.source("agentpack.yaml", "version: 7\n")
    (check,) = found(lab)
    assert (check.state, check.advice) == ("problem", "correct that file")
    assert "version 7" in check.detail


def test_roots_and_warnings(lab: Lab) -> None:
    lab.targets = {"codex": {**CODEX, "scope": "project"}}
    lab.instructions("base", "# Base\n")
    skills = lab.project / ".codex/skills"
    machine, root, missing, warning = found(lab)
    assert (machine.subject, machine.detail) == ("machine id", "test-machine")
    assert root == Check("agentpack", "codex root", "ok", str(lab.project))
    assert missing.detail == f"{skills}: missing"
    assert (missing.state, missing.advice) == ("note", f"create directory: mkdir -p {skills}")
    assert warning.state == "note" and ".agentpack.manifest*.json" in warning.detail
