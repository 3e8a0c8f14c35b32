"""Lines up the three states: what is desired, what was recorded, what is on the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet_agentpack.deploy.desired import Desired
from fleet_agentpack.deploy.disk import InTheWayError, NotOursError, Reader, WayOutError
from fleet_agentpack.deploy.model import FileState, Root
from fleet_agentpack.deploy.recorded import Recorded
from fleet_agentpack.deploy.results import TargetError
from fleet_agentpack.deploy.same_place import Places
from fleet_agentpack.kit.results import UNKNOWN, Maybe


@dataclass(frozen=True)
class Survey:
    """The three states of the same places; a path in neither map is not managed."""

    desired: Desired
    recorded: Recorded
    actual: Mapping[str, FileState | None]
    warnings: tuple[str, ...]
    links: Mapping[str, str] = field(default_factory=dict)  # links among them, and where they lead
    places: Places = field(default_factory=lambda: Places(()))  # of roots that are one directory
    imported: frozenset[str] = frozenset()  # modules that were made from the very files

    @property
    def roots(self) -> tuple[Root, ...]:
        """The roots of the selected targets."""
        return self.desired.roots

    @property
    def target_errors(self) -> Maybe[list[TargetError]]:
        """The targets that are left out, each with the reason."""
        failed = self.desired.failed.items()
        found = [TargetError(e.code, e.details, e.message, target) for target, e in failed]
        return found or UNKNOWN

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
    """Look at every desired and every recorded file once. Raises `DeployError`.

    What lies below a link that leads out of its root is left alone, and named.
    """
    places = Places(desired.roots)
    desired = desired.without(places.written_twice(desired.all))
    actual: dict[str, FileState | None] = {}
    present: dict[str, list[str]] = {root.dir: [] for root in desired.roots}
    unwanted: dict[str, list[str]] = {root.dir: [] for root in desired.roots}
    left_alone: dict[str, list[str]] = {}  # by the warning
    for target, directories in desired.directories.items():
        known: dict[str, bool] = {}
        absent = {
            root
            for root in desired.roots
            if root.target == target and not reader.directory(root, root.dir, known)
        }
        for directory, (root, paths) in directories.items():
            try:
                exists = root not in absent and reader.directory(root, directory, known)
            except WayOutError as error:
                left_alone.setdefault(error.warning, []).extend(paths)
                continue
            if exists:
                present[root.dir] += paths
            else:
                actual.update(dict.fromkeys(paths))
        outputs = desired.outputs[target]
        for root, record in recorded.by_root.items():
            if root.target != target or record.files.keys() <= outputs.keys():
                continue
            for path in record.files.keys() - outputs.keys():
                try:
                    exists = reader.directory(root, path.rpartition("/")[0] or "/", known)
                except NotOursError as error:
                    left_alone.setdefault(error.warning, [])
                    continue
                if exists:
                    unwanted[root.dir].append(path)
                else:
                    actual[path] = None
    for top, paths in present.items():
        actual.update(reader.states(paths, top))
    for top, paths in unwanted.items():
        found, in_the_way = _states_of_files(reader, paths, top)
        actual.update(found)
        left_alone |= {warning: [] for warning in in_the_way}
    kept = desired.without({path for paths in left_alone.values() for path in paths})
    warnings = (*desired.warnings, *recorded.warnings, *left_alone)
    return Survey(kept, recorded, actual, warnings, dict(reader.links), places)


def _states_of_files(
    reader: Reader, paths: Sequence[str], top: str
) -> tuple[Mapping[str, FileState | None], list[str]]:
    """The states of paths without those that are no files by now, and a warning for each of them.

    Nothing is wanted there, so they stop nobody.
    """
    warnings: list[str] = []
    try:
        return reader.states(paths, top), warnings
    except InTheWayError:
        found: dict[str, FileState | None] = {}
    for path in paths:
        try:
            found[path] = reader.state(path)
        except InTheWayError as error:
            warnings.append(error.warning)
    return found, warnings
