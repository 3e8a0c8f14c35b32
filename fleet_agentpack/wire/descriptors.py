"""Takes the two descriptors that carry JSON-RPC out of everybody else's reach.

The command line does this before the heavy imports, so nothing heavy is imported here.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet_agentpack.kit.stamps import Stamp


class Handover(NamedTuple):
    """What the front leaves to the server when it hands over the wire."""

    unread: bytes = b""  # the handshake again, then what the client sent and nobody has answered
    unwritten: bytes = b""  # answers that the client has not taken yet
    listed: Mapping[str, Stamp | None] | None = None  # the files behind the list the client has


NOTHING_LEFT = Handover()
LAST_STANDARD = 2


class ClaimedStdio(NamedTuple):
    """The two descriptors that carry JSON-RPC."""

    reading: int
    writing: int

    @classmethod
    def claim(cls) -> ClaimedStdio:
        """Move standard input and output away, so that nothing else reads or writes the wire.

        From here on, standard input is empty and standard output is standard error.
        """
        null = _null_above_the_standard_ones()
        claimed = cls(_duplicate(0), _duplicate(1))
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.close(null)
        return claimed

    def give_back(self, left: Handover = NOTHING_LEFT) -> None:
        """Make them standard input and output again, for a server that knows no others."""
        os.dup2(self.writing, 1)
        os.write(1, left.unwritten)
        os.dup2(self._with_unread(left.unread) if left.unread else self.reading, 0)

    def _with_unread(self, unread: bytes) -> int:
        """A pipe that carries these bytes, then everything that is still to be read."""
        from threading import Thread

        reading, writing = os.pipe()

        def pump() -> None:
            chunk = unread
            with open(writing, "wb", buffering=0) as pipe:  # noqa: PTH123
                while chunk:
                    pipe.write(chunk)
                    chunk = os.read(self.reading, 1 << 16)

        Thread(target=pump, daemon=True).start()
        return reading


def read_some(descriptor: int, size: int) -> bytes:
    """What there is to read, once there is something; empty at the end."""
    while True:
        try:
            return os.read(descriptor, size)
        except BlockingIOError:  # whoever shares it does not want to wait; we do
            select.select([descriptor], [], [])


def write_some(descriptor: int, data: bytes | memoryview) -> int:
    """Write at least a part, and say how much."""
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:
            select.select([], [descriptor], [])


def _null_above_the_standard_ones() -> int:
    """An empty descriptor; those of the standard three that the caller closed become one too.

    Otherwise the next file that is opened would be taken for one of them.
    """
    while (null := os.open(os.devnull, os.O_RDWR)) <= LAST_STANDARD:
        pass
    return null


def _duplicate(descriptor: int) -> int:
    duplicate = os.dup(descriptor)
    if os.name == "nt":
        import msvcrt

        msvcrt.setmode(duplicate, os.O_BINARY)  # type: ignore[attr-defined,unused-ignore]
    return duplicate
