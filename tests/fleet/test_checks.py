"""What `doctor --all` says about the fleet."""

from __future__ import annotations

import pytest

from fleet_agentpack.fleet.checks import checks
from fleet_agentpack.settings import Settings
from tests.cassette import Cassette
from tests.fleet.local_fleet import CONFIG, LocalFleet
from tests.fleet.stage import CASSETTES, HOST, TOKEN


def found(settings: Settings) -> dict[str, tuple[str, str]]:
    return {check.subject: (check.state, check.detail) for check in checks(settings)}


def configured(local: LocalFleet, config: str) -> Settings:
    assert local.settings.config_path
    local.settings.config_path.write_text(config)
    return Settings.read()


def test_a_working_fleet_is_ok(local: LocalFleet) -> None:
    rows = found(local.settings)
    assert rows["engine"] == ("ok", "local, on this machine; 0 agents")
    assert rows["projects"] == ("ok", "demo")
    assert rows["agent program"][0] == "ok" and rows["agent program"][1].startswith("scripted: /")


@pytest.mark.parametrize(
    ("program", "state", "words"),
    [("codex", "note", "codex is not installed"), ("nope", "problem", "not a known program")],
)
def test_a_program_that_cannot_run_is_named(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch, program: str, state: str, words: str
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    rows = found(configured(local, f'[fleet]\nprogram = "{program}"\n'))
    assert rows["agent program"][0] == state and words in rows["agent program"][1]


def test_a_setting_that_cannot_be_used_is_a_problem(local: LocalFleet) -> None:
    rows = found(configured(local, CONFIG.replace("[fleet]", '[fleet]\nengine = "cloud"')))
    assert rows["engine"][0] == "problem" and "'coder' or 'local'" in rows["engine"][1]


def test_coder_is_named_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODER_URL", HOST)
    monkeypatch.setenv("CODER_SESSION_TOKEN", TOKEN)
    names = ("empty_fleet", "projects")
    with Cassette.load(*(CASSETTES / f"{name}.yaml" for name in names)).replay():
        rows = found(Settings.read())
    assert rows["engine"] == ("ok", f"coder, on {HOST}; 0 agents")
    assert "setup-devcontainer" in rows["projects"][1] and "agent program" not in rows
