"""Carries out the commands that build a tool, within limits, in a copy of its files or in an image.

What a build writes is measured while it runs: no sandbox here can bound a directory on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.enact.backends.child import Ended
from fleet_agentpack.enact.backends.container import Container
from fleet_agentpack.enact.backends.dagger import Dagger
from fleet_agentpack.enact.backends.job import Backend, Job, Launch
from fleet_agentpack.enact.errors import EnactError, ask_user
from fleet_agentpack.kit import process
from fleet_agentpack.kit.visible import visible

MOST_ENTRIES = 200_000
LARGEST_LOG = 16 * 1024 * 1024
LONGEST_EXCERPT = 4000
_PATIENCE = 5  # between two looks, times what the last one took
# Each command by itself, as Enact does it, and never read as an option; no single file beyond the
# limit. The code 125 is the container program's own.
_STEPS = """
ulimit -f "$1" 2>/dev/null
shift
for each in "$@"; do
  printf '+ %s\\n' "$each" >&2
  sh -c " $each" </dev/null || { code=$?; [ $code -ne 125 ] || code=1; exit $code; }
done
"""
_BLOCK = 512  # bytes, in which `ulimit -f` counts

Tick = Callable[[float], None]


@dataclass(frozen=True)
class Made:
    """What a build has made: an image, or a directory by the stamps of everything in it."""

    size_bytes: int
    image: str | None = None
    stamp: str = ""


class BuildError(Exception):
    """A build that did not succeed; the message says how it ended."""

    def __init__(
        self,
        reason: str,
        exit_code: int | None = None,  # None: it was stopped
        stdout: str = "",
        stderr: str = "",
        refused: Sequence[str] = (),  # hosts
    ) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
        self.stdout, self.stderr = stdout, stderr
        self.refused = tuple(refused)


def command(steps: Sequence[str], limit: int) -> list[str]:
    """The argument list that carries out the steps."""
    return ["sh", "-c", _STEPS, "sh", str(limit // _BLOCK), *steps]


def in_tree(provider: Backend, job: Job, limit: int, tick: Tick) -> Made:
    """Build in the job's own directory. Raises `BuildError` or `EnactError`."""
    _carry_out(provider, job, limit, lambda: measured(job.folder), tick)
    _tidy(job.folder)
    return Made(measured(job.folder), stamp=stamp_of(job.folder))


def in_image(container: Container, job: Job, limit: int, tick: Tick) -> Made:
    """Build in a container, and keep it as an image. Raises `BuildError` or `EnactError`."""
    container.discard(job.builds)
    try:
        _carry_out(container, job, limit, lambda: container.written(job.builds), tick)
        size = container.written(job.builds)
        return Made(size, image=container.committed(job.builds))
    finally:
        container.discard(job.builds)


def in_archive(dagger: Dagger, job: Job, tick: Tick) -> Made:
    """Build where only the engine can measure. Raises `BuildError` or `EnactError`."""
    assert job.into is not None  # noqa: S101 - it is what this is for
    _carry_out(dagger, job, job.limit_bytes, lambda: 0, tick)
    return Made(measured(job.into), stamp=stamp_of(job.into))


def _carry_out(
    provider: Backend, job: Job, limit: int, measure: Callable[[], int], tick: Tick
) -> None:
    watch = _Watch(measure, limit)

    def look(elapsed_s: float) -> None:
        tick(elapsed_s)
        watch.look()

    with provider.prepared(job) as launch:
        try:
            ended = launch.carry_out(
                launch.command,
                timeout_s=job.bounds.time_s,
                tick=look,
                on_kill=launch.on_kill,
                largest_output=LARGEST_LOG,
            )
        except OSError as error:
            reason = f"{launch.command.argv[0]}: {error.strerror or error}"
            step = ask_user(f"check that {provider.name} works")
            raise EnactError.backend_unavailable(job.tool, reason, step) from error
        if ended.reason == "exit" and ended.exit_code == 0:
            watch.check()
            return
        raise _failure(provider, job, ended, launch)


