"""Which program of this machine is at the other end of a connection; Linux tells."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

MOST_KNOWN = 1024
_TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
_LOCAL, _REMOTE, _INODE = 1, 2, 9  # columns

Address = tuple[str, int]


class Peers:
    """The programs that hold connections to this one, each looked for once."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, str | None] = OrderedDict()  # by socket: no two share one

    def program(self, peer: Address, here: Address) -> str | None:
        """The process id of a client; None for one elsewhere, or of a user we cannot look at."""
        if peer[0] != here[0] or (found := _socket_of(peer, here)) is None:
            return None
        if found not in self._known:
            self._known[found] = next(_holders(f"socket:[{found}]"), None)
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return self._known[found]


def _socket_of(peer: Address, here: Address) -> str | None:
    """The number of the client's socket."""
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    with contextlib.suppress(OSError):
        wanted = [_written(family, each) for each in (peer, here)]
        for columns in map(str.split, _TABLES[family].read_text().splitlines()):
            if columns[_LOCAL : _REMOTE + 1] == wanted:
                return columns[_INODE]
    return None


def _written(family: socket.AddressFamily, address: Address) -> str:
    """An address as the kernel's tables have it: words of its own byte order."""
    packed = socket.inet_pton(family, address[0])
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return f"{''.join(_word(each) for each in words)}:{address[1]:04X}"


def _word(packed: bytes) -> str:
    return f"{int.from_bytes(packed, sys.byteorder):08X}"


def _holders(link: str) -> Iterator[str]:
    """The processes that have a socket open, the oldest first."""
    with contextlib.suppress(OSError):
        for process in sorted(filter(str.isdecimal, os.listdir("/proc")), key=int):  # noqa: PTH208
            with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/fd") as files:
                if any(_leads_to(each.path, link) for each in files):
                    yield process


def _leads_to(path: str, link: str) -> bool:
    with contextlib.suppress(OSError):
        return os.readlink(path) == link  # noqa: PTH115 - it is called thousands of times
    return False
