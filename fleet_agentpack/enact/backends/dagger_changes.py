"""Gives back what a tool has changed in its copy of a directory, where the user has not.

The user works in the directory while the tool works on its copy. What both have changed stays as
the user has it, and what the tool has deleted goes only if it is still as the tool saw it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

Stamp = tuple[int, object]  # the mode, and what changes with the content; nothing for a directory


class Lazy(Protocol):
    """An object of the SDK, which is not always installed: a query that is not sent yet."""

    def __getattr__(self, name: str) -> Any: ...


class Writable(NamedTuple):
    """A directory that a tool may change."""

    path: str
    hidden: Sequence[str]
    before: Lazy  # the copy, without what is hidden
    seen: dict[str, Stamp]  # what was in the directory when it was copied


def stamps(root: str) -> dict[str, Stamp]:
    """What is in a directory, so that a change is noticed."""
    found: dict[str, Stamp] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118 - many of them
            with contextlib.suppress(OSError):
                facts = os.lstat(path)
                content = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
                is_folder = stat.S_ISDIR(facts.st_mode)
                stamp = (facts.st_mode, None if is_folder else content)
                found[os.path.relpath(path, root)] = stamp
    return found


async def give_back(place: Writable, after: Lazy) -> list[str]:
    """Write what a tool has changed; tells what was kept since the user has changed it too."""
    changes = after.changes(place.before)
    added = {*map(_plain, await changes.added_paths())}
    made = added | {*map(_plain, await changes.modified_paths())}
    removed = await _every_path(place.before, await changes.removed_paths())
    merge = _Merge(place)
    # What makes room goes first, everything else last: nothing is lost if the engine fails.
    making_room = {each for each in removed if not made.isdisjoint((each, *_above(each)))}
    merge.remove(making_room)
    layer = changes.layer()
    listed = await layer.glob("**")
    folders = {_plain(each) for each in listed if each.endswith("/")}
    if given := set(merge.accepted(made, added, folders)):
        await _only(given, layer, listed).export(place.path)
    merge.remove(removed - making_room)
    return sorted(str(Path(place.path, each)) for each in merge.kept)


class _Merge:
    """The tool's changes and the user's, in one directory."""

    def __init__(self, place: Writable) -> None:
        self.kept: set[str] = set()
        self._root, self._hidden = place.path, frozenset(place.hidden)
        self._seen, self._now = dict(place.seen), stamps(place.path)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove what is as the tool saw it, and directories that are empty then."""
        for each in sorted(paths, reverse=True):
            was, now = self._seen.get(each), self._now.get(each)
            if now is None:
                self._seen.pop(each, None)
            elif now != was:
                self.kept.add(each)
            elif self._removed(each, now):
                del self._seen[each], self._now[each]

    def accepted(
        self, made: Collection[str], added: Collection[str], folders: Collection[str]
    ) -> Iterator[str]:
        """What the tool has made and the user has not touched."""
        for each in sorted(made):
            if self._is_hidden(each):
                continue
            if others := [above for above in _above(each) if self._is_other(above)]:
                self.kept.update(others)
                continue
            now = self._now.get(each)
            if each in folders:
                is_free = now is None or stat.S_ISDIR(now[0])
            else:
                # What is there though the tool added it was hidden from it.
                is_free = now == self._seen.get(each) and (each not in added or now is None)
            if is_free:
                yield each
            else:
                self.kept.add(each)

    def _removed(self, path: str, stamp: Stamp) -> bool:
        whole = Path(self._root, path)
        try:
            whole.rmdir() if stat.S_ISDIR(stamp[0]) else whole.unlink()
        except OSError:
            return False
        return True

    def _is_other(self, path: str) -> bool:
        """Whether a path above one is the user's now, and no directory."""
        now = self._now.get(path)
        return now is not None and not stat.S_ISDIR(now[0])

    def _is_hidden(self, path: str) -> bool:
        return not self._hidden.isdisjoint((path, *_above(path)))


async def _every_path(folder: Lazy, removed: Iterable[str]) -> set[str]:
    """Removed paths, with everything that was in those that are directories."""
    found = set()
    for each in removed:
        found.add(_plain(each))
        if each.endswith("/"):
            inside = await folder.directory(each).glob("**")
            found |= {f"{_plain(each)}/{_plain(path)}" for path in inside}
    return found


def _only(wanted: Collection[str], layer: Lazy, listed: Iterable[str]) -> Lazy:
    """A directory without what is not wanted, such as devices."""
    stays = {*wanted, *(above for each in wanted for above in _above(each))}
    for each in listed:
        path = _plain(each)
        if path not in stays and stays.issuperset([*_above(path)][:1]):
            is_folder = each.endswith("/")
            layer = layer.without_directory(path) if is_folder else layer.without_file(path)
    return layer


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _plain(path: str) -> str:
    return path.strip("/")
