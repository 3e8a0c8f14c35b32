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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.backends import gateway
from fleet_agentpack.enact.backends.child import MARKER, Command, Ended, execute
from fleet_agentpack.enact.backends.job import Job, Launch, interpreter
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.network import Reach
from fleet_agentpack.enact.proxy import Proxy
from fleet_agentpack.kit import process

PROGRAM = "/usr/bin/sandbox-exec"
_SYSTEM = ("/usr", "/bin", "/sbin", "/System", "/Library/Apple", "/private/var/db/timezone")
_HOMEBREW = ("/opt/homebrew", "/usr/local")
_FILES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/private/etc/localtime")
# macOS counts processes for the whole user, so the limit is that many more than there are now.
_LIMITS = (
    "{{ ulimit -c 0; ulimit -d {memory}; ulimit -v {memory}; ulimit -f {blocks};"
    ' {{ ulimit -u {processes} || ulimit -p {processes}; }}; }} 2>/dev/null; exec "$@"'
)
_UNKNOWN = 10_000
_BLOCK = 512  # of `ulimit -f`; in some shells it is twice that


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
            "an end of processes that left their group": False,  # there is no /proc to find them by
            "scratch space with a limit": False,  # a directory, at whose size we look now and then
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
            argv = [PROGRAM, "-p", profile(job, scratch, port), *_limited(job)]
            start = Command(argv, env, job.folder, job.stdin)
            yield Launch(start, proxy=proxy, carry_out=_watched(job, scratch))


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


def _limited(job: Job) -> list[str]:
    """The command within limits for each of its processes."""
    is_scratch_only = not any(each.writable for each in job.mounts)
    limits = _LIMITS.format(
        memory=job.bounds.memory_bytes // 1024,
        blocks=job.bounds.disk_bytes // _BLOCK if is_scratch_only else "unlimited",
        processes=_own_processes() + job.bounds.processes,
    )
    return ["/bin/sh", "-c", limits, "sh", *job.argv]


def _own_processes() -> int:
    """How many processes this user has now; more than any has where that cannot be known."""
    try:
        done = process.run(["/bin/ps", "-U", str(os.getuid()), "-o", "pid="], timeout_s=20)
    except (OSError, TimeoutError):
        return _UNKNOWN
    return len(done.text.split())


def _watched(job: Job, scratch: Path) -> Callable[..., Ended]:
    """Runs a command, and stops it once it has filled its scratch space."""

    def carry_out(command: Command, *, tick: Callable[[float], None], **limits: Any) -> Ended:
        def look(elapsed_s: float) -> None:
            if _size(scratch) > job.bounds.disk_bytes:
                most = f"{job.bounds.disk_bytes // 1024**2} MiB"
                message = f"{job.tool} filled its scratch space of {most} and was stopped"
                raise EnactError("EXECUTION_FAILED", message, "give it less to do", tool=job.tool)
            tick(elapsed_s)

        return execute(command, tick=look, **limits)

    return carry_out


def _size(folder: Path) -> int:
    """How much of the disk the files in a directory take."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * _BLOCK  # noqa: PTH118
    return total


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
