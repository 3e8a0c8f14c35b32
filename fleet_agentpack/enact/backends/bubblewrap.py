"""Tools in a bubblewrap sandbox."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

import fleet_agentpack
from fleet_agentpack.enact.backends import cgroup, gateway, keyring, seccomp
from fleet_agentpack.enact.backends.child import Command, sealed
from fleet_agentpack.enact.backends.job import (
    DEFAULT_BOUNDS,
    SYSTEM,
    WORKSPACE,
    Job,
    Launch,
    interpreter,
    python_places,
    workspaces,
)
from fleet_agentpack.enact.backends.limits import limited
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.permissions import Bounds
from fleet_agentpack.kit import process

SANDBOX_PATH = "/usr/local/bin:/usr/bin:/bin"
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
# Certificates, but never the private keys next to them; names are resolved by the proxy.
_ETC_NETWORK = (
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
)


NOTHING = Path(fleet_agentpack.__file__).with_name("py.typed")  # an empty file
# A list of the user's keys, though not what is in them; and what only root can read.
TELLING = (
    *("/proc/keys", "/proc/kcore", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags"),
    *("/proc/slabinfo", "/proc/timer_list", "/proc/vmallocinfo"),
)


class Bubblewrap:
    """A sandbox of namespaces: no network, no home, a read-only system, a private /tmp."""

    name = "bubblewrap"

    def __init__(self, path: str, home: Path) -> None:
        self._program = shutil.which("bwrap", path=path)
        self._home = home

    def unavailable(self, image: str | None = None) -> str | None:  # noqa: ARG002
        """Why nothing can run here; tried once, since containers may forbid namespaces."""
        if not self._program:
            return "bubblewrap (bwrap) is not installed"
        return self._trial

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Launch]:
        """The command for a job."""
        env = {"PATH": SANDBOX_PATH, "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108
        argv = self._isolation(job.bounds, network=bool(job.network))
        if job.python or job.network or not _system_python():
            places = map(str, python_places(self._home))
            argv += [word for each in places for word in ("--ro-bind", each, each)]
        if job.python or not _system_python():
            env["PATH"] = f"{SANDBOX_PATH}:{Path(interpreter()).parent}"
        with ExitStack() as held:
            options, descriptors = held.enter_context(_filtered())
            for mount in sorted(job.mounts, key=lambda each: len(each.path.parts)):
                kind = "--bind" if mount.writable else "--ro-bind"
                source = held.enter_context(_held(mount.path))
                if self._holds_paths:
                    argv += [f"{kind}-fd", str(source), str(mount.path)]
                    descriptors = (*descriptors, source)
                else:
                    argv += [kind, str(mount.path), str(mount.path)]
                argv += [word for path in mount.hidden for word in _masked(path)]
            folder = str(job.folder)
            for place in (folder, *map(str, workspaces(job))):
                argv += ["--bind" if job.builds else "--ro-bind", folder, place]
            inside = str(WORKSPACE) if job.builds else folder
            argv += ["--remount-ro", "/", "--chdir", inside]
            command, proxy = list(job.argv), None
            if job.network:
                way = held.enter_context(gateway.opened(job.network))
                command, proxy = way.command(command), way.proxy
                descriptors = (*descriptors, way.descriptor)
                env |= gateway.proxy_variables(f"http://127.0.0.1:{gateway.PORT}")
            # In a file, since `bwrap` itself runs outside: what it is loaded with is our choice.
            own = [("--setenv", name, job.env[name]) for name in job.env if name not in env]
            words = "".join(f"{word}\0" for each in own for word in each)
            given = held.enter_context(sealed(words.encode("utf-8", "surrogateescape"))).fileno()
            within = limited(command, job.bounds.memory_bytes, job.bounds.processes)
            whole = [*argv, "--args", str(given), *options, "--", *within]
            grouped = held.enter_context(cgroup.entered(self._cgroup, job.bounds, whole))
            start = Command(grouped, env, None, job.stdin, (*descriptors, given))
            yield Launch(start, proxy=proxy)

    def parts(self) -> dict[str, bool]:
        """The parts of the sandbox, and whether each holds here."""
        return {
            "namespaces": self.unavailable() is None,
            "system calls filtered": seccomp.program() is not None,
            "paths held from the check to the mount": self._holds_paths,
            "a session keyring of its own": keyring.is_supported(),
            "memory and processes of a run as a whole": self._cgroup is not None,
        }

    @cached_property
    def _holds_paths(self) -> bool:
        """Whether a path can be mounted as it was checked, whatever takes its place meanwhile."""
        try:
            return "--ro-bind-fd" in process.run([str(self._program), "--help"], timeout_s=20).text
        except (OSError, TimeoutError):
            return False

    @cached_property
    def _cgroup(self) -> Path | None:
        return cgroup.delegated()

    @cached_property
    def _trial(self) -> str | None:
        argv = [
            *self._isolation(DEFAULT_BOUNDS, network=False),
            "--remount-ro",
            "/",
            "--",
            "/bin/sh",
            "-c",
            ":",
        ]
        try:
            done = process.run(argv, env={"PATH": SANDBOX_PATH}, timeout_s=20)
        except (OSError, TimeoutError) as error:
            return f"bubblewrap cannot start: {error}"
        return f"bubblewrap does not work here: {done.complaint[:200]}" if done.status else None

    def _isolation(self, bounds: Bounds, *, network: bool) -> list[str]:
        scratch = str(bounds.disk_bytes)
        argv = [str(self._program), "--unshare-all", "--die-with-parent", "--new-session"]
        argv += ["--unshare-user", "--disable-userns"]
        argv += ["--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]
        for path in map(Path, SYSTEM):
            if path.is_symlink():
                argv += ["--symlink", os.readlink(path), str(path)]  # noqa: PTH115 - the link's own text
            elif path.is_dir():
                argv += ["--ro-bind", str(path), str(path)]
        for name in (*_ETC, "/nix/store", *(_ETC_NETWORK if network else ())):
            argv += ["--ro-bind-try", name, name]
        # Read-only: root without capabilities could still write the kernel's settings there.
        argv += ["--proc", "/proc"]
        for name in TELLING:
            if os.access(name, os.R_OK):
                argv += ["--ro-bind", str(NOTHING), name]
        argv += ["--remount-ro", "/proc"]
        argv += ["--dev", "/dev", "--size", scratch]
        argv += ["--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
        argv += ["--size", scratch, "--tmpfs", "/tmp"]  # noqa: S108
        return argv


@contextmanager
def _filtered() -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """The options and the open file that give the sandbox its filter of system calls."""
    program = seccomp.program()
    if program is None:
        yield (), ()
        return
    with sealed(program) as stream:
        yield ("--seccomp", str(stream.fileno())), (stream.fileno(),)


def _masked(path: Path) -> list[str]:
    """What makes a place look empty and stay so."""
    if path.is_dir():
        return ["--tmpfs", str(path), "--remount-ro", str(path)]
    return ["--ro-bind", str(NOTHING), str(path)]


@contextmanager
def _held(path: Path) -> Iterator[int]:
    """A path that was checked, open so that nobody can swap it. Raises `EnactError`."""
    try:
        found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise EnactError.bad_argument("path", f"{path} is no longer there") from error
    try:
        real = os.readlink(f"/proc/self/fd/{found}")  # noqa: PTH115 - the link's own text
        if real != str(path) or stat.S_ISLNK(os.fstat(found).st_mode):
            raise EnactError.bad_argument("path", f"{path} has changed since it was checked")
        yield found
    finally:
        os.close(found)


def _system_python() -> bool:
    return any(Path(each, "python3").exists() for each in SANDBOX_PATH.split(":"))
