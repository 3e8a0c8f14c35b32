"""The command line, run as processes in a lab."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.deploy.lab import Lab
from tests.rig import child_environment


class Shell:
    """Runs commands in a lab."""

    def __init__(self, lab: Lab, cwd: Path | None = None) -> None:
        self.lab = lab
        self.cwd = cwd or lab.project

    def __call__(
        self, *words: str, status: int = 0, stdin: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "fleet_agentpack", *words],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.cwd,
            env=child_environment(**{**self.lab.environ, **more}),
            check=False,
        )
        assert done.returncode == status, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def json(
        self, *words: str, status: int = 0, ok: bool | None = None, **more: str
    ) -> dict[str, Any]:
        """A command's answer; `ok` where it does not go with the exit status."""
        done = self(*words, "--json", status=status, **more)
        assert done.stdout.endswith("}\n")
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["ok"] is ((status == 0) if ok is None else ok)
        return answer

    def refusal(self, *words: str, **more: str) -> dict[str, Any]:
        """The error that a command ends with."""
        (error,) = self.json(*words, status=1, **more)["errors"]
        found: dict[str, Any] = error
        return found
