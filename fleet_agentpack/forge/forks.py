"""Forks: the base that each keeps, how it differs from upstream, what upstream has released.

`.fractary/forks/agents/NAME/fork.json` is the record, `base/` the files as they were forked or last
merged, and `conflict/` the copies with markers of a merge that a person has to finish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fleet_agentpack.forge import results
from fleet_agentpack.forge.configuration import Configuration
from fleet_agentpack.forge.definition import Definition, ForkRecord, read_data, text_of, version_of
from fleet_agentpack.forge.errors import ForgeError, Loaded, call
from fleet_agentpack.forge.names import KINDS, Kind, Reference, is_usable_name
from fleet_agentpack.forge.resolver import Resolver, inherit
from fleet_agentpack.forge.three_way import compared, cut, differences, line_diff, renamed
from fleet_agentpack.forge.trees import FileContent, FolderTree, write_files
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.paths import EscapeError, check_relative
from fleet_agentpack.kit.results import UNKNOWN, json_file
from fleet_agentpack.kit.semver import Version, VersionError, best_version, is_newer
from fleet_agentpack.kit.swap import Area, New, Swap

FORMAT = 1
RECORD = "fork.json"

_NOT_COPIED = ("metadata.json",)  # the original's own record of a fork


@dataclass(frozen=True)
class DefinitionFiles:
    """The files of a definition: its own, and those of its directory if it is one."""

    main: str
    files: Mapping[str, FileContent]

    @property
    def text(self) -> str:
        """The definition itself."""
        return self.files[self.main].data.decode("utf-8-sig")

    @property
    def suffix(self) -> str:
        """The ending of the definition's own file."""
        return Path(self.main).suffix

    @property
    def others(self) -> dict[str, FileContent]:
        """Everything but the definition itself."""
        return {name: each for name, each in self.files.items() if name != self.main}


def files_of(definition: Definition) -> DefinitionFiles:
    """The files of a definition as they are now. Raises `ForgeError` when they cannot be read."""
    if definition.file is None:
        data = yaml12.dump(dict(definition.data)).encode()
        return DefinitionFiles(
            f"{definition.kind}.yaml", {f"{definition.kind}.yaml": FileContent(data)}
        )
    folder, main = definition.file.parent, definition.file.name
    whole = definition.identity.directory is not None
    try:
        found = FolderTree(folder).snapshot("").files if whole else {}
        files = {name: each for name, each in found.items() if name not in _NOT_COPIED}
        files[main] = FileContent(definition.file.read_bytes())
        DefinitionFiles(main, files).text  # noqa: B018 - raises for what is not text
    except (OSError, UnicodeDecodeError) as error:
        raise ForgeError.invalid(f"{definition.path} cannot be read: {error}") from error
    return DefinitionFiles(main, files)


@dataclass(frozen=True)
class KeptFork:
    """The record of a fork."""

    kind: Kind
    name: str
    path: Path  # of the definition
    record: ForkRecord
    main: str
    details: Mapping[str, str] = field(default_factory=dict)  # more about upstream


