"""What is mounted where on Linux, and whether that has changed."""

from __future__ import annotations

import re
import select

# Only what this machine's own kernel changes is sure to be notified. Not here: network and FUSE
# mounts, 9p and virtiofs (others change them), and overlays, whose layers may change below them.
_DISKS = ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "xfs", "zfs")
NOTIFYING = frozenset({*_DISKS, "ramfs", "tmpfs"})


class Mounts:
    """The mount table of this process. Raises `OSError` where there is none."""

    def __init__(self) -> None:
        self._table = open("/proc/self/mountinfo", "rb", buffering=0)  # noqa: PTH123, SIM115
        self._poll = select.poll()
        self._poll.register(self._table, select.POLLPRI | select.POLLERR)

    def changed(self) -> bool:
        """Whether anything was mounted or unmounted since the last time."""
        return bool(self._poll.poll(0))

    def kinds(self) -> dict[str, str]:
        """The kind of file system at each mount point; a later mount hides an earlier one."""
        self._table.seek(0)
        kinds = {}
        for line in (self._table.readall() or b"").splitlines():
            places, _, source = line.partition(b" - ")
            point = _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), places.split()[4])
            kinds[point.decode("utf-8", "surrogateescape")] = source.split()[0].decode()
        return kinds

    def close(self) -> None:
        """Let go of the table."""
        self._table.close()


_ESCAPED = re.compile(rb"\\([0-7]{3})")
