"""What an answer is made from: everything that looks at a file says so first, if anybody listens.

A server remembers its answers with the help of this (`unchanged.py`); elsewhere nobody listens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol


class Listener(Protocol):
    """Hears of each look before it is taken."""

    def at(self, path: str) -> None:
        """At a path, whether or not anything is there; links are followed."""

    def into(self, directory: str) -> None:
        """At all that is in a directory, but not at where links in it lead."""

    def files(self, paths: Iterable[str]) -> None:
        """At files, most of them in directories that are known already."""

    def shared(self, path: str) -> None:
        """At a file that has other names."""

    def beyond_files(self) -> None:
        """At something that is no file here."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def told_to(listener: Listener) -> Iterator[None]:
    """Tell a listener of every look inside the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def at(path: str | Path) -> None:
    """Say that a path will be looked at, whether or not anything is there."""
    if listener := _listener.get():
        listener.at(str(path))


def into(directory: str | Path) -> None:
    """Say that a directory will be listed, or that many of its files will be looked at."""
    if listener := _listener.get():
        listener.into(str(directory))


def files(paths: Iterable[str]) -> None:
    """Say that these files will be looked at."""
    if listener := _listener.get():
        listener.files(paths)


def shared(path: str) -> None:
    """Say that a file has other names, through which it may be written to."""
    if listener := _listener.get():
        listener.shared(path)


def beyond_files() -> None:
    """Say that the answer depends on more than files: on the network, or on who holds a lock."""
    if listener := _listener.get():
        listener.beyond_files()
