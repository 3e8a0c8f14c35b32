"""Limits that a shell sets before it becomes a program; its processes can only lower them."""

from __future__ import annotations

from collections.abc import Sequence

ADDRESS_SPACE = 8  # times the memory: some runtimes reserve far more than they use
# `-u` is bash's name for the number of processes, `-p` dash's.
_LIMITS = (
    "ulimit -c 0; ulimit -d {0}; ulimit -v {1}; "
    '{{ ulimit -u {2} || ulimit -p {2}; }} 2>/dev/null; exec "$@"'
)


def limited(argv: Sequence[str], memory_bytes: int, processes: int) -> list[str]:
    """A command within limits for each of its processes."""
    kilobytes = memory_bytes // 1024
    limits = _LIMITS.format(kilobytes, kilobytes * ADDRESS_SPACE, processes)
    return ["/bin/sh", "-c", limits, "sh", *argv]
