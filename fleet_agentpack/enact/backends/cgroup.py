"""Limits for a run as a whole, by a cgroup of its own where the user's session may make one."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fleet_agentpack.enact.permissions import Bounds

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
# A shell moves itself into the group and becomes the sandbox, so that nothing starts outside of it.
_ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


def delegated(root: Path = ROOT, own: Path = OWN) -> Path | None:
    """The nearest group above this process in which the user may make others; None without one."""
    try:
        lines = own.read_text().splitlines()
        place = next(line[3:] for line in lines if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    here = root / place.strip("/")
    for group in (here, *here.parents):
        if not group.is_relative_to(root):
            return None
        with contextlib.suppress(OSError):
            shared = (group / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= set(shared) and _is_ours(group):
                return group
    return None


@contextmanager
def entered(parent: Path | None, bounds: Bounds, argv: Sequence[str]) -> Iterator[list[str]]:
    """A command in a group of its own with these limits; as it is where there can be none."""
    group = _made(parent, bounds) if parent else None
    if group is None:
        yield list(argv)
        return
    try:
        yield ["/bin/sh", "-c", _ENTER, str(group), *argv]
    finally:
        _remove(group)


def _is_ours(group: Path) -> bool:
    return all(os.access(each, os.W_OK) for each in (group, group / "cgroup.procs"))


def _made(parent: Path, bounds: Bounds) -> Path | None:
    group = parent / f"fleet-agentpack-{secrets.token_hex(6)}"
    try:
        group.mkdir()
        (group / "memory.max").write_text(str(bounds.memory_bytes))
        (group / "pids.max").write_text(str(bounds.processes))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return None
    with contextlib.suppress(OSError):  # not every kernel counts swap
        (group / "memory.swap.max").write_text("0")
    return group


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")
    for _ in range(20):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.01)
