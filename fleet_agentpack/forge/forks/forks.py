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
from fleet_agentpack.forge.errors import ForgeError, call
from fleet_agentpack.forge.forks.changes import compared, differences, unified
from fleet_agentpack.forge.loaded import Loaded
from fleet_agentpack.forge.names import KINDS, Kind, Reference, is_usable_name
from fleet_agentpack.forge.parsing import UnparsableError, read_mapping
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

    def is_behind(self, latest: str | None) -> bool:
        """Whether a version is newer than the one that was forked or last merged."""
        return latest is not None and is_newer(latest, self.upstream.version)


class Forks:
    """Queries over the forks on disk."""

    def __init__(self, configuration: Configuration, resolver: Resolver) -> None:
        self._configuration = configuration
        self._resolver = resolver

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
                hasUpstreamUpdate=fork.is_behind(self._latest(fork, network=False).value),
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
            hasUpstreamUpdate=fork.is_behind(latest.value),
            warnings=self._configuration.noted(
                found.warnings, latest.warnings, [] if latest.value else [missing]
            ),
        )

    def diff(self, name: str, layout: str) -> results.ForkDiff:
        """How a fork differs from the latest upstream that can be read. Raises `ForgeError`."""
        found = self.find(name)
        fork = found.value
        upstream = self.upstream_of(fork)
        ours = inherit(self.definition_of(fork), self._resolver)
        theirs = inherit(upstream.value, self._resolver)
        before, after = compared(theirs.fields), compared(ours.fields)
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
            unified=unified(before, after, labels) if layout == "unified" else UNKNOWN,
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
            if newest.value and fork.is_behind(newest.value)
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
        for each in KINDS:
            for tier in self._resolver.disk_tiers if kind in (each, "all") else ():
                indexed = self._resolver.indexed(each, tier)
                warnings += indexed.warnings
                for found in indexed.value:
                    path, record = found.file.path, found.summary.fork
                    if record:
                        shown = self._configuration.directories.shown(path)
                        name, version = found.file.name, found.summary.version
                        fork = Fork(each, name, version, path, shown, record)
                        forks.setdefault((each, name), fork)
        return Loaded(list(forks.values()), tuple(warnings))

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


def is_breaking(current: str, latest: str) -> bool:
    """Whether the first number grew."""
    try:
        return Version.parse(latest).major > Version.parse(current).major
    except VersionError:
        return False
