"""Copies and compares directories that git does not manage."""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path


def copy_directory(
    source: Path, target: Path, without: Path, progress: Callable[[str], None]
) -> list[str]:
    """Copy a directory, links as links; leaves out one directory, should it be inside.

    Returns what could not be copied: sockets, pipes and devices.
    """
    copied = 0
    special: list[str] = []

    def skip(folder: str, names: list[str]) -> list[str]:
        odd = [name for name in names if _is_special(Path(folder, name))]
        special.extend(os.path.relpath(Path(folder, name), source) for name in odd)
        return odd + [n for n in names if Path(folder, n).resolve() == without.resolve()]

    def copy(one: str, destination: str) -> str:
        nonlocal copied
        copied += 1
        if copied % 200 == 0:
            progress(f"{copied} files copied")
        return str(shutil.copy2(one, destination))

    shutil.copytree(source, target, symlinks=True, ignore=skip, copy_function=copy)
    return sorted(special)


def same_directory(left: Path, right: Path) -> bool:
    """Whether two directories have the same files and links with the same content."""
    if not left.is_dir():
        return False
    names = _names(left)
    return names == _names(right) and all(same_entry(left / name, right / name) for name in names)


def same_entry(left: Path, right: Path) -> bool:
    """Whether two paths are the same file, link or kind of directory."""
    if left.is_symlink() or right.is_symlink():
        return left.is_symlink() and right.is_symlink() and left.readlink() == right.readlink()
    if left.is_dir() or right.is_dir():
        return left.is_dir() and right.is_dir()
    return filecmp.cmp(left, right, shallow=False)


def _is_special(path: Path) -> bool:
    kind = path.lstat().st_mode
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind))


def _names(root: Path) -> set[str]:
    return {
        os.path.relpath(Path(folder, name), root)
        for folder, folders, files in os.walk(root)
        for name in (*folders, *files)
        if not _is_special(Path(folder, name))
    }
