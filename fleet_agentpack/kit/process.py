"""Child processes that never touch our standard input or output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KILLED_WITHIN_S = 5.0
# A group of its own, so that what the program started can be killed with it.
_PIPED: dict[str, Any] = {
    **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
    "start_new_session": True,
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


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


def without_colours(text: str) -> str:
    """What a program printed, without the colours that it printed it in."""
    return _COLOUR.sub("", text)


class ProcessTimeoutError(TimeoutError):
    """A child process ran longer than it was allowed to and was killed."""


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = 60.0,
    pass_fds: Sequence[int] = (),
) -> Completed:
    """Run a program without a shell and wait for it.

    Raises `FileNotFoundError` for a missing program, `ProcessTimeoutError` when it is killed.
    """
    given: dict[str, Any] = {"cwd": cwd, "env": env, "pass_fds": pass_fds}
    with subprocess.Popen([*map(str, argv)], **_PIPED, **given) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout_s)
        except BaseException as error:
            kill_group(process.pid)
            if isinstance(error, subprocess.TimeoutExpired):
                raise _timeout(argv, timeout_s) from error
            raise
    return Completed(process.returncode, stdout, stderr)


async def run_async(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = 60.0,
) -> Completed:
    """Like `run`, from an event loop: a cancelled wait ends the program and all it started."""
    process = await asyncio.create_subprocess_exec(*map(str, argv), **_PIPED, cwd=cwd, env=env)
    try:
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await process.communicate(stdin)
    except BaseException as error:
        kill_group(process.pid)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), KILLED_WITHIN_S)
        if isinstance(error, TimeoutError):
            raise _timeout(argv, timeout_s) from error
        raise
    return Completed(process.returncode or 0, stdout, stderr)


def _timeout(argv: Sequence[str | Path], timeout_s: float) -> ProcessTimeoutError:
    return ProcessTimeoutError(f"{argv[0]} did not finish within {timeout_s:g} s")


def kill_group(pid: int) -> None:
    """Kill a child that leads its own group, with what it started and what holds its pipes open."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "nt":  # pragma: no cover - no process groups there
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL)
