"""Tools in a sandbox of macOS: a Seatbelt profile that denies what it does not name."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fleet_agentpack.enact.backends import gateway
from fleet_agentpack.enact.backends.child import MARKER, Command
from fleet_agentpack.enact.backends.job import Job, Launch, interpreter
from fleet_agentpack.enact.network import Reach
from fleet_agentpack.enact.permissions import Bounds
from fleet_agentpack.enact.proxy import Proxy

PROGRAM = "/usr/bin/sandbox-exec"
_SYSTEM = ("/usr", "/bin", "/sbin", "/System", "/Library/Apple", "/private/var/db/timezone")
_HOMEBREW = ("/opt/homebrew", "/usr/local")
_FILES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/private/etc/localtime")
# Processes are counted for the whole user on macOS, so only memory has a limit here.
_LIMITS = 'ulimit -c 0; ulimit -d {0} 2>/dev/null; ulimit -v {0} 2>/dev/null; exec "$@"'


class Seatbelt:
    """macOS' own sandbox: no network but our proxy, no home, nothing writable but what is named."""

    name = "seatbelt"

    def __init__(self, path: str) -> None:
        self._path = path

    def unavailable(self, image: str | None = None) -> str | None:  # noqa: ARG002
        """Why nothing can run here."""
        if sys.platform != "darwin" or not shutil.which(PROGRAM):
            return "there is no sandbox-exec, which only macOS has"
        return None

    def parts(self) -> dict[str, bool]:
        """The parts of the sandbox, and whether each holds here."""
        return {
            "a profile that denies by default": self.unavailable() is None,
            "processes of a run as a whole": False,  # macOS counts them for the whole user
            "scratch space with a limit": False,  # a directory like any other
        }

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Launch]:
        """The command for a job."""
        with tempfile.TemporaryDirectory(prefix="enact-") as made, contextlib.ExitStack() as held:
            scratch = Path(made).resolve()
            env = {
                **job.env,
                "PATH": self._path,
                "HOME": str(scratch),
                "TMPDIR": str(scratch),
                "LANG": "C.UTF-8",
                MARKER: secrets.token_hex(16),
            }
            proxy, port = None, None
            if job.network:
                proxy, port, address = held.enter_context(_proxied(job.network))
                env |= gateway.proxy_variables(address)
            argv = [PROGRAM, "-p", profile(job, scratch, port), *_limited(job.argv, job.bounds)]
            yield Launch(Command(argv, env, job.folder, job.stdin), proxy=proxy)


def profile(job: Job, scratch: Path, port: int | None) -> str:
    """The rules for a job, in Seatbelt's language; the last one that matches counts."""
    reads = [*_SYSTEM, *_HOMEBREW, sys.base_prefix, str(Path(interpreter()).parent.parent)]
    given = [str(job.folder), *(str(each.path) for each in job.mounts)]
    writes = [str(each.path) for each in job.mounts if each.writable]
    writes += [str(job.folder)] if job.builds else []
    hidden = [str(path) for each in job.mounts for path in each.hidden]
    rules = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow file-read-metadata)",
        f"(allow file-read* {_paths('literal', ['/', *_FILES])})",
        f"(allow file-read* {_paths('subpath', [*dict.fromkeys(reads), *given])})",
        '(allow file-write-data (literal "/dev/null") (literal "/dev/zero"))',
        f"(allow file-read* file-write* {_paths('subpath', [str(scratch), *writes])})",
        "(deny file-write-setugid)",
        *([f"(deny file-read* file-write* {_paths('subpath', hidden)})"] if hidden else []),
        *([f'(allow network-outbound (remote ip "localhost:{port}"))'] if port else []),
    ]
    return "\n".join(rules) + "\n"


def _paths(kind: str, paths: Sequence[str]) -> str:
    return " ".join(f"({kind} {_quoted(each)})" for each in paths)


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _limited(argv: Sequence[str], bounds: Bounds) -> list[str]:
    return ["/bin/sh", "-c", _LIMITS.format(bounds.memory_bytes // 1024), "sh", *argv]


@contextmanager
def _proxied(granted: Sequence[str]) -> Iterator[tuple[Proxy, int, str]]:
    """A proxy on loopback, where others could reach it too: only the tool has its secret."""
    secret = secrets.token_urlsafe(24)
    proxy = Proxy(Reach.of(granted), gateway.basic(secret))
    listener = socket.create_server(("127.0.0.1", 0))
    port = int(listener.getsockname()[1])
    serving = threading.Thread(target=proxy.serve, args=[listener], daemon=True)
    serving.start()
    try:
        yield proxy, port, f"http://tool:{secret}@127.0.0.1:{port}"
    finally:
        proxy.close()
        with contextlib.suppress(OSError):
            listener.close()
        serving.join(5 if os.name == "posix" else 0)
