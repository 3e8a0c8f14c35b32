"""Builds climpt trees for the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleet_agentpack.climpt.service import ClimptService, open_climpt
from fleet_agentpack.settings import Directories, Settings

GROUP_COMMIT = {
    "c1": "git",
    "c2": "group-commit",
    "c3": "unstaged-changes",
    "description": "Group file changes by semantic proximity and execute multiple commits",
    "usage": "climpt-git group-commit unstaged-changes",
    "options": {
        "edition": ["default"],
        "adaptation": ["default", "detailed"],
        "file": True,
        "stdin": False,
        "destination": True,
    },
    "uv": "",
}
DECIDE_BRANCH = {
    "c1": "git",
    "c2": "decide-branch",
    "c3": "working-branch",
    "description": "Decide whether to create a new branch or continue on the current branch",
}
FRONTMATTER = {
    "c1": "meta",
    "c2": "build",
    "c3": "frontmatter",
    "description": "Generate C3L v0.5 compliant frontmatter for instruction files",
}
INSTRUCTION = {
    "c1": "meta",
    "c2": "create",
    "c3": "instruction",
    "description": "Create a new Climpt instruction file from stdin input",
}
SAMPLE = [GROUP_COMMIT, DECIDE_BRANCH, FRONTMATTER, INSTRUCTION]
ECHO = {"c1": "test", "c2": "echo", "c3": "input", "description": "Echo the input"}
ECHO_NAMES = ("climpt", "test", "echo", "input")


def write(root: Path, path: str, content: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")
    return file


def registry_text(commands: list[dict[str, Any]]) -> str:
    return json.dumps({"version": "1.0.0", "description": "", "tools": {"commands": commands}})


def write_registry(root: Path, commands: list[dict[str, Any]], agent: str = "climpt") -> Path:
    return write(root, f".agent/{agent}/registry.json", registry_text(commands))


def write_echo(root: Path, body: str, *, name: str = "f_default.md", user: str = "") -> None:
    """The command `test echo input` with one template."""
    write_registry(root, [ECHO])
    write(
        root,
        ".agent/climpt/config/test-app.yml",
        'working_dir: ".agent/climpt"\napp_prompt: {base_dir: prompts/test}\n'
        "app_schema: {base_dir: schema/test}\n",
    )
    if user:
        write(root, ".agent/climpt/config/test-user.yml", user)
    write(root, f".agent/climpt/prompts/test/echo/input/{name}", body)


def service(cwd: Path, home: Path, execute: str | None = None, **environ: str) -> ClimptService:
    config = {"climpt": {"execute": execute}} if execute else {}
    return open_climpt(Settings(environ, cwd, home, Directories.of_user(), config, project=cwd))
