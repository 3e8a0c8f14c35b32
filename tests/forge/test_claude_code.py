"""Claude Code itself finds and accepts what is installed for it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.forge.conftest import Run
from tests.forge.marketplaces import marketplace, repository, shop
from tests.rig import child_environment

pytestmark = pytest.mark.clients

PATIENCE_S = 120


def claude(home: Path, *words: str) -> str:
    program = shutil.which("claude")
    if not program:
        pytest.skip("claude is not on PATH; npm installs it")
    done = subprocess.run(
        [program, "plugin", *words],
        cwd=home / "work",
        env=child_environment(HOME=str(home)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_claude_code_loads_what_is_installed_for_it(run: Run, home: Path, tmp_path: Path) -> None:
    run("registry", "add", str(shop(tmp_path / "acme").path / ".git"))
    run("install", "review", "--for", "claude", "--scope", "global")
    folder = home / ".claude/skills/review"
    claude(home, "validate", str(folder))
    (row,) = json.loads(claude(home, "list", "--json"))
    assert (row["id"], row["version"], row["enabled"]) == ("review@skills-dir", "2.0.0", True)
    assert "reviewer" in claude(home, "details", "review")
    run("uninstall", "review", "--for", "claude", "--scope", "global")
    assert json.loads(claude(home, "list", "--json")) == []


def test_an_entry_without_a_manifest_gives_the_same_skills(
    run: Run, home: Path, tmp_path: Path
) -> None:
    skill = "---\nname: {0}\ndescription: Reads {0}\n---\nRead.\n"
    entry = {"name": "docs", "source": "./", "description": "Documents", "skills": ["./skills/pdf"]}
    made = repository(
        tmp_path / "skills",
        {
            ".claude-plugin/marketplace.json": marketplace("some-skills", entry),
            "skills/pdf/SKILL.md": skill.format("pdf"),
            "skills/xls/SKILL.md": skill.format("xls"),
        },
    )
    run("registry", "add", str(made.path / ".git"))
    run("install", "docs", "--for", "claude", "--scope", "global")
    ours = claude(home, "details", "docs")
    run("uninstall", "docs", "--for", "claude", "--scope", "global")
    claude(home, "marketplace", "add", str(made.path))
    claude(home, "install", "docs@some-skills")
    theirs = claude(home, "details", "docs")
    skills = [line for line in theirs.splitlines() if "Skills (" in line]
    assert skills and skills[0] in ours
