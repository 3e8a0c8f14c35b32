"""Where work goes that would be lost with an agent's directory."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_NAMED = 5  # kept files that a message names
GENERATED = {"__pycache__", "node_modules"}
GENERATED_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")  # in caches and virtual environments


@dataclass(frozen=True)
class KeptFiles:
    """The directory of what is kept."""

    root: Path

    def keep_whole(self, target: Path, why: str) -> tuple[Path, str]:
        """Move a whole directory here; returns where it is, and a note."""
        place = self._new_place(target)
        shutil.move(str(target), str(place))
        return place, f"Its directory was kept as {place} because {why}."

    def keep_some(self, target: Path, paths: Sequence[str]) -> list[str]:
        """Move files that may be work out of a directory; returns notes."""
        kept = [path for path in paths if not _is_generated(target, path)]
        if not kept:
            return []
        place = self._new_place(target)
        for path in kept:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(str(target / path), str(place / path))
        return [f"Files that git ignores were kept in {place}: {named(kept)}."]

    def _new_place(self, target: Path) -> Path:
        self.root.mkdir(parents=True, exist_ok=True)
        wanted = self.root / f"{target.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        place, number = wanted, 1
        while place.exists():
            number += 1
            place = wanted.with_name(f"{wanted.name}-{number}")
        return place


def named(paths: Sequence[str]) -> str:
    """A few of these paths, for a message."""
    return ", ".join(paths[:MAX_NAMED]) + (", …" if len(paths) > MAX_NAMED else "")


def _is_generated(target: Path, path: str) -> bool:
    """Whether an ignored path can be generated again; it is not work, and may be huge."""
    return bool(GENERATED & set(Path(path).parts)) or any(
        (target / path / mark).exists() for mark in GENERATED_MARKS
    )


def remove_tree(root: Path) -> None:
    """Remove a directory, also where an agent took away its own right to change it.

    It gets another name first: half removed, it must never be taken for work that deletes files.
    """
    doomed = root.with_name(f".{root.name}.removing")
    if doomed.exists():  # an earlier removal was killed
        _remove(doomed)
    if root.exists():
        root.rename(doomed)
        _remove(doomed)


def _remove(root: Path) -> None:
    def allow(_function: object, path: str, _error: object) -> None:
        for each in (Path(path).parent, Path(path)):
            if not each.is_symlink() and each.is_relative_to(root):
                each.chmod(0o700)
        if Path(path).is_dir() and not Path(path).is_symlink():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    shutil.rmtree(root, onerror=allow)
