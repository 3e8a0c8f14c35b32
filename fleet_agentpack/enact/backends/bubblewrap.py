"""Tools in a bubblewrap sandbox."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from fleet_agentpack.enact.backends.child import Command
from fleet_agentpack.enact.backends.job import SCRATCH_BYTES, Job, Launch, interpreter
from fleet_agentpack.kit import process

SANDBOX_PATH = "/usr/local/bin:/usr/bin:/bin"
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
# Certificates, but never the private keys next to them.
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


class Bubblewrap:
    """A sandbox of namespaces: no network, no home, a read-only system, a private /tmp."""

    name = "bubblewrap"

    def __init__(self, path: str, home: Path) -> None:
        self._program = shutil.which("bwrap", path=path)
        self._home = home

    def unavailable(self) -> str | None:
        """Why nothing can run here; tried once, since containers may forbid namespaces."""
        if not self._program:
            return "bubblewrap (bwrap) is not installed"
        return self._trial

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Launch]:
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
        yield Launch(Command([*argv, *job.argv], {**job.env, **env}, None, job.stdin))

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
                argv += ["--symlink", os.readlink(path), str(path)]  # noqa: PTH115 - the link's own text
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
