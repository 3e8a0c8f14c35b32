"""Installed tools as they are listed, kept for the front in a file of our cache directory.

The file belongs to the files that it was made from: with other stamps than these it is not used.
"""

from __future__ import annotations

import json
import os
import stat
from binascii import crc32
from typing import TYPE_CHECKING, Any, NamedTuple

from fleet_agentpack.kit.stamps import UNCERTAIN, Stamp, stamp
from fleet_agentpack.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LARGEST_STATE = 1 << 24


class ListedTool(NamedTuple):
    """One tool as it is listed in both eras."""

    legacy: str
    modern: str
    writes: bool


class InstalledState(NamedTuple):
    """The tools, and the files that say so."""

    stamps: Mapping[str, Stamp | None]
    tools: tuple[ListedTool, ...]

    @property
    def certain(self) -> bool:
        """Whether any later change of these files is bound to show."""
        return UNCERTAIN not in self.stamps.values()

    @property
    def current(self) -> bool:
        """Whether no file has changed since."""
        return stamps_of(self.stamps) == self.stamps

    def to_json(self) -> str:
        """The file's text."""
        kept = {"version": __version__, "stamps": self.stamps, "tools": self.tools}
        return json.dumps(kept, ensure_ascii=False)


def stamps_of(paths: Iterable[str]) -> dict[str, Stamp | None]:
    """The stamps of some files as they are now."""
    return {path: stamp(path) for path in paths}


def state_path(cache: str, domain: str) -> str:
    """Where a domain's installed tools are kept."""
    return os.path.join(cache, f"{domain}-listed.json")  # noqa: PTH118


def prompts_state_path(cache: str, domain: str, project: str) -> str:
    """Where the prompts that a domain finds in a project are kept."""
    return state_path(cache, f"{domain}-prompts-{crc32(os.fsencode(project)):08x}")


def read_state(path: str) -> InstalledState | None:
    """The kept state; None when there is none that this version wrote."""
    try:
        kept: Any = json.loads(_text_of(path))
        stamps = {path: each and tuple(each) for path, each in kept["stamps"].items()}
        state = InstalledState(stamps, tuple(_listed_tool(*each) for each in kept["tools"]))
        return state if kept["version"] == __version__ else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _text_of(path: str) -> bytes:
    """What is in a file of a sensible size; nothing of a pipe, which would keep us waiting."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as stream:  # noqa: PTH123
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_STATE:
            return b""
        return stream.read()


def _listed_tool(legacy: str, modern: str, writes: object) -> ListedTool:
    if "\n" in legacy + modern:
        raise ValueError("more than one line")
    return ListedTool(legacy, modern, bool(writes))


class InstalledTools:
    """The tools, or the prompts, that come and go, as the front knows them."""

    def __init__(self, roots: list[str], kept: str, method: str = "tools/list") -> None:
        self._roots, self._kept, self.method = roots, kept, method
        self.known = stamps_of(roots)  # the files that the last list was made from, as they were

    def listed(self, *, modern: bool, show: Callable[..., str]) -> list[str] | None:
        """The tools as they are listed; None when only the server can tell.

        `show` makes of a tool's text, and whether it `writes`, what is listed, if anything.
        """
        if not any(map(may_exist, self._roots)):
            self.known = dict.fromkeys(self._roots)
            return []
        state = read_state(self._kept)
        if state is None or not state.current or not state.stamps.keys() >= set(self._roots):
            return None
        self.known = dict(state.stamps)
        shown = (
            show(each.modern if modern else each.legacy, writes=each.writes, method=self.method)
            for each in state.tools
        )
        return [text for text in shown if text]


def may_exist(path: str) -> bool:
    """Whether there is something at a path, or no way to know."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True
