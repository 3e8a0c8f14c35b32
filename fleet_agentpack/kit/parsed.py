"""Keeps what was made from a file's bytes until they are others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from fleet_agentpack.kit.stamps import Stamp, settled, stamp

T = TypeVar("T")


class Parsed(Generic[T]):
    """The last value made from a file, known by its stamp, or else by the hash of its bytes."""

    def __init__(self) -> None:
        self._kept: tuple[str, T] | None = None
        self._seen: tuple[Path, Stamp] | None = None

    def get(self, path: Path, parse: Callable[[bytes], T]) -> T:
        """The value that belongs to the file as it is now. Raises what reading and parsing do."""
        found = stamp(path)  # before it is read: a change then shows later
        if self._kept is not None and found is not None and self._seen == (path, found):
            return self._kept[1]
        data = path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        if self._kept is None or self._kept[0] != sha256:
            self._kept = sha256, parse(data)
        self._seen = (path, found) if found is not None and settled(found) else None
        return self._kept[1]

    @property
    def sha256(self) -> str:
        """The hash of the bytes that the last value was made from; empty if there is none."""
        return self._kept[0] if self._kept is not None else ""

    def expect(self, sha256: str, value: T) -> None:
        """Say what the file will give, because it was written just so."""
        self._kept, self._seen = (sha256, value), None
