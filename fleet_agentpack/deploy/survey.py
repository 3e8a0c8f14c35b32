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
    present: list[str] = []
    for target, directories in desired.directories.items():
        known: dict[str, bool] = {}
        absent = {
            root
            for root in desired.roots
            if root.target == target and not reader.directory(root, root.dir, known)
        }
        for directory, (root, paths) in directories.items():
            if root not in absent and reader.directory(root, directory, known):
                present += paths
            else:
                actual.update(dict.fromkeys(paths))
        outputs = desired.outputs[target]
        for root, record in recorded.by_root.items():
            if root.target == target and record.files.keys() - outputs.keys():
                left_over = [path for path in record.files if path not in outputs]
                for path in left_over:
                    if reader.directory(root, path.rpartition("/")[0] or "/", known):
                        present.append(path)
                    else:
                        actual[path] = None
    actual.update(reader.states(present))
    return Survey(desired, recorded, actual)
