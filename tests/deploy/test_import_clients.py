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
from tests.fleet.lab.script_model import script_model

pytestmark = pytest.mark.clients

PROGRAMS = {
    "claude": ("mcp", "add", "--scope", "user", "notes", "--env", f"TOKEN={TOKEN}", "--", "true"),
    "codex": ("mcp", "add", "notes", "--env", f"TOKEN={TOKEN}", "--", "true"),
    "gemini": ("mcp", "add", "--scope", "user", "-e", f"TOKEN={TOKEN}", "notes", "true"),
}


TASKS = {
    "claude": ("-p", "make the files", "--permission-mode", "bypassPermissions"),
    "codex": ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "make the files"),
}


def use(lab: Lab, program: str, *words: str, **variables: str) -> None:
    """Let a program set itself up, or work: it writes its own settings, caches and logs."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run(
        [program, *(words or PROGRAMS[program])],
        cwd=lab.project,
        env={**lab.environ, "CI": "1", **variables},
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
    assert lab.status().drift == []

    lab.service().back.uninstall(UninstallRequest())
    after = lab.outside()
    assert edited.read_text() == "# Team\n\nAn edit.\n"
    assert {**after, "project/AGENTS.md": ()} == {**before, "project/AGENTS.md": ()}


@pytest.mark.parametrize("program", TASKS)
def test_a_home_and_a_project_that_a_program_has_worked_in(
    program: str, tmp_path: Path, socket_enabled: None
) -> None:
    lab = Lab(tmp_path)
    name = {"claude": "CLAUDE.md", "codex": "AGENTS.md"}[program]
    skill = f".{program}/skills/tidy/SKILL.md"
    header = "---\nname: tidy\ndescription: Tidies up.\n---"
    with script_model() as model:
        model.steps = [
            {"run": f"mkdir -p {Path(skill).parent} && printf '# Made\\n' > {name}"},
            {"run": f"printf '%s\\n' '{header}' 'Do it.' > {skill}"},
        ]
        if program == "codex":
            lab.write("user/.codex/config.toml", model.codex_config)
        use(lab, program, *TASKS[program], **model.environ, IS_SANDBOX="1")
    before = lab.outside()
    assert (lab.project / name).read_text() == "# Made\n" and (lab.project / skill).exists()

    done = lab.service().importer.run(ImportRequest()).data
    sources = {source for row in done.modules for source in row.sources}
    assert sources == {str(lab.project / name), str((lab.project / skill).parent)}
    assert lab.outside() == before and lab.changes() == []
    lab.deploy()
    assert lab.status().drift == []

    for path in (name, skill):
        with (lab.project / path).open("a") as stream:
            stream.write("An edit.\n")
    edited = lab.outside()
    assert lab.service().keeper.run(KeepRequest(Request())).data.applied
    assert lab.status().drift == []
    lab.service().back.uninstall(UninstallRequest())
    assert lab.outside() == {k: v for k, v in edited.items() if "agentpack.manifest" not in k}
