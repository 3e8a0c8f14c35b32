"""What was written last: the managed files of each root, as this home's own record has them.

A root's manifest may have come with a checkout or a copy, so it decides nothing alone: it says
whether the root has one, and vouches for a file that still is what a module of this pack was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.indented_json import with_rows
from fleet_agentpack.deploy.model import Output, Root, read_file
from fleet_agentpack.deploy.ownership import Entry, Held, Holder, Holding, Record
from fleet_agentpack.deploy.pack import Pack, is_gone
from fleet_agentpack.deploy.runs import Run
from fleet_agentpack.kit.paths import is_plain
from fleet_agentpack.kit.stamps import Stamp, stamp

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ManifestFile:
    """What a root's own manifest lists, if it can be read."""

    files: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # hash, modules
    usable: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class RootRecord:
    """The managed files of one root, and whose the others are that are held there."""

    root: Root
    files: Mapping[str, Entry] = field(default_factory=dict)
    foreign: Mapping[str, Holder] = field(default_factory=dict)  # files of other packs
    stray: Mapping[str, Held] = field(default_factory=dict)  # of packs whose repos are gone
    usable: bool = False  # whether the root's own manifest could be read
    warnings: tuple[str, ...] = ()
    manifest: str | None = None  # the manifest's hash, if it is as a deploy has left it


KnownManifests = dict[str, tuple[Stamp, ManifestFile]]  # manifests that were read, by path


