"""The desired state: the outputs of all targets, merged; clashes are refused."""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleet_agentpack.deploy.errors import DeployError, both_ways
from fleet_agentpack.deploy.model import Output, Root, owner

_SURELY_SHORT = 250  # characters of a whole path, if they are ASCII
_LONGEST_PATH = 4000  # below PATH_MAX, with room for a temporary name beside it


@dataclass(frozen=True)
class Desired:
    """Outputs by target and path, and the same paths by target and directory."""

    roots: tuple[Root, ...]
    outputs: Mapping[str, Mapping[str, Output]]
    directories: Mapping[str, Mapping[str, tuple[Root, list[str]]]]
    warnings: tuple[str, ...] = ()  # about the lockfile and the modules behind it
    failed: Mapping[str, DeployError] = field(default_factory=dict)  # targets left out, and why

    def without(self, paths: Collection[str]) -> Desired:
        """The same without some files, whatever their target."""
        if not paths:
            return self
        outputs = {
            target: {path: output for path, output in found.items() if path not in paths}
            for target, found in self.outputs.items()
        }
        directories = {
            target: {
                directory: (root, rest)
                for directory, (root, inside) in found.items()
                if (rest := [path for path in inside if path not in paths])
            }
            for target, found in self.directories.items()
        }
        return replace(self, outputs=outputs, directories=directories)

    def of(self, root: Root) -> list[Output]:
        """The outputs that belong to a root, by path."""
        found = [
            output for output in self.outputs.get(root.target, {}).values() if output.root == root
        ]
        return sorted(found, key=lambda output: output.path)

    @property
    def all(self) -> Iterable[Output]:
        """Every output."""
        for outputs in self.outputs.values():
            yield from outputs.values()

    @property
    def in_order(self) -> list[Output]:
        """Every output, by target and path."""
        by_target = [found for _, found in sorted(self.outputs.items())]
        return [found[path] for found in by_target for path in sorted(found)]

    @property
    def holding(self) -> set[Root]:
        """The roots that hold outputs."""
        places = self.directories.values()
        return {root for found in places for root, _ in found.values()}


def merge(areas: Sequence[tuple[Root, Iterable[Output]]]) -> Desired:
    """One desired state from every area's outputs. Raises `E_DESIRED_STATE_CONFLICT`."""
    by_place = {(root.target, root.dir): root for root, _ in reversed(areas)}
    kept = tuple(sorted(by_place.values()))
    merged: dict[str, dict[str, Output]] = {root.target: {} for root in kept}
    directories: dict[str, dict[str, tuple[Root, list[str]]]] = {root.target: {} for root in kept}
    for root, outputs in areas:
        mixed = by_place[root.target, root.dir] != root or _has_roots_inside(root, kept)
        of_target, places = merged[root.target], directories[root.target]
        for output in outputs:
            if mixed:
                found = owner(kept, root.target, output.path) or output.root
                output = output._replace(root=found)
            path = output.path
            if path in of_target:
                of_target[path] = _merged(of_target[path], output)
                continue
            of_target[path] = output
            parent = path[: path.rfind("/")] or "/"
            place = places.get(parent)
            if place is None:
                places[parent] = (output.root, [path])
            else:
                place[1].append(path)
    desired = Desired(kept, merged, directories)
    _refuse_too_long(desired)
    _refuse_file_as_directory(desired)
    _refuse_same_name(desired)
    return desired


def _refuse_too_long(desired: Desired) -> None:
    """Refuse what no file system accepts before anything is written."""
    for outputs in desired.outputs.values():
        if max(map(len, outputs), default=0) <= _SURELY_SHORT and "".join(outputs).isascii():
            continue
        for path in outputs:
            longest = max(map(len, map(os.fsencode, path.split("/"))))
            if len(os.fsencode(path)) > _LONGEST_PATH or longest > 255:
                error = OSError(errno.ENAMETOOLONG, "the name is too long")
                raise DeployError.io(path, error, "write")


def _has_roots_inside(root: Root, roots: Sequence[Root]) -> bool:
    prefix = root.path("")
    return any(
        other.target == root.target and other.dir != root.dir and other.dir.startswith(prefix)
        for other in roots
    )


def _merged(one: Output, other: Output) -> Output:
    if one.blob.sha256 != other.blob.sha256:
        raise _conflict(one, other, "want different contents for")
    ids = tuple(sorted({*one.module_ids, *other.module_ids}))
    blob = one.blob if one.blob.executable else other.blob
    return one._replace(module_ids=ids, blob=blob)


def _refuse_file_as_directory(desired: Desired) -> None:
    """A path cannot be a file for one module and a directory for another."""
    for target, outputs in desired.outputs.items():
        checked: set[str] = set()
        for directory, (root, paths) in desired.directories[target].items():
            while len(directory) > len(root.dir) and directory not in checked:
                if directory in outputs:
                    inside = outputs[paths[0]]
                    raise _conflict(outputs[directory], inside, "want a file and a directory at")
                checked.add(directory)
                directory = directory.rpartition("/")[0]


def _refuse_same_name(desired: Desired) -> None:
    """Names that differ only in case or Unicode form are one file on some file systems."""
    for outputs in desired.outputs.values():
        paths = "\0".join(outputs)  # in one piece: there may be ten thousand
        if paths.isascii() and len(set(paths.lower().split("\0"))) == max(len(outputs), 1):
            continue
        seen: dict[str, Output] = {}
        for path, output in outputs.items():
            known = seen.setdefault(_folded(path), output)
            if known is not output and folds_names(output.root.dir):
                raise _conflict(known, output, "clash, because the file system ignores case, at")


def _folded(path: str) -> str:
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


def folds_names(directory: str) -> bool:
    """Whether the file system of a directory treats `A` and `a` as one name."""
    place = Path(directory)
    while not place.exists() and place != place.parent:
        place = place.parent
    swapped = str(place).swapcase()
    try:
        return swapped != str(place) and os.path.samefile(place, swapped)
    except OSError:
        return False


def _conflict(one: Output, other: Output, clash: str) -> DeployError:
    def side(output: Output) -> dict[str, list[str] | str]:
        return {"module_ids": list(output.module_ids), "sha256": output.blob.sha256}

    ids = " and ".join(", ".join(output.module_ids[:4]) for output in (one, other))
    return DeployError(
        "E_DESIRED_STATE_CONFLICT",
        f"{ids} {clash} {one.root.target} {one.path}",
        advice=["E_DESIRED_STATE_CONFLICT: rename one of the modules, or change its targets"],
        target=one.root.target,
        existing=side(one),
        new=side(other),
        **both_ways(path=one.path),
    )
