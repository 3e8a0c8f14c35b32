"""The command line, run in a lab: as processes, or in this one."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fleet_agentpack import cli
from tests.deploy.lab import Lab
from tests.rig import child_environment, run


class Shell:
    """Runs commands in a lab."""

    def __init__(self, lab: Lab, cwd: Path | None = None) -> None:
        self.lab = lab
        self.cwd = cwd or lab.project

    def __call__(
        self, *words: str, status: int = 0, stdin: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        done = self.attempt(*words, stdin=stdin, **more)
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done

    def attempt(
        self, *words: str, stdin: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """A command that may succeed or be refused."""
        done = self._run(words, stdin, {**self.lab.environ, **more})
        assert "Traceback" not in done.stderr
        return done

    def _run(
        self, words: tuple[str, ...], stdin: str, environ: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return run(*words, stdin=stdin, cwd=self.cwd, **environ)

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


class QuickShell(Shell):
    """Runs the same commands in this process, which takes a hundredth of the time."""

    def _run(
        self, words: tuple[str, ...], stdin: str, environ: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        typed = patch("sys.stdin", io.StringIO(stdin))
        with self._entered(environ), typed, redirect_stdout(out), redirect_stderr(err):
            try:
                status = cli.run(words)
            except SystemExit as ended:
                status = int(ended.code or 0)
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

    @contextmanager
    def _entered(self, environ: Mapping[str, str]) -> Iterator[None]:
        """The working directory, the environment and the signals as a new process has them."""
        before, interrupt = Path.cwd(), signal.getsignal(signal.SIGINT)
        os.chdir(self.cwd)
        try:
            with patch.dict(os.environ, child_environment(**environ), clear=True):
                yield
        finally:
            os.chdir(before)
            signal.signal(signal.SIGINT, interrupt)
