"""A small world to deploy in: a home, a config repo, a project, and the service on top."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import Envelope, PlanData, StatusData
from fleet_agentpack.deploy.service import DeployService
from fleet_agentpack.kit import process, yaml12

ORIGIN = "https://github.com/example/example.git"

CODEX = {"mode": "files", "scope": "both", "options": {}}
CLAUDE = {
    "mode": "files",
    "scope": "both",
    "options": {"write_user_skills": True, "write_repo_skills": True},
}
PROJECT = {"mode": "files", "scope": "project", "options": {}}
ALL_TARGETS: dict[str, Any] = {
    "codex": CODEX,
    "claude_code": CLAUDE,
    "cursor": PROJECT,
    "vscode": PROJECT,
}
SKILL = "---\nname: {name}\ndescription: Does {name}.\n---\n\nDo it.\n"
COMMAND = "---\ndescription: Runs {name}.\n---\n\nRun it.\n"


class Lab:
    """Everything below one directory; paths are given relative to it."""

    def __init__(self, root: Path, *, git: bool = True) -> None:
        self.root = root
        self.with_git = git
        self.user = root / "user"
        self.home_dir = root / "agentpack"
        self.repo = self.home_dir / "repo"
        self.project = root / "project"
        self.cache = root / "cache"
        self.targets: dict[str, Any] = dict(ALL_TARGETS)
        self.modules: list[dict[str, Any]] = []
        self.profiles: dict[str, Any] = {"default": {"include_tags": ["base"]}}
        for directory in (self.user, self.repo, self.project):
            directory.mkdir(parents=True, exist_ok=True)
        if git:
            self.git("init", "--quiet", cwd=self.project)
            self.git("remote", "add", "origin", ORIGIN, cwd=self.project)

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Serve this domain alone, in the lab's project, to the lab's user."""
        for name, value in self.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("FLEET_AGENTPACK_ONLY", "agentpack")
        monkeypatch.chdir(self.project)

    @property
    def environ(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in ("PATH", "LANG", "TMPDIR") or name.startswith("GIT_")
        }
        if not self.with_git:
            kept["PATH"] = "/nonexistent"  # a machine without git, and much faster
        return {
            **kept,
            "HOME": str(self.user),
            "AGENTPACK_HOME": str(self.home_dir),
            "AGENTPACK_MACHINE_ID": "test-machine",
        }

    def home(self, cwd: Path | None = None, **variables: str) -> Home:
        environ = {**self.environ, **variables}
        return Home.of(environ, self.user, cwd or self.project, self.cache)

    def service(self, cwd: Path | None = None, **options: Any) -> DeployService:
        """A service as a new process would make it."""
        return DeployService(self.home(cwd), **options)

    def git(self, *arguments: str, cwd: Path) -> str:
        done = process.run(["git", *arguments], cwd=cwd, env=self.environ)
        assert done.status == 0, done.complaint
        return done.text.strip()

    def write(self, name: str, text: str | bytes, mode: int | None = None) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        if mode is not None:
            path.chmod(mode)
        return path

    def source(self, name: str, text: str | bytes, mode: int | None = None) -> Path:
        """A file of the config repo."""
        return self.write(f"agentpack/repo/{name}", text, mode)

    def module(self, kind: str, name: str, path: str, **more: Any) -> None:
        row = {
            "id": f"{kind}:{name}",
            "type": kind,
            "tags": ["base"],
            "source": {"local_path": {"path": path}},
        }
        self.modules.append({**row, **more})
        self.save()

    def instructions(self, name: str, text: str, **more: Any) -> None:
        self.source(f"modules/instructions/{name}/AGENTS.md", text)
        self.module("instructions", name, f"modules/instructions/{name}", **more)

    def prompt(self, name: str, text: str, **more: Any) -> None:
        self.source(f"modules/prompts/{name}.md", text)
        self.module("prompt", name, f"modules/prompts/{name}.md", **more)

    def command(self, name: str, **more: Any) -> None:
        self.source(f"modules/commands/{name}.md", COMMAND.format(name=name))
        self.module("command", name, f"modules/commands/{name}.md", **more)

    def skill(self, name: str, files: dict[str, str] | None = None, **more: Any) -> None:
        self.source(f"modules/skills/{name}/SKILL.md", SKILL.format(name=name))
        for file, text in (files or {}).items():
            self.source(f"modules/skills/{name}/{file}", text)
        self.module("skill", name, f"modules/skills/{name}", **more)

    def drop(self, module_id: str) -> None:
        self.modules = [row for row in self.modules if row["id"] != module_id]
        self.save()

    def save(self) -> None:
        document = {
            "version": 1,
            "profiles": self.profiles,
            "targets": self.targets,
            "modules": self.modules,
        }
        self.source("agentpack.yaml", yaml12.dump(document))

    def furnish(self) -> None:
        """One module of each type."""
        self.instructions("base", "# Base\n")
        self.prompt("hello", "Say hello.\n")
        self.command("go")
        self.skill("tidy", {"scripts/run.sh": "#!/bin/sh\necho tidy\n"})
        self.source("modules/skills/tidy/scripts/run.sh", "#!/bin/sh\necho tidy\n", 0o755)

    def deploy(self, service: DeployService | None = None, **request: Any) -> Envelope[PlanData]:
        answer = (service or self.service()).deploy(Request(**request))
        assert answer.ok
        return answer

    def plan(self, **request: Any) -> PlanData:
        return self.service().plan(Request(**request)).data

    def status(self, **request: Any) -> StatusData:
        return self.service().status(Request(**request)).data

    def changes(self, **request: Any) -> list[tuple[str, str, str]]:
        """The plan as (op, target, path relative to the lab)."""
        return [
            (row.op, row.target, os.path.relpath(row.path, self.root))
            for row in self.plan(**request).changes
        ]

    def drift(self, **request: Any) -> list[tuple[str, str]]:
        """The drift as (kind, path relative to the lab)."""
        return [
            (row.kind, os.path.relpath(row.path, self.root)) for row in self.status(**request).drift
        ]

    def outside(self) -> dict[str, tuple[Any, ...]]:
        """Everything that is deployed to: the user's home and the project."""
        return {**tree(self.user, "user"), **tree(self.project, "project")}


def tree(root: Path, prefix: str = "") -> dict[str, tuple[Any, ...]]:
    """Every path with its kind, mode and content."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(root.rglob("*")):
        name = f"{prefix}/{path.relative_to(root)}" if prefix else str(path.relative_to(root))
        if ".git" in path.relative_to(root).parts:
            continue
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("directory",)
        else:
            mode = stat.S_IMODE(path.stat().st_mode)
            found[name] = (oct(mode), hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def files(found: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Only the files of a tree."""
    return {name: entry for name, entry in found.items() if entry != ("directory",)}
