"""A fleet on this machine for tests: a repository, a configuration, and the scripted program."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.results import AgentCreated, TaskSummary
from fleet_agentpack.fleet.service import FleetService
from fleet_agentpack.settings import Settings
from tests.fleet.waiting import LIMIT_S, POLL_S

SCRIPT = Path(__file__).with_name("scripted.py")
SPEC = "Keep the build green"

CONFIG = f"""
[fleet]
program = "scripted"
[fleet.programs.scripted]
command = [{json.dumps(sys.executable)}, {json.dumps(str(SCRIPT))}]
first = ["--session", "{{session}}"]
next = ["--resume", "{{session}}"]
instructions = ["--instructions", "{{instructions}}"]
allowed = ["--allow", "{{command}}"]
model = ["--model", "{{model}}"]
unset = ["SECRET_OF_THE_CLIENT"]
readings = [
  {{ field = "session", path = "session_id" }},
  {{ field = "text", when = {{ type = "result" }}, path = "result" }},
  {{ field = "failed", when = {{ type = "result" }}, path = "is_error" }},
  {{ field = "cost", path = "total_cost_usd" }},
  {{ field = "denied", when = {{ type = "result" }}, path = "permission_denials" }},
]
"""


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(directory), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def repository(path: Path) -> Path:
    """A repository with one commit."""
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--initial-branch=main")
    (path / "README.md").write_text("A project\n")
    (path / "src").mkdir()
    (path / "src/app.py").write_text("print('hello')\n")
    git(path, "add", "--all")
    git(path, "commit", "--quiet", "-m", "First")
    return path


@dataclass
class LocalFleet:
    """A machine with one project."""

    project: Path
    fleet: FleetService
    settings: Settings

    def restarted(self) -> FleetService:
        """The fleet as a new process of the server would see it."""
        return open_fleet(self.settings, source="ai_controller")

    def tree(self, name: str) -> Path:
        """Where an agent works."""
        return self.settings.directories.data / "agents" / name

    async def create(self, name: str, project: str = "demo") -> AgentCreated:
        return await self.fleet.create(name, project, "coder", SPEC)

    async def ended(self, name: str, fleet: FleetService | None = None) -> TaskSummary:
        """The newest task once it is over."""
        return await ended(fleet or self.fleet, name)

    async def work(self, name: str, task: str) -> TaskSummary:
        """Start a task and wait for its end."""
        await self.fleet.start(name, task)
        return await self.ended(name)

    def output(self, name: str) -> str:
        """What the program of the newest task has printed so far."""
        folder = self.settings.directories.state / "agents" / name
        task = (folder / "current").read_text()
        return (folder / "tasks" / task / "output").read_text()

    def heard(self, name: str) -> list[dict[str, Any]]:
        """What the program was told in each task, oldest first."""
        folders = self.settings.directories.state / "agents" / name / "tasks"
        outputs = sorted(folders.glob("*/output"), key=lambda path: path.stat().st_ctime_ns)
        rows = [json.loads(line) for path in outputs for line in path.read_text().splitlines()]
        return [row for row in rows if row["type"] == "heard"]


async def ended(fleet: FleetService, name: str) -> TaskSummary:
    deadline = time.monotonic() + LIMIT_S
    while True:
        task = (await fleet.history(name)).tasks[0]
        if task.status not in ("pending", "running"):
            return task
        assert time.monotonic() < deadline, f"never ended: {task}"
        await asyncio.sleep(POLL_S)
