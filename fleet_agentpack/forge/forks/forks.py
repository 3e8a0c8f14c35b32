"""Forked definitions: where they come from, how they differ, what upstream has since released."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.forge import results
from fleet_agentpack.forge.config.configuration import Configuration
from fleet_agentpack.forge.definitions.definition import (
    Definition,
    ForkRecord,
    read_data,
    version_of,
)
from fleet_agentpack.forge.definitions.inheritance import inherit
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.errors import ForgeError, Loaded, call
from fleet_agentpack.forge.forks.bases import DefinitionFiles, ForkBases, cut, files_of, renamed
from fleet_agentpack.forge.forks.three_way import compared, differences, line_diff
from fleet_agentpack.forge.names import KINDS, Kind, Reference, is_usable_name
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.kit.semver import Version, VersionError, best_version, is_newer


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