def _failure(provider: Backend, job: Job, ended: Ended, launch: Launch) -> BuildError | EnactError:
    out, err = (
        visible(text.decode("utf-8", "replace").strip()[-LONGEST_EXCERPT:])
        for text in (ended.stdout, ended.stderr)
    )
    if ended.reason == "timeout":
        return BuildError(f"did not finish within {job.bounds.time_s:g} s", None, out, err)
    if ended.reason == "size":
        return _wrote_too_much(job.limit_bytes)
    if ended.reason == "output":
        return BuildError(f"printed more than {LARGEST_LOG} bytes", None, out, err)
    if ended.exit_code == launch.failed_status:
        step = ask_user(f"check that {provider.name} works and can pull {job.bounds.image}")
        reason = f"{provider.name} failed: {err}"
        return EnactError.backend_unavailable(job.tool, reason, step)
    last = (err or out).splitlines()[-1:] or [""]
    reason = f"exited with code {ended.exit_code}: {last[0][:300]}".rstrip(": ")
    refused = launch.proxy.refused if launch.proxy else {}
    hosts = [each.removesuffix(":443").removesuffix(":80") for each in refused]
    return BuildError(reason, ended.exit_code, out, err, hosts)


class _Watch:
    """Looks now and then at how much has been written, less often where a look takes long."""

    def __init__(self, measure: Callable[[], int], limit: int) -> None:
        self._measure, self._limit = measure, limit
        self._next = 0.0

    def look(self) -> None:
        """Stop a build that has written too much. Raises `BuildError`."""
        started = time.monotonic()
        if started < self._next:
            return
        self.check()
        now = time.monotonic()
        self._next = now + _PATIENCE * (now - started)

    def check(self) -> None:
        """The same, whenever the last look was."""
        if self._measure() > self._limit:
            raise _wrote_too_much(self._limit)


def _wrote_too_much(limit: int) -> BuildError:
    return BuildError(f"wrote more than {limit // 1024**2} MiB (execution.buildSize)")


def measured(root: Path) -> int:
    """What a directory takes on disk. Raises `BuildError` where it has too much in it."""
    total = 0
    for count, (_, found) in enumerate(_entries(root)):
        if count >= MOST_ENTRIES:
            raise BuildError(f"made more than {MOST_ENTRIES} files")
        total += found.st_blocks * 512 if hasattr(found, "st_blocks") else found.st_size
    return total


def stamp_of(root: Path) -> str:
    """A text that differs once anything below a directory was changed."""
    seen = hashlib.sha256()
    for path, found in sorted(_entries(root), key=lambda each: each[0]):
        times = (found.st_mtime_ns, found.st_ctime_ns)
        row = (os.path.relpath(path, root), found.st_mode, found.st_ino, found.st_size, *times)
        seen.update(repr(row).encode("utf-8", "surrogateescape"))
    return seen.hexdigest()


def remove_tree(path: Path) -> None:
    """Remove a directory, whatever a build has put into it: unreadable, and nested without end."""
    if not path.is_dir():
        return
    with contextlib.suppress(OSError, TimeoutError):
        process.run(["chmod", "-R", "u+rwX", path], timeout_s=300)
        process.run(["rm", "-rf", "--", path], timeout_s=300)
    shutil.rmtree(path, ignore_errors=True)


def _entries(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a directory, which may change meanwhile. Raises `BuildError`."""
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listed:
                for each in listed:
                    with contextlib.suppress(FileNotFoundError):
                        found = each.stat(follow_symlinks=False)
                        yield each.path, found
                        if stat.S_ISDIR(found.st_mode):
                            waiting.append(each.path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise BuildError(f"left what cannot be read: {error.strerror}") from error


def _tidy(root: Path) -> None:
    """Take away what a build may leave that is no file, and what would run as its owner."""
    for path, found in list(_entries(root)):
        if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
            lower = stat.S_IMODE(found.st_mode) & 0o755 | stat.S_IRUSR
            if lower != stat.S_IMODE(found.st_mode):
                os.chmod(path, lower)  # noqa: PTH101 - a text that may be no valid one
        elif not stat.S_ISLNK(found.st_mode):
            os.unlink(path)  # noqa: PTH108 - the same
