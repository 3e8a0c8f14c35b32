"""The files that the real programs write themselves, and a pack made from the home they are in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fleet_agentpack.deploy.importing.importer import ImportRequest
from fleet_agentpack.deploy.keeping.keeper import KeepRequest
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.uninstall import UninstallRequest
from tests.deploy.existing import TOKEN, furnish
from tests.deploy.lab import Lab

pytestmark = pytest.mark.clients

PROGRAMS = {
    "claude": ("mcp", "add", "--scope", "user", "notes", "--env", f"TOKEN={TOKEN}", "--", "true"),
    "codex": ("mcp", "add", "notes", "--env", f"TOKEN={TOKEN}", "--", "true"),
    "gemini": ("mcp", "add", "--scope", "user", "-e", f"TOKEN={TOKEN}", "notes", "true"),
}


def use(lab: Lab, program: str) -> None:
    """Let a program set itself up: it writes its own settings, caches and logs."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run(
        [program, *PROGRAMS[program]],
        cwd=lab.project,
        env={**lab.environ, "CI": "1"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_home_that_a_program_has_set_up(program: str, tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user", "codex_user", "same_for_both", "whole_team_project")
    lab.with_git = True  # the programs are on the real PATH
    (lab.user / ".codex/config.toml").unlink()
    use(lab, program)
    before = lab.outside()

    done = lab.service().importer.run(ImportRequest()).data
    assert done.applied and lab.outside() == before and lab.changes() == []
    assert any(row.what == "MCP server notes" for row in done.skipped)
    assert any(row.key.endswith("notes.env.TOKEN") for row in done.secrets)
    written = [path.read_bytes() for path in lab.repo.rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in data for data in written)

    lab.deploy()
    edited = lab.project / "AGENTS.md"
    edited.write_text("# Team\n\nAn edit.\n")
    assert lab.service().keeper.run(KeepRequest(Request())).data.applied
    assert not [row for row in lab.status().drift if row.kind != "extra"]

    lab.service().back.uninstall(UninstallRequest())
    after = lab.outside()
    assert edited.read_text() == "# Team\n\nAn edit.\n"
    assert {**after, "project/AGENTS.md": ()} == {**before, "project/AGENTS.md": ()}