class ForkBases:
    """The kept bases of a project's forks."""

    def __init__(self, project: Path) -> None:
        self._root = project.parent
        self._directory = project / "forks"

    @property
    def swap(self) -> Swap:
        """Replaces a fork's files and its base together; the caller holds the lock."""
        staging = self._directory / ".staging"
        return Swap(Area(staging / "journal.json", staging, self._directory / ".kept"))

    def folder(self, kind: Kind, name: str) -> Path:
        """Where everything about one fork is."""
        return self._directory / f"{kind}s" / quote(name, safe="@")

    def all(self) -> Iterator[KeptFork]:
        """Every record that can be read."""
        for kind in KINDS:
            try:
                folders = sorted((self._directory / f"{kind}s").iterdir())
            except OSError:
                continue
            for folder in folders:
                try:
                    kept = self._read(kind, read_mapping(folder / RECORD))
                except (FileNotFoundError, UnparsableError):
                    continue
                if kept:
                    yield kept

    def find(self, kind: Kind, name: str) -> KeptFork | None:
        """The record of one fork."""
        try:
            return self._read(kind, read_mapping(self.folder(kind, name) / RECORD))
        except (FileNotFoundError, UnparsableError):
            return None

    def base(self, kept: KeptFork) -> DefinitionFiles | None:
        """The files that were forked or last merged, None where they are gone."""
        folder = self.folder(kept.kind, kept.name) / "base"
        try:
            files = FolderTree(folder).snapshot("").files
        except ForgeError:
            return None
        return DefinitionFiles(kept.main, files) if kept.main in files else None

    def conflicts(self, kind: Kind, name: str) -> Path:
        """Where copies with markers are put."""
        return self.folder(kind, name) / "conflict"

    def changes(self, kept: KeptFork, base: DefinitionFiles) -> dict[Path, New]:
        """What keeps a base: to be written together with the fork itself."""
        folder = self.folder(kept.kind, kept.name)
        return {
            folder / RECORD: self._written(kept),
            folder / "base": partial(write_files, base.files),
        }

    def _written(self, kept: KeptFork) -> bytes:
        record = kept.record
        merged = {} if record.merged_at is UNKNOWN else {"merged_at": record.merged_at}
        below = kept.path.is_relative_to(self._root)
        path = kept.path.relative_to(self._root) if below else kept.path
        data = {
            "version": FORMAT,
            "name": kept.name,
            "type": kept.kind,
            "path": path.as_posix(),
            "main": kept.main,
            "upstream": {"name": record.name, "version": record.version, **kept.details},
            "created_at": record.created_at,
            **merged,
        }
        return json_file(data)

    def _read(self, kind: Kind, data: Mapping[str, Any]) -> KeptFork | None:
        name, path, main = (text_of(data, key) for key in ("name", "path", "main"))
        upstream = data.get("upstream")
        if name is UNKNOWN or path is UNKNOWN or main is UNKNOWN or not isinstance(upstream, dict):
            return None
        try:
            check_relative(main)
        except EscapeError:
            return None
        texts = {key: each for key, each in upstream.items() if isinstance(each, str)}
        created = text_of(data, "created_at")
        record = ForkRecord(
            texts.pop("name", ""),
            texts.pop("version", ""),
            "" if created is UNKNOWN else created,
            text_of(data, "merged_at"),
        )
        return KeptFork(kind, name, self._root / path, record, main, texts) if record.name else None


@dataclass(frozen=True)
class Fork:
    """A definition that records what it was forked from."""

    kind: Kind
    name: str
    version: str
    path: Path
    shown: str
    upstream: ForkRecord
    in_file: bool = True  # whether the definition itself says that it is a fork

    def is_behind(self, latest: str | None) -> bool:
        """Whether a version is newer than the one that was forked or last merged."""
        return latest is not None and is_newer(latest, self.upstream.version)


