"""Child processes that never touch our standard input or output."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Completed:
    """How a child process ended and what it printed."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def complaint(self) -> str:
        """Standard error as trimmed text."""
        return self.stderr.decode("utf-8", "replace").strip()


class ProcessTimeoutError(TimeoutError):
    """A child process ran longer than it was allowed to and was killed."""


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = 60.0,
) -> Completed:
    """Run a program without a shell and wait for it.

    Raises `FileNotFoundError` for a missing program, `ProcessTimeoutError` when it is killed.
    """
    try:
        done = subprocess.run(
            [str(part) for part in argv],
            cwd=cwd,
            env=None if env is None else dict(env),
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ProcessTimeoutError(f"{argv[0]} did not end within {timeout_s:g} s") from error
    return Completed(done.returncode, done.stdout, done.stderr)
