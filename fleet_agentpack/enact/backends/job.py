"""One run of a tool, and what every backend does with it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.backends.child import Command

SCRATCH_BYTES = 256 * 1024 * 1024
DEFAULT_IMAGE = "alpine:latest"
# What the programs that start containers need of the user's own environment.
CLIENT_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "CONTAINER_HOST",
    "CONTAINERS_CONF",
)


@dataclass(frozen=True)
class Job:
    """One run of a tool, on any backend."""

    tool: str
    folder: Path
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    network: bool = False
    image: str | None = None
    stdin: bytes = b""
    python: bool = False  # whether `python3` must be the Python that runs us


@dataclass(frozen=True)
class Launch:
    """A command, how to clean up when it is killed, and how the backend says that it failed."""

    command: Command
    on_kill: Callable[[], None] = lambda: None
    failed_status: int | None = None


class Backend(Protocol):
    """A place where tools run."""

    name: str

    def unavailable(self) -> str | None:
        """Why nothing can run here; None when it can."""

    def prepared(self, job: Job) -> contextlib.AbstractContextManager[Launch]:
        """The command for a job, with what it needs for as long as it runs."""


def with_our_python(job: Job) -> Job:
    """A job whose `python3` is the Python that runs us, by full path and isolated."""
    if job.argv[0] not in ("python3", "python"):
        return replace(job, python=True)
    return replace(job, argv=[interpreter(), "-I", "-S", "-B", *job.argv[1:]], python=True)


def interpreter() -> str:
    """The Python that runs us, outside of any virtual environment."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    return str(Path(base).resolve())