class Forks:
    """Queries over the forks on disk."""

    def __init__(self, configuration: Configuration, resolver: Resolver) -> None:
        self._configuration = configuration
        self._resolver = resolver

    @property
    def bases(self) -> ForkBases:
        """What forks were made from. Raises `ForgeError` without a project."""
        return ForkBases(self._configuration.directories.project)

    def shown(self, path: Path) -> str:
        """A path for a reader."""
        return self._configuration.directories.shown(path)

    def listing(self, kind: str) -> results.ForkList:
        """Every fork; asks nothing of the network."""
        forks = self._all(kind)
        rows = tuple(
            results.ForkRow(
                name=fork.name,
                type=fork.kind,
                upstream=results.Upstream(fork.upstream.name, fork.upstream.version),
                localVersion=fork.version,
                path=fork.shown,
                hasUpstreamUpdate=self._is_behind(fork, self._latest(fork, network=False).value),
            )
            for fork in forks.value
        )
        return results.ForkList(rows, len(rows), self._configuration.noted(forks.warnings))

    def info(self, name: str) -> results.ForkInfo:
        """One fork in detail. Raises `ForgeError`."""
        found = self.find(name)
        fork = found.value
        latest = self._latest(fork)
        missing = f"Upstream {fork.upstream.name} is not found in any source"
        return results.ForkInfo(
            name=fork.name,
            type=fork.kind,
            path=fork.shown,
            upstream=results.Upstream(
                fork.upstream.name, fork.upstream.version, latest.value or fork.upstream.version
            ),
            localVersion=fork.version,
            createdAt=fork.upstream.created_at,
            lastMerged=fork.upstream.merged_at,
            hasUpstreamUpdate=self._is_behind(fork, latest.value),
            warnings=self._configuration.noted(
                found.warnings, latest.warnings, [] if latest.value else [missing]
            ),
        )

    def diff(self, name: str, layout: str) -> results.ForkDiff:
        """How a fork differs from the latest upstream that can be read. Raises `ForgeError`."""
        found = self.find(name)
        fork = found.value
        upstream = self.upstream_of(fork)
        own = self.definition_of(fork)
        ours, theirs = (inherit(each, self._resolver) for each in (own, upstream.value))
        local, remote = files_of(own), files_of(upstream.value)
        before = {**compared(theirs.fields), **_texts_beside(remote, local)}
        after = {**compared(ours.fields), **_texts_beside(local, remote)}
        differing = differences(before, after)
        kinds = [each.changeType for each in differing]
        version = upstream.value.version
        labels = (f"{upstream.value.name}@{version}", f"{fork.name}@{fork.version}")
        return results.ForkDiff(
            name=fork.name,
            upstreamVersion=version,
            localVersion=fork.version,
            differences=differing,
            summary=results.DifferenceCounts(
                kinds.count("added"), kinds.count("removed"), kinds.count("modified")
            ),
            unified=_unified(remote, local, labels, upstream.value.name)
            if layout == "unified"
            else UNKNOWN,
            warnings=self._configuration.noted(
                found.warnings,
                upstream.warnings,
                ours.warnings_if("compared"),
                theirs.warnings_if("compared"),
            ),
        )

    def check(self, name: str | None) -> results.ForkCheck:
        """Which forks have a newer upstream. Raises `ForgeError` for a name that is not a fork."""
        if name:
            one = self.find(name)
            forks = Loaded([one.value], one.warnings)
        else:
            forks = self._all("all")
        latest = [self._latest(fork) for fork in forks.value]
        updates = tuple(
            results.ForkUpdate(
                name=fork.name,
                type=fork.kind,
                localVersion=fork.version,
                upstreamVersion=newest.value,
                breakingChanges=is_breaking(fork.upstream.version, newest.value),
            )
            for fork, newest in zip(forks.value, latest, strict=True)
            if newest.value and self._is_behind(fork, newest.value)
        )
        warnings = self._configuration.noted(forks.warnings, *(each.warnings for each in latest))
        return results.ForkCheck(updates, len(updates), bool(updates), warnings)

    def find(self, name: str) -> Loaded[Fork]:
        """The fork of a name, an agent before a tool. Raises `ForgeError`."""
        found = [fork for fork in self._all("all").value if fork.name == name]
        if found:
            both = f"{name} is both an agent and a tool; this is the agent"
            return Loaded(found[0], (both,) if len(found) > 1 else ())
        for kind in KINDS:
            if self._resolver.nearest_file(kind, Reference(name)):
                self._resolver.resolve(kind, Reference(name))  # says why if it is broken
                raise ForgeError.invalid(
                    f"{name} is {'an agent' if kind == 'agent' else 'a tool'}, but not a fork",
                    call("fork_list", "List the forks: {}"),
                    name=name,
                )
        raise ForgeError(
            "AGENT_NOT_FOUND",
            f"No fork {name!r} among the agents and tools",
            call("fork_list", "List the forks: {}"),
            name=name,
            searched=list(self._resolver.disk_tiers),
        )

    def definition_of(self, fork: Fork) -> Definition:
        """The fork's own definition. Raises `ForgeError` when its file can no longer be read."""
        try:
            data = read_data(fork.path, fork.kind)
        except (UnparsableError, FileNotFoundError) as error:
            raise ForgeError.invalid(
                f"{fork.shown} cannot be read: {error}",
                call(f"{fork.kind}_validate", "See what is wrong: {}"),
            ) from error
        version = fork.version or version_of(data)
        return Definition(fork.kind, fork.name, version, "local", fork.shown, data, fork.path)

    def upstream_of(self, fork: Fork, version: str | None = None) -> Loaded[Definition]:
        """A version of a fork's upstream, by default the latest. Raises `ForgeError`."""
        name, apart_from = fork.upstream.name, fork.path
        known: Loaded[list[str]] = Loaded([])
        if version is None:
            known = self._resolver.versions(fork.kind, name, apart_from=apart_from)
        wanted = Reference(name, version or best_version(known.value) or "latest")
        found = self._resolver.resolve(fork.kind, wanted, apart_from=apart_from)
        return Loaded(found.value, (*known.warnings, *found.warnings))

    def _all(self, kind: str) -> Loaded[list[Fork]]:
        forks: dict[tuple[Kind, str], Fork] = {}
        warnings: list[str] = []
        records = self.bases.all() if self._has_project else ()
        kept = {(each.kind, each.path): each for each in records}
        for each in KINDS:
            for tier in self._resolver.disk_tiers if kind in (each, "all") else ():
                indexed = self._resolver.indexed(each, tier)
                warnings += indexed.warnings
                for found in indexed.value:
                    path, record = found.file.path, found.summary.fork
                    beside = kept.get((each, path))
                    origin = record or (beside.record if beside else None)
                    if origin:
                        name, version = found.file.name, found.summary.version
                        shown, in_file = self.shown(path), record is not None
                        fork = Fork(each, name, version, path, shown, origin, in_file)
                        forks.setdefault((each, name), fork)
        return Loaded(list(forks.values()), tuple(warnings))

    def _is_behind(self, fork: Fork, latest: str | None) -> bool:
        """Whether upstream is newer, or other files under the same version: some have none."""
        if latest is None or fork.is_behind(latest):
            return latest is not None
        kept = self.bases.find(fork.kind, fork.name) if self._has_project else None
        base = self.bases.base(kept) if kept else None
        source = kept.details.get("source", "") if kept else ""
        if base is None or latest != fork.upstream.version or source not in ("local", "global"):
            return False
        wanted = Reference(fork.upstream.name, latest)
        try:
            now = self._resolver.resolve(fork.kind, wanted, source, apart_from=fork.path).value
            return dict(files_of(now).files) != dict(base.files)
        except ForgeError:
            return False

    @property
    def _has_project(self) -> bool:
        return self._configuration.directories.root is not None

    def _latest(self, fork: Fork, *, network: bool = True) -> Loaded[str | None]:
        """The latest upstream version that is known."""
        name = fork.upstream.name
        if not is_usable_name(name, fork.kind):
            return Loaded(None)
        known = self._resolver.versions(fork.kind, name, network=network, apart_from=fork.path)
        return Loaded(best_version([*known.value, *self._recorded(name)]), known.warnings)

    def _recorded(self, name: str) -> list[str]:
        """The version in the package manifest of an upstream, which needs no network."""
        path = self._configuration.global_root / "manifests" / f"{name}.json"
        try:
            latest = read_mapping(path).get("latest")
        except (FileNotFoundError, UnparsableError):
            return []
        return [latest] if isinstance(latest, str) else []


def _texts_beside(files: DefinitionFiles, other: DefinitionFiles) -> dict[str, str]:
    """The files beside a definition that are not the same in another, by their paths."""
    return {
        name: each.data.decode("utf-8", "replace")
        for name, each in files.others.items()
        if other.others.get(name) != each
    }


def _unified(
    upstream: DefinitionFiles, local: DefinitionFiles, labels: tuple[str, str], name: str
) -> str:
    """A line diff of the texts; what makes a fork a fork is no difference."""
    text = renamed(local.text, local.suffix, name)
    parts = cut(text, local.suffix)
    if parts is not None:
        for key in ("fork_of", "fork"):
            parts = parts.without(key)
        text = str(parts)
    diff = line_diff(upstream.text, text, labels)
    ours, theirs = _texts_beside(local, upstream), _texts_beside(upstream, local)
    for path in sorted({*ours, *theirs}):
        files = tuple(f"{label}/{path}" for label in labels)
        diff += line_diff(theirs.get(path, ""), ours.get(path, ""), (files[0], files[1]))
    return diff


def is_breaking(current: str, latest: str) -> bool:
    """Whether the first number grew."""
    try:
        return Version.parse(latest).major > Version.parse(current).major
    except VersionError:
        return False
