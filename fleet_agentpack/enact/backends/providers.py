"""Where a tool runs: a bubblewrap sandbox, a container, or the bare host when told so."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.backends.child import MARKER, Command
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.settings import ContainerSettings
from fleet_agentpack.kit import process

SANDBOX_PATH = "/usr/local/bin:/usr/bin:/bin"
SCRATCH_BYTES = 256 * 1024 * 1024
DEFAULT_IMAGE = "alpine:latest"
CONTAINER_FAILED = 125  # podman and docker: no image, no engine, a bad option
# Podman alone: no unlimited tmpfs beside ours, no volume on disk because an image declares one.
_PODMAN_ONLY = ("--read-only-tmpfs=false", "--image-volume=ignore")
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
# Certificates, but never the private keys beside them.
_ETC_NETWORK = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
)
_CLIENT_VARIABLES = (
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
    """One run of a tool, before it is known where."""

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
class Start:
    """A command, how to clean up when it is killed, and how the provider says that it failed."""

    command: Command
    on_kill: Callable[[], None] = lambda: None
    failed_status: int | None = None


class Provider(Protocol):
    """A place where tools run."""

    name: str

    def unavailable(self) -> str | None:
        """Why nothing can run here; None when it can."""

    def prepared(self, job: Job) -> contextlib.AbstractContextManager[Start]:
        """The command for a job, with what it needs for as long as it runs."""


class Bubblewrap:
    """A sandbox of namespaces: no network, no home, a read-only system, a private /tmp."""

    name = "bubblewrap"

    def __init__(self, path: str, home: Path) -> None:
        self._program = shutil.which("bwrap", path=path)
        self._home = home

    def unavailable(self) -> str | None:
        """Why nothing can run here; tried once, since a container may forbid namespaces."""
        if not self._program:
            return "bubblewrap (bwrap) is not installed"
        return self._trial

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Start]:
        """The command for a job."""
        env = {"PATH": SANDBOX_PATH, "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108
        argv = [*self._isolation(job.network)]
        if job.python or not _system_python():
            argv += _bind_python(self._home)
            env["PATH"] = f"{SANDBOX_PATH}:{Path(interpreter()).parent}"
        for mount in sorted(job.mounts, key=lambda each: len(each.path.parts)):
            argv += ["--bind" if mount.writable else "--ro-bind", str(mount.path), str(mount.path)]
        folder = str(job.folder)
        argv += ["--ro-bind", folder, folder, "--remount-ro", "/", "--chdir", folder, "--"]
        yield Start(Command([*argv, *job.argv], {**job.env, **env}, None, job.stdin))

    @cached_property
    def _trial(self) -> str | None:
        argv = [*self._isolation(network=False), "--remount-ro", "/", "--", "/bin/sh", "-c", ":"]
        try:
            done = process.run(argv, env={"PATH": SANDBOX_PATH}, timeout_s=20)
        except (OSError, TimeoutError) as error:
            return f"bubblewrap cannot start: {error}"
        return f"bubblewrap does not work here: {done.complaint[:200]}" if done.status else None

    def _isolation(self, network: bool) -> list[str]:
        argv = [str(self._program), "--unshare-all", "--die-with-parent", "--new-session"]
        argv += ["--share-net"] if network else []
        argv += ["--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]
        for path in map(Path, _SYSTEM):
            if path.is_symlink():
                argv += ["--symlink", os.readlink(path), str(path)]  # noqa: PTH115 - as it is written
            elif path.is_dir():
                argv += ["--ro-bind", str(path), str(path)]
        for name in (*_ETC, "/nix/store", *(_ETC_NETWORK if network else ())):
            argv += ["--ro-bind-try", name, name]
        # Read-only: root without capabilities could still write the kernel's settings there.
        argv += ["--proc", "/proc", "--remount-ro", "/proc"]
        argv += ["--dev", "/dev", "--size", str(SCRATCH_BYTES)]
        argv += ["--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
        argv += ["--size", str(SCRATCH_BYTES), "--tmpfs", "/tmp"]  # noqa: S108
        return argv


class Container:
    """A container of podman or docker: no network, no capabilities, a read-only root."""

    def __init__(
        self, settings: ContainerSettings, environ: Mapping[str, str], wanted: str | None = None
    ) -> None:
        candidates = [wanted] if wanted else [settings.program or "", "podman", "docker"]
        path = environ.get("PATH", os.defpath)
        found = (shutil.which(each, path=path) for each in candidates if each)
        self._program = next((each for each in found if each), None)
        self._wanted = wanted or settings.program or "podman or docker"
        self._settings = settings
        self._env = {key: environ[key] for key in _CLIENT_VARIABLES if key in environ}
        self.name = Path(self._program).name if self._program else "container"

    def unavailable(self) -> str | None:
        """Why nothing can run here."""
        return None if self._program else f"{self._wanted} is not installed"

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Start]:
        """The command for a job; its variables go in a file, never on the command line."""
        name = f"enact-{secrets.token_hex(8)}"
        with tempfile.TemporaryDirectory(prefix="enact-") as scratch:
            variables = Path(scratch) / "env"
            variables.touch(mode=0o600)
            variables.write_text(_env_file(job), encoding="utf-8")
            argv = [
                *self._base,
                *("run", "--rm", "--interactive", "--name", name, "--entrypoint", ""),
                *("--network", "bridge" if job.network else "none", "--read-only"),
                *(_PODMAN_ONLY if self.name == "podman" else ()),
                *("--log-driver", "none"),  # what a tool prints may hold secrets
                *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
                *("--pids-limit", "256", "--tmpfs", f"/tmp:size={SCRATCH_BYTES}"),  # noqa: S108
                *("--env-file", str(variables), "--workdir", "/workspace"),
                *_mount_options(job),
                *self._settings.run_args,
                job.image or DEFAULT_IMAGE,
                *job.argv,
            ]
            yield Start(
                Command(argv, self._env, None, job.stdin),
                on_kill=lambda: self._remove(name),
                failed_status=CONTAINER_FAILED,
            )

    @property
    def _base(self) -> list[str]:
        return [str(self._program), *self._settings.global_args]

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            process.run([*self._base, "rm", "--force", name], env=self._env, timeout_s=30)


class Host:
    """This machine itself, with nothing between; only where the user's configuration says so."""

    def __init__(self, path: str, name: str = "local") -> None:
        self.name = name
        self._path = path

    def unavailable(self) -> str | None:
        """Why nothing can run here."""
        return "tools cannot be run on Windows" if os.name == "nt" else None

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Start]:
        """The command for a job, in an environment of its own."""
        with tempfile.TemporaryDirectory(prefix="enact-", ignore_cleanup_errors=True) as scratch:
            env = {
                **job.env,
                "PATH": self._path,
                "HOME": scratch,
                "TMPDIR": scratch,
                "LANG": "C.UTF-8",
                "PYTHONDONTWRITEBYTECODE": "1",
                MARKER: secrets.token_hex(16),
            }
            yield Start(Command(job.argv, env, job.folder, job.stdin))


