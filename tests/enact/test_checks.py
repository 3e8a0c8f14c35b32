"""The tool registry's part of `doctor --all`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.cli import run
from tests.enact.kit import add_tool, make_service, use_directory

STATS = "agentpack/csv/stats"


def look(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """The status, and the rows of this domain by their subject."""
    status = run(["doctor", "--all", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    return status, {each["subject"]: each for each in checks if each["area"] == "enact"}


def test_installed_tools_are_counted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_service(home).install(STATS)
    status, checks = look(capsys)
    assert status == 0
    assert checks["installed tools"]["state"] == "ok"
    assert checks["installed tools"]["detail"] == "1"


@pytest.mark.parametrize("file", ["stats.py", "enact.md", "new.py"])
def test_a_tool_whose_files_were_changed_is_a_problem(
    home: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    make_service(home).install(STATS)
    make_service(home).install("agentpack/json/query")
    with (home / ".enact/tools" / STATS / "1.0.0" / file).open("a") as stream:
        stream.write("#")
    status, checks = look(capsys)
    assert status == 1
    found = checks["installed tools"]
    assert found["state"] == "problem"
    assert STATS in found["detail"] and file in found["detail"]
    assert "json/query" not in found["detail"]
    assert f"fleet-agentpack tool install {STATS}" in found["advice"]


def test_a_tool_that_todays_policy_refuses_is_a_problem(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_tool(home / "registry", "alice/hello")
    use_directory(home, home / "registry")
    make_service(home).install("alice/hello")
    assert look(capsys)[0] == 0
    use_directory(home, home / "registry", policy="require_attestation")
    status, checks = look(capsys)
    assert (status, checks["installed tools"]["state"]) == (1, "problem")
    assert "alice/hello" in checks["installed tools"]["detail"]


@pytest.mark.parametrize("file", ["tools.json", "mcp.json"])
def test_a_list_of_tools_that_cannot_be_read_is_a_problem(
    home: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    make_service(home).install(STATS)
    (home / ".enact" / file).write_text("{")
    status, checks = look(capsys)
    assert status == 1
    assert checks["installed tools"]["state"] == "problem"
    assert file in checks["installed tools"]["detail"]


def test_a_misspelt_setting_is_a_problem(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".enact").mkdir()
    (home / ".enact" / "config.yaml").write_text("trust:\n  minimum_attestation: 2\n")
    status, checks = look(capsys)
    assert status == 1
    assert checks["configuration"]["detail"].endswith(
        "trust.minimum_attestation is not a known key; did you mean minimum_attestations?"
    )
    told = (checks["configuration"]["detail"],)
    service = make_service(home)
    assert service.installed().warnings == told
    assert service.search("json").warnings == told
    assert service.install(STATS).warnings == told
    assert run(["tool", "list"]) == 0
    assert told[0] in capsys.readouterr().err
