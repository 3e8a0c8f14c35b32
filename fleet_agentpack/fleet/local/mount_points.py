"""Keeps the places clear where an agent's sandbox mounts something inside the agent's own home.

Bubblewrap follows links when it makes a mount point, also out of the sandbox that it is about to
make. The agent may have put some into its home when it last ran. Only the standard library is used:
the runner does this, too.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path


def clear_mount_points(command: Sequence[str], owned: Sequence[str]) -> None:
    """Remove links, and move other things, where a sandbox's command will mount something.

    `owned` are the directories that the agent may change, the outer ones first.
    """
    for outer, inner in pairwise(owned):
        _clear(Path(outer), Path(inner).relative_to(outer), is_folder=True)
    mounts = [
        (Path(source), Path(target))
        for how, source, target in zip(command, command[1:], command[2:], strict=False)
        if how in ("--bind", "--ro-bind")
    ]
    bases = [(source, target) for source, target in mounts if str(source) in owned]
    for source, target in mounts:
        for place, base in bases:
            if target != base and target.is_relative_to(base):
                _clear(place, target.relative_to(base), is_folder=source.is_dir())


def _clear(place: Path, way: Path, *, is_folder: bool) -> None:
    for number, part in enumerate(way.parts, 1):
        place /= part
        if place.is_symlink():
            place.unlink()
        elif place.exists() and place.is_dir() != (is_folder or number < len(way.parts)):
            _move_away(place)


def _move_away(place: Path) -> None:
    number = 1
    while (aside := place.with_name(f"{place.name}.{number}")).exists():
        number += 1
    with suppress(OSError):
        os.rename(place, aside)  # noqa: PTH104 - a link would be renamed itself
