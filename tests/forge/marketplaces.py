"""Repositories and marketplaces of our own making, in the shapes that people publish."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forge.tree import write

REVIEWER = """\
---
name: reviewer
description: Reads a pull request and says what is wrong
tools: Read, Grep, Bash
model: sonnet
---
You read pull requests.

Be brief.
Say what matters.
"""
IDENTITY = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.test",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.test",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


@dataclass(frozen=True)
class Repository:
    """A real git repository with a working tree."""

    path: Path

    @property
    def url(self) -> str:
        return self.path.as_uri()

    def git(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments],
            input=stdin,
            env={**os.environ, **IDENTITY},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, files: dict[str, Any] | None = None, message: str = "change") -> str:
        """Commit some files, together with whatever else changed; returns the commit."""
        write(self.path, files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


def repository(path: Path, files: dict[str, Any]) -> Repository:
    """A new repository with one commit."""
    path.mkdir(parents=True)
    made = Repository(path)
    made.git("init", "-q", "-b", "main")
    made.commit(files, "first")
    return made


def marketplace(name: str, *plugins: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The text of a `marketplace.json`."""
    return {"name": name, "owner": {"name": "Acme"}, **more, "plugins": list(plugins)}


def plugin(name: str, version: str | None = "2.0.0", **more: Any) -> dict[str, Any]:
    """The files of a Claude Code plugin, below a directory of its name."""
    manifest = {"name": name, "description": f"The plugin {name}", **more}
    if version:
        manifest["version"] = version
    return {
        f"{name}/.claude-plugin/plugin.json": manifest,
        f"{name}/agents/reviewer.md": REVIEWER,
        f"{name}/commands/check.md": "---\ndescription: Checks\n---\nCheck it.\n",
        f"{name}/skills/deploy/SKILL.md": "---\nname: deploy\ndescription: Deploys\n---\nSteps.\n",
        f"{name}/skills/deploy/scripts/run.sh": "#!/bin/sh\necho hi\n",
    }


def shop(path: Path, **more: Any) -> Repository:
    """A marketplace with one plugin beside it."""
    entries = [{"name": "review", "source": "./review", "description": "GitHub pull requests"}]
    made = repository(
        path,
        {
            ".claude-plugin/marketplace.json": marketplace("acme-tools", *entries, **more),
            **plugin("review"),
        },
    )
    (path / "review/skills/deploy/scripts/run.sh").chmod(0o755)
    made.commit(message="executable")
    return made


def as_json(path: Path) -> Any:
    return json.loads(path.read_text())
