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
    """The three states of the same places; a path in neither map is not managed."""

    desired: Desired
    recorded: Recorded
    actual: Mapping[str, FileState | None]
    warnings: tuple[str, ...]

    @property
    def roots(self) -> tuple[Root, ...]:
        """The roots of the selected targets."""
        return self.desired.roots

    @property
    def unrecorded(self) -> list[Root]:
        """The roots that lack a usable manifest and should have one."""
        records = self.recorded.by_root
        without = [root for root in self.roots if not records[root].usable]
        if not self.recorded.any_usable:
            return without
        holding = self.desired.holding
        return [root for root in without if root in holding]

    @property
    def unrecorded_warnings(self) -> list[str]:
        """What a missing manifest means for the comparison."""
        if not self.recorded.any_usable:
            return [
                "no usable target manifest was found; files were compared with the desired state,"
                " and extra files were not searched for"
            ]
        return [
            f"no usable target manifest in {root.dir} ({root.target}); its files were compared with"
            " the desired state"
            for root in self.unrecorded
        ]


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
    return Survey(desired, recorded, actual, (*desired.warnings, *recorded.warnings))
