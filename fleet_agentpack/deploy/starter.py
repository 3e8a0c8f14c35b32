"""`init`: a small config repo whose modules are ready to deploy."""

from __future__ import annotations

from pathlib import Path

from fleet_agentpack.deploy.doctor import IGNORED, add_lines
from fleet_agentpack.deploy.errors import DeployError, io_errors
from fleet_agentpack.deploy.home import Home, git
from fleet_agentpack.deploy.manifest import FILE_NAME
from fleet_agentpack.deploy.results import GitSetup, Initialized
from fleet_agentpack.deploy.targets import ALL
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN

_FILES = {
    "modules/instructions/base/AGENTS.md": """\
# Working agreement

- Read the code around a change before making it.
- Keep changes small, and run the tests before calling one done.
- Say what you could not check.
""",
    "modules/prompts/draftpr.md": """\
Draft a pull request for the changes on this branch: a title of at most 70 characters, why the
change is needed, what it does, and how it was tested.
""",
    "modules/claude-commands/ap-plan.md": """\
---
description: Show what agentpack would deploy
---
Call the `plan` tool of the agentpack server, then sum up what would be created, updated and
deleted, by target. Do not apply anything.
""",
}

_MODULES = (
    ("instructions:base", "instructions", "modules/instructions/base"),
    ("prompt:draftpr", "prompt", "modules/prompts/draftpr.md"),
    ("command:ap-plan", "command", "modules/claude-commands/ap-plan.md"),
)


def make_starter(home: Home, repo: Path, *, with_git: bool) -> Initialized:
    """Write the files that do not exist yet; existing ones are not changed."""
    files = {FILE_NAME: _manifest(), **_FILES}
    for name, text in files.items():
        path = repo / name
        with io_errors(path, "write"):
            if not path.exists():
                write_atomic(path, text)
    git = _git_repository(home, repo) if with_git else UNKNOWN
    return Initialized(str(repo), repo.as_posix(), git)


def _manifest() -> str:
    document = {
        "version": 1,
        "profiles": {"default": {"include_tags": ["base"]}},
        "targets": {
            target.name: {
                "mode": "files",
                "scope": "project" if target.project_only else "both",
                "options": target.default_options,
            }
            for target in ALL
        },
        "modules": [
            {
                "id": module_id,
                "type": kind,
                "tags": ["base"],
                "source": {"local_path": {"path": path}},
            }
            for module_id, kind, path in _MODULES
        ],
    }
    return yaml12.dump(document)


def _git_repository(home: Home, repo: Path) -> GitSetup:
    initialized = not (repo / ".git").exists()
    if initialized:
        done = git(home, repo, "init", "--quiet")
        if done.status != 0:
            raise DeployError.because("git_failed", f"git init failed: {done.complaint}")
    ignore = repo / ".gitignore"
    updated = add_lines(ignore, [IGNORED, ".DS_Store"])
    return GitSetup(str(ignore), ignore.as_posix(), updated, initialized)
