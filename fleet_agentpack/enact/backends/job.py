"""One run of a tool, and what every backend does with it."""

from __future__ import annotations

import contextlib
import re
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.backends.child import Command, Ended, execute
from fleet_agentpack.enact.errors import EnactError, ask_user
from fleet_agentpack.enact.permissions import ANYWHERE, Bounds, Permissions, allow_command
from fleet_agentpack.enact.proxy import Proxy

DEFAULT_BOUNDS = Bounds(2 * 1024**3, 256, 300.0, 256 * 1024**2)
DEFAULT_IMAGE = "alpine:latest"
SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # besides /usr
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
    network: tuple[str, ...] = ()  # the hosts that were granted
    bounds: Bounds = DEFAULT_BOUNDS
    stdin: bytes = b""
    python: bool = False  # whether `python3` must be the Python that runs us
    plain: Sequence[str] = ()  # the variables that are defaults, and no secrets
    builds: str = ""  # the name of what it builds, in its own directory; empty for a run
    in_image: bool = False  # whether the image has the tool's files, since it was built there
    into: Path | None = None  # where a build leaves an image, if it cannot change its directory
    limit_bytes: int = 0  # and what it may write


@dataclass(frozen=True)
class Launch:
    """A command, how to clean up when it is killed, and how the backend says that it failed."""

    command: Command
    on_kill: Callable[[], None] = lambda: None
    failed_status: int | None = None
    proxy: Proxy | None = None  # through which it reaches the network
    carry_out: Callable[..., Ended] = execute


class Backend(Protocol):
    """A place where tools run."""

    name: str

    def unavailable(self, image: str | None = None) -> str | None:
        """Why nothing can run here, or not with this image; None when it can."""

    def prepared(self, job: Job) -> contextlib.AbstractContextManager[Launch]:
        """The command for a job, with what it needs for as long as it runs."""


WORKSPACE = Path("/workspace")
_OLD_WORKSPACE = Path("/work")  # as tools for older releases of Enact write it
_NAMES_OLD = re.compile(r"(?<![^\s'\"=:;(])/work/")


def workspaces(job: Job) -> list[Path]:
    """Where a tool may look for its own files, besides the directory that it runs in."""
    is_old = any(map(_NAMES_OLD.search, job.argv))
    places = [WORKSPACE, *([_OLD_WORKSPACE] if is_old else [])]
    given = [each.path for each in job.mounts]
    return [each for each in places if not any(path.is_relative_to(each) for path in given)]


def whole_network(job: Job, place: str) -> bool:
    """Whether a job has a network where one has all or nothing. Raises `EnactError`."""
    if not job.network or ANYWHERE in job.network:
        return bool(job.network)
    reason = f"{place} reaches every host or none, and only some were granted"
    wanted = Permissions(build=(ANYWHERE,)) if job.builds else Permissions(network=(ANYWHERE,))
    command = allow_command(job.tool, wanted)
    raise EnactError.backend_unavailable(job.tool, reason, ask_user(f"decide: {command}"))


def with_our_python(job: Job) -> Job:
    """A job whose `python3` is the Python that runs us, by full path and isolated."""
    if job.argv[0] not in ("python3", "python"):
        return replace(job, python=True)
    return replace(job, argv=[interpreter(), "-I", "-S", "-B", *job.argv[1:]], python=True)


def interpreter() -> str:
    """The Python that runs us, outside of any virtual environment."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    return str(Path(base).resolve())


def python_places(home: Path) -> list[Path]:
    """What our Python needs besides /usr: its prefix, or only its parts near the home."""
    prefix = Path(sys.base_prefix).resolve()
    paths = [prefix]
    if home.resolve().is_relative_to(prefix):
        library = sysconfig.get_config_var("LIBDIR")
        parts = [interpreter(), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
        paths = [Path(each).resolve() for each in [*parts, *([library] if library else [])]]
    return [path for path in paths if not path.is_relative_to("/usr")]
