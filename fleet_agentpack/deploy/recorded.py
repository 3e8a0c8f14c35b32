"""What was written last: the managed files that a root's manifest, or else a snapshot, lists."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet_agentpack.deploy import looks
from fleet_agentpack.deploy.indented_json import indented
from fleet_agentpack.deploy.model import Output, Root
from fleet_agentpack.deploy.snapshots import SnapshotStore
from fleet_agentpack.kit.paths import is_plain
from fleet_agentpack.kit.stamps import Stamp, stamp

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class RootRecord:
    """The managed files of one root, by path, with the hash that was written."""

    root: Root
    files: Mapping[str, str] = field(default_factory=dict)
    usable: bool = False  # whether the root's own manifest could be read
    warnings: tuple[str, ...] = ()


KnownRecords = dict[str, tuple[Stamp, RootRecord]]  # manifests that were read, by path


class Recorded:
    """The records of all selected roots."""

    def __init__(self, records: Sequence[RootRecord]) -> None:
        self.by_root = {record.root: record for record in records}

    def sha256(self, root: Root, path: str) -> str | None:
        """The hash that was last written at a path, None when the path is not managed."""
        return self.by_root[root].files.get(path)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was wrong with the manifests."""
        return tuple(warning for record in self.by_root.values() for warning in record.warnings)

    @property
    def any_usable(self) -> bool:
        """Whether any root has a manifest."""
        return any(record.usable for record in self.by_root.values())


def read_records(
    roots: Iterable[Root], snapshots: SnapshotStore, remembered: KnownRecords
) -> Recorded:
    """The managed files of each root: from its manifest, else from its last snapshot."""
    found = [read_manifest(root, remembered) for root in roots]
    lost = [record.root for record in found if not record.usable]
    files = snapshots.last_files(lost) if lost else {}
    return Recorded(
        [
            record
            if record.usable
            else RootRecord(record.root, files.get(record.root, {}), warnings=record.warnings)
            for record in found
        ]
    )


def read_manifest(root: Root, remembered: KnownRecords) -> RootRecord:
    """A root's own manifest; an unusable one counts as missing, with a warning."""
    for path, legacy in ((root.manifest_path, False), (root.legacy_manifest_path, True)):
        looks.at(path)
        seen = stamp(path)
        if seen is None:
            continue
        known = remembered.get(path)
        if known is not None and known[0] == seen and known[1].root == root:
            record = known[1]
        else:
            record = _parse(root, path, legacy)
            remembered[path] = (seen, record)
        if not legacy or record.usable or record.warnings:
            return record
    return RootRecord(root)


def _parse(root: Root, path: str, legacy: bool) -> RootRecord:
    try:
        with open(path, "rb") as stream:
            document = json.loads(stream.read())
        version = document.get("schema_version", 0)
        tool = document.get("tool")
        entries = {row["path"]: row["sha256"] for row in document["managed_files"]}
        "".join(entries) + "".join(entries.values())  # raises TypeError unless all are text
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if legacy and not isinstance(error, OSError):
            return RootRecord(root)
        return _unusable(root, f"target manifest {path} cannot be parsed and is ignored")
    if version != SCHEMA_VERSION:
        return _unusable(
            root, f"target manifest {path} has an unsupported schema_version {version}"
        )
    if tool != root.target:
        if legacy:
            return RootRecord(root)
        return _unusable(root, f"target manifest {path} belongs to {tool!r}, not {root.target}")
    old_name = f"target manifest {path} has the old file name; the next deploy writes the new one"
    warnings = [old_name] if legacy else []
    files, prefix = {}, root.path("")
    for relative, sha256 in entries.items():
        if is_plain(relative):
            files[prefix + relative] = sha256
        else:
            warnings.append(
                f"target manifest {path}: skipped the entry {relative!r}, not a safe path"
            )
    return RootRecord(root, files, usable=True, warnings=tuple(warnings))


def module_ids(root: Root) -> dict[str, tuple[str, ...]]:
    """The modules of each managed file, as the root's manifest names them."""
    for path in (root.manifest_path, root.legacy_manifest_path):
        looks.at(path)
        try:
            with open(path, "rb") as stream:
                rows = json.loads(stream.read())["managed_files"]
            return {root.path(row["path"]): tuple(row.get("module_ids", ())) for row in rows}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
    return {}


def _unusable(root: Root, warning: str) -> RootRecord:
    return RootRecord(root, warnings=(f"{warning}; the next deploy repairs it",))


def manifest_bytes(
    root: Root, outputs: Sequence[Output], snapshot_id: str, generated_at: str
) -> bytes:
    """A root's manifest for its outputs, which come sorted by path."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "generated_at": generated_at,
        "tool": root.target,
        "snapshot_id": snapshot_id,
        "managed_files": [
            {
                "path": output.relative,
                "sha256": output.blob.sha256,
                "module_ids": list(output.module_ids),
            }
            for output in outputs
        ],
    }
    return indented(document)