class Dagger:
    """Dagger's engine, driven through its SDK by a child process of ours.

    The tool works on copies of its mounts; Dagger has no switch that turns the network off.
    """

    name = "dagger"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def unavailable(self) -> str | None:
        """Why nothing can run here."""
        if importlib.util.find_spec("dagger") is None:
            return "the Dagger SDK is not installed (pip install 'fleet-agentpack[dagger]')"
        return None

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Start]:
        """The command for a job; everything about it goes through standard input."""
        request = {
            "image": job.image or DEFAULT_IMAGE,
            "argv": list(job.argv),
            "env": dict(job.env),
            "folder": str(job.folder),
            "files": [str(each.path) for each in job.mounts if each.path.is_file()],
            "directories": [
                [str(each.path), each.writable] for each in job.mounts if each.path.is_dir()
            ],
            "stdin": job.stdin.decode(),
        }
        # -P: the directory we stand in may be anybody's, and is no place to import from.
        argv = [sys.executable, "-P", "-m", "fleet_agentpack.enact.backends.dagger_child"]
        env = {key: self._environ[key] for key in _CLIENT_VARIABLES if key in self._environ}
        yield Start(Command(argv, env, None, json.dumps(request).encode()))


def with_our_python(job: Job) -> Job:
    """A job whose `python3` is the Python that runs us, by its full path and isolated."""
    if job.argv[0] not in ("python3", "python"):
        return replace(job, python=True)
    return replace(job, argv=[interpreter(), "-I", "-S", "-B", *job.argv[1:]], python=True)


def interpreter() -> str:
    """The Python that runs us, outside of any virtual environment."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    return str(Path(base).resolve())


def _system_python() -> bool:
    return any(Path(each, "python3").exists() for each in SANDBOX_PATH.split(":"))


def _bind_python(home: Path) -> list[str]:
    """What the sandbox needs to run our Python: its prefix, or only its parts near the home."""
    prefix = Path(sys.base_prefix).resolve()
    paths = [prefix]
    if home.resolve().is_relative_to(prefix):
        library = sysconfig.get_config_var("LIBDIR")
        parts = [interpreter(), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
        paths = [Path(each).resolve() for each in [*parts, *([library] if library else [])]]
    outside = [path for path in paths if not path.is_relative_to("/usr")]
    return [word for path in outside for word in ("--ro-bind", str(path), str(path))]


def _env_file(job: Job) -> str:
    values = {**job.env, "HOME": "/tmp", "TMPDIR": "/tmp"}  # noqa: S108
    for name, value in values.items():
        if "\n" in value or "\r" in value:
            raise EnactError.provider_unavailable(
                job.tool,
                f"{name} has several lines, which a container cannot be given",
                f"ask the user to store {name} as one line",
            )
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _mount_options(job: Job) -> Iterator[str]:
    yield from ("--mount", f"{_bind(job.folder)},target=/workspace,readonly")
    for mount in job.mounts:
        mode = "" if mount.writable else ",readonly"
        yield from ("--mount", f"{_bind(mount.path)},target={mount.path}{mode}")


def _bind(path: Path) -> str:
    """The source of a mount; its option is a list with commas, so a path must have none."""
    if any(char in str(path) for char in ',"\n\r'):
        raise EnactError.bad_argument(
            "path", f"{path} has a comma, a quote or a line break in its name"
        )
    return f"type=bind,source={path}"
