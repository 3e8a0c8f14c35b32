"""The desired state: the outputs of all targets, merged; clashes are refused."""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from fleet_agentpack.deploy.errors import DeployError, both_ways
from fleet_agentpack.deploy.model import Blob, Output, Root, owner
from fleet_agentpack.deploy.runs import Run, in_a_row, runs_of

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
    parts: Mapping[str, Sequence[Part]] = field(default_factory=dict)  # where no path is in two

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
        return replace(self, outputs=outputs, directories=directories, parts={})

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
    def runs(self) -> list[Run]:
        """Every output, by target and path."""
        found: list[Run] = []
        for target, outputs in sorted(self.outputs.items()):
            runs = in_a_row(run for part in self.parts.get(target, ()) for run in part.runs)
            found += runs or runs_of(outputs.values())
        return found

    @property
    def holding(self) -> set[Root]:
        """The roots that hold outputs."""
        places = self.directories.values()
        return {root for found in places for root, _ in found.values()}


@dataclass(eq=False)
class Part:
    """Outputs of one root that are made together, by path and by directory."""

    outputs: Mapping[str, Output]
    directories: Mapping[str, tuple[Root, list[str]]]
    rest: tuple[Output, ...] = ()  # for paths that another output of the part has, too

    @classmethod
    def of(cls, outputs: Iterable[Output]) -> Part:
        """The part that some outputs of one root are."""
        by_path: dict[str, Output] = {}
        directories: dict[str, tuple[Root, list[str]]] = {}
        rest = []
        for output in outputs:
            path = output.path
            if path in by_path:
                rest.append(output)
                continue
            by_path[path] = output
            parent = path[: path.rfind("/")] or "/"
            place = directories.get(parent)
            if place is None:
                directories[parent] = (output.root, [path])
            else:
                place[1].append(path)
        return cls(by_path, directories, tuple(rest))

    @classmethod
    def of_tree(
        cls, root: Root, place: str, tree: Mapping[str, Blob], module_ids: tuple[str, ...]
    ) -> Part:
        """A whole tree in a directory of its own; written for speed."""
        new, prefix = partial(tuple.__new__, Output), f"{place}/"
        outputs: dict[str, Output] = {
            path: new((root, path, blob, module_ids))
            for name, blob in tree.items()
            for path in [prefix + name]
        }
        paths, start = list(outputs), 0
        directories: dict[str, tuple[Root, list[str]]] = {}
        for below, count in _runs(tuple(tree)):
            inside = paths[start : start + count]
            start += count
            directory = prefix + below if below else place
            if directory in directories:
                directories[directory][1].extend(inside)
            else:
                directories[directory] = (root, inside)
        return cls(outputs, directories)

    @cached_property
    def runs(self) -> list[Run]:
        """Its outputs as records list them."""
        return runs_of(self.outputs.values())

    @cached_property
    def above(self) -> set[str]:
        """The directories below the root that its outputs need."""
        found: set[str] = set()
        for directory, (root, _) in self.directories.items():
            while len(directory) > len(root.dir) and directory not in found:
                found.add(directory)
                directory = directory.rpartition("/")[0]
        return found

    @property
    def all(self) -> Iterator[Output]:
        """Its outputs one by one."""
        yield from self.outputs.values()
        yield from self.rest


@lru_cache(maxsize=4096)
def _runs(names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """The directories of a tree's names, each with how many names in a row are in it."""
    found = groupby(name.rpartition("/")[0] for name in names)
    return tuple((directory, len(list(inside))) for directory, inside in found)


def merge(areas: Sequence[tuple[Root, Iterable[Part]]], before: Desired | None = None) -> Desired:
    """One desired state from every area's outputs, made from an earlier one where that is quicker.

    Raises `E_DESIRED_STATE_CONFLICT`.
    """
    by_place = {(root.target, root.dir): root for root, _ in reversed(areas)}
    kept = tuple(sorted(by_place.values()))
    made_of: dict[str, list[Part]] = {root.target: [] for root in kept}
    for root, parts in areas:
        mixed = by_place[root.target, root.dir] != root or _has_roots_inside(root, kept)
        made_of[root.target] += [_by_owner(part, root, kept) for part in parts] if mixed else parts
    known = before if before is not None and before.roots == kept else None
    merged = {
        target: (known and _exchanged(known, target, parts)) or _joined(parts)
        for target, parts in made_of.items()
    }
    desired = Desired(
        kept,
        {target: found.outputs for target, found in merged.items()},
        {target: found.directories for target, found in merged.items()},
        parts={target: made_of[target] for target, found in merged.items() if found.is_plain},
    )
    _refuse_too_long(desired)
    _refuse_file_as_directory(desired)
    _refuse_same_name(desired)
    return desired


class _OfTarget(NamedTuple):
    """The outputs of one target."""

    outputs: Mapping[str, Output]
    directories: Mapping[str, tuple[Root, list[str]]]
    is_plain: bool  # whether no path was wanted twice


def _joined(parts: Iterable[Part]) -> _OfTarget:
    outputs: dict[str, Output] = {}
    places: dict[str, tuple[Root, list[str]]] = {}
    is_plain = True
    for part in parts:
        if part.rest or not outputs.keys().isdisjoint(part.outputs):
            is_plain, part = False, _without_known(part, outputs)
        outputs.update(part.outputs)
        for output in part.rest:
            outputs[output.path] = _merged(outputs[output.path], output)
        if places.keys().isdisjoint(part.directories):
            places.update(part.directories)
            continue
        for directory, (holder, paths) in part.directories.items():
            known = places.get(directory)  # whose list another part may have, too
            places[directory] = (known[0], [*known[1], *paths]) if known else (holder, paths)
    return _OfTarget(outputs, places, is_plain)


def _exchanged(before: Desired, target: str, parts: Sequence[Part]) -> _OfTarget | None:
    """The outputs as they were before but for their contents, None if more than that differs."""
    known = before.parts.get(target, ())
    if len(known) != len(parts):
        return None
    outputs = dict(before.outputs[target])
    for one, other in zip(known, parts, strict=True):
        if one is other:
            continue
        if one.outputs.keys() != other.outputs.keys() or one.directories != other.directories:
            return None
        if other.rest:
            return None
        outputs.update(other.outputs)
    return _OfTarget(outputs, before.directories[target], is_plain=True)


def _by_owner(part: Part, root: Root, roots: tuple[Root, ...]) -> Part:
    """The part with each output in the deepest root that it is in."""
    return Part.of(
        output._replace(root=owner(roots, root.target, output.path) or output.root)
        for output in part.all
    )


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


def _without_known(part: Part, known: dict[str, Output]) -> Part:
    """The part without the outputs that were merged with known ones."""
    new = []
    for output in part.all:
        if output.path in known:
            known[output.path] = _merged(known[output.path], output)
        else:
            new.append(output)
    return Part.of(new)


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
        parts = desired.parts.get(target)
        if parts is not None and all(outputs.keys().isdisjoint(part.above) for part in parts):
            continue
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
    folding = {root for root in desired.roots if folds_names(root.dir)}
    for target in {root.target for root in folding}:
        seen: dict[str, Output] = {}
        for path, output in desired.outputs[target].items():
            known = seen.setdefault(_folded(path), output)
            if known is not output and output.root in folding:
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