class Recorded:
    """The records of all selected roots."""

    def __init__(
        self, records: Sequence[RootRecord], packs: Mapping[str, str], remembered: KnownManifests
    ) -> None:
        self.by_root = {record.root: record for record in records}
        self._packs = packs
        self._remembered = remembered

    def place_of(self, pack: str) -> str:
        """Where a pack was deployed from last, as far as that is known."""
        return self._packs.get(pack) or pack.removeprefix("path:") or "the home's own repo"

    def entry(self, root: Root, path: str) -> Entry | None:
        """The entry of a path, None when the path is not managed."""
        record = self.by_root[root]
        entry = record.files.get(path)
        if entry is None and path in record.stray:
            return record.stray[path].entry
        return entry

    def vouches(self, output: Output, sha256: str) -> bool:
        """Whether a manifest says that a file still is what a module of this pack was."""
        listed = read_manifest(output.root, self._remembered).files.get(output.path)
        return (
            listed is not None
            and listed[0] == sha256
            and not set(listed[1]).isdisjoint(output.module_ids)
        )

    def modules_of(self, output: Output) -> tuple[str, ...]:
        """The modules that a file was deployed from, as far as its manifest says."""
        listed = read_manifest(output.root, self._remembered).files.get(output.path)
        return listed[1] if listed else ()

    def module_ids(self, root: Root) -> dict[str, tuple[str, ...]]:
        """The modules of each file that a root's manifest lists."""
        listed = read_manifest(root, self._remembered).files
        return {path: ids for path, (_, ids) in listed.items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was wrong with the manifests."""
        return tuple(warning for record in self.by_root.values() for warning in record.warnings)

    @property
    def any_usable(self) -> bool:
        """Whether any root has a manifest."""
        return any(record.usable for record in self.by_root.values())


def read_records(
    roots: Iterable[Root], record: Record, pack: Pack, remembered: KnownManifests
) -> Recorded:
    """The managed files of each root."""
    names = {holding.pack for holding in record.holdings}
    own = {name for name in names if pack.is_called(name)}
    records = [_root_record(root, record, own, remembered) for root in roots]
    return Recorded(records, record.packs, remembered)


def _root_record(
    root: Root, record: Record, own: Collection[str], remembered: KnownManifests
) -> RootRecord:
    files: Mapping[str, Entry] = {}
    foreign: dict[str, Holder] = {}
    stray: dict[str, Held] = {}
    for holding in record.holdings:
        if holding.pack not in own:
            if not _overlaps(holding, root):
                continue
            if is_gone(holding.pack):
                stray |= {p: Held(holding.holder, each) for p, each in holding.by_path.items()}
            else:
                foreign |= dict.fromkeys(holding.by_path, holding.holder)
        elif (holding.target, holding.root) == root[:2]:
            files = {**files, **holding.by_path} if files else holding.by_path
    written = {each.manifest.sha256 for each in record.of_root(*root[:2]) if each.manifest}
    if (manifest := _as_written(root, written)) is not None:
        return RootRecord(root, files, foreign, stray, usable=True, manifest=manifest)
    found = read_manifest(root, remembered)
    return RootRecord(root, files, foreign, stray, found.usable, found.warnings)


def _overlaps(holding: Holding, root: Root) -> bool:
    one, other = holding.holder.path(""), root.path("")
    return one.startswith(other) or other.startswith(one)


def _as_written(root: Root, written: set[str]) -> str | None:
    """The manifest's hash if it is the very one that a deploy left, which need not be parsed."""
    if not written:
        return None
    reads.at(root.manifest_path)
    try:
        found = hashlib.sha256(read_file(root.manifest_path)).hexdigest()
    except DeployError:
        return None
    return found if found in written else None


def read_manifest(root: Root, remembered: KnownManifests) -> ManifestFile:
    """A root's own manifest; an unusable one counts as missing, with a warning."""
    for path, legacy in ((root.manifest_path, False), (root.legacy_manifest_path, True)):
        reads.at(path)
        seen = stamp(path)
        if seen is None:
            continue
        known = remembered.get(path)
        if known is not None and known[0] == seen:
            found = known[1]
        else:
            found = _parse(root, path, legacy)
            remembered[path] = (seen, found)
        if not legacy or found.usable or found.warnings:
            return found
    return ManifestFile()


def _parse(root: Root, path: str, legacy: bool) -> ManifestFile:
    try:
        with open(path, "rb") as stream:
            document = json.loads(stream.read())
        version = document.get("schema_version", 0)
        tool = document.get("tool")
        entries = {row["path"]: _listed(row) for row in document["managed_files"]}
        "".join(entries)  # raises TypeError unless all are text
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if legacy and not isinstance(error, OSError):
            return ManifestFile()
        return _unusable(f"target manifest {path} cannot be parsed and is ignored")
    if version != SCHEMA_VERSION:
        return _unusable(f"target manifest {path} has an unsupported schema_version {version}")
    if tool != root.target:
        if legacy:
            return ManifestFile()
        return _unusable(f"target manifest {path} belongs to {tool!r}, not {root.target}")
    old_name = f"target manifest {path} has the old file name; the next deploy writes the new one"
    warnings = [old_name] if legacy else []
    files, prefix = {}, root.path("")
    for relative, listed in entries.items():
        if is_plain(relative):
            files[prefix + relative] = listed
        else:
            warnings.append(
                f"target manifest {path}: skipped the entry {relative!r}, not a safe path"
            )
    return ManifestFile(files, usable=True, warnings=tuple(warnings))


def _listed(row: dict[str, object]) -> tuple[str, tuple[str, ...]]:
    ids, sha256 = row.get("module_ids") or (), row["sha256"]
    if not isinstance(sha256, str) or not isinstance(ids, (list, tuple)):
        raise TypeError("expected text and a list")
    return sha256, tuple(map(str, ids))


def _unusable(warning: str) -> ManifestFile:
    return ManifestFile(warnings=(f"{warning}; the next deploy repairs it",))


def manifest_bytes(root: Root, runs: Iterable[Run], snapshot_id: str, generated_at: str) -> bytes:
    """A root's manifest for its outputs, which come by path."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "generated_at": generated_at,
        "tool": root.target,
        "snapshot_id": snapshot_id,
    }
    return with_rows(document, "managed_files", [run.in_manifest for run in runs])
