"""Lines up the three states: what is desired, what was recorded, what is on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet_agentpack.deploy.desired import Desired
from fleet_agentpack.deploy.disk import Reader
from fleet_agentpack.deploy.model import FileState, Root
from fleet_agentpack.deploy.recorded import Recorded


@dataclass(frozen=True)
class Survey:
    """The three states of the same places; a path in neither map is nobody's business here."""

    desired: Desired
    recorded: Recorded
    actual: Mapping[str, FileState | None]

    @property
    def roots(self) -> tuple[Root, ...]:
        """The roots of the selected targets."""
        return self.desired.roots


def survey(desired: Desired, recorded: Recorded, reader: Reader) -> Survey:
    """Look at every desired and every recorded file once. Raises `DeployError`."""
    actual: dict[str, FileState | None] = {}
    for target, directories in desired.directories.items():
        known: dict[str, bool] = {}
        for directory, (root, paths) in directories.items():
            if reader.directory(root, directory, known):
                actual.update(reader.states(paths))
            else:
                actual.update(dict.fromkeys(paths))
        for root, record in recorded.by_root.items():
            if root.target == target:
                actual.update(_left_over(root, record.files, actual, reader, known))
    return Survey(desired, recorded, actual)


def _left_over(
    root: Root,
    files: Mapping[str, str],
    seen: Mapping[str, FileState | None],
    reader: Reader,
    known: dict[str, bool],
) -> dict[str, FileState | None]:
    """The states of files that were written once and are not desired any more."""
    found: dict[str, FileState | None] = {}
    for path in files:
        if path not in seen:
            exists = reader.directory(root, path.rpartition("/")[0] or "/", known)
            found[path] = reader.state(path) if exists else None
    return found
