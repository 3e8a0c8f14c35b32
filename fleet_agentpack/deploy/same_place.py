"""Directories under two names: a linked home, or one skills directory for two programs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

from fleet_agentpack.deploy.errors import DeployError, both_ways
from fleet_agentpack.deploy.model import Output, Root
from fleet_agentpack.deploy.ownership import Record


def by_known_name(root: Root, record: Record) -> Root:
    """A root under the name by which its directory was deployed to first."""
    names = {holding.root for holding in record.holdings if holding.target == root.target}
    if root.dir in names:
        return root
    real = os.path.realpath(root.dir)
    known = (name for name in sorted(names) if os.path.realpath(name) == real)
    return root._replace(dir=next(known, root.dir))


def is_at(path: str, place: str) -> bool:
    """Whether a file is the one at a place, or below it, by whatever names."""
    if path == place or path.startswith(f"{place}/"):
        return True
    real, wanted = os.path.realpath(path), os.path.realpath(place)
    return real == wanted or real.startswith(f"{wanted}/")


class Places:
    """Where outputs really are, as far as one directory is the root of several targets."""

    def __init__(self, roots: Iterable[Root]) -> None:
        real = {root: os.path.realpath(root.dir) for root in roots}
        often = {place for place, times in Counter(real.values()).items() if times > 1}
        self._real = {root: place for root, place in real.items() if place in often}
        self._first: dict[str, Output] = {}

    def written_twice(self, outputs: Iterable[Output]) -> set[str]:
        """The paths that are the file of an earlier output by another name.

        Raises `DeployError` where the two should have different contents.
        """
        again: set[str] = set()
        for output in outputs if self._real else ():
            place = self._place(output.root, output.path)
            known = self._first.setdefault(place, output) if place else output
            if known.blob.sha256 != output.blob.sha256:
                raise _conflict(known, output)
            if known.path != output.path:
                again.add(output.path)
        return again

    def is_wanted(self, root: Root, path: str) -> bool:
        """Whether a path is some output's file by another name."""
        return bool(self._first) and self._place(root, path) in self._first

    def _place(self, root: Root, path: str) -> str:
        real = self._real.get(root)
        return f"{real}{path[len(root.dir) :]}" if real else ""


def _conflict(one: Output, other: Output) -> DeployError:
    modules = ", ".join(dict.fromkeys([*one.module_ids, *other.module_ids]))
    message = (
        f"{one.path} and {other.path} are one file, and {one.root.target} and"
        f" {other.root.target} want different contents there ({modules}); give each a directory"
        " of its own, or leave the module out for one of them"
    )
    return DeployError("E_DESIRED_STATE_CONFLICT", message, **both_ways(path=other.path))
