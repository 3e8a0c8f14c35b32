"""Forked definitions: where they come from, how they differ, what upstream has since released."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_agentpack.forge.changes import compared, differences, unified
from fleet_agentpack.forge.config import Configuration
from fleet_agentpack.forge.definitions import Definition, ForkRecord, Kind, read_data, version_of
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.inheritance import flattened
from fleet_agentpack.forge.library import Listed
from fleet_agentpack.forge.names import Reference, is_usable_name
from fleet_agentpack.forge.parsing import UnparsableError, read_mapping
from fleet_agentpack.forge.resolver import Resolver
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.kit.semver import Version, VersionError, best_version, is_newer

KINDS: tuple[Kind, ...] = ("agent", "tool")


@dataclass(frozen=True)
class Fork:
    """A definition that says where it was forked from."""

    kind: Kind
    name: str
    version: str
    path: Path
    shown: str
    upstream: ForkRecord


class Forks:
    """Queries over the forks on disk."""

    def __init__(self, configuration: Configuration, resolver: Resolver) -> None:
        self._configuration = configuration
        self._resolver = resolver

    def listing(self, kind: str, warnings: list[str]) -> dict[str, Any]:
        """Every fork; asks nothing of the network."""
        forks = list(self._all(kind, warnings))
        return {
            "forks": [
                {
                    "name": fork.name,
                    "type": fork.kind,
                    "upstream": {"name": fork.upstream.name, "version": fork.upstream.version},
                    "localVersion": fork.version,
                    "path": fork.shown,
                    "hasUpstreamUpdate": self._update(fork, warnings, network=False) is not None,
                }
                for fork in forks
            ],
            "total": len(forks),
        }

    def info(self, name: str, warnings: list[str]) -> dict[str, Any]:
        """One fork in detail. Raises `ForgeError`."""
        fork = self.find(name, warnings)
        update = self._update(fork, warnings)
        latest = self._latest(fork, warnings, network=False) if update is None else update
        if latest is None:
            warnings.append(f"Upstream {fork.upstream.name} is not found in any source")
        return {
            "name": fork.name,
            "type": fork.kind,
            "path": fork.shown,
            "upstream": {
                "name": fork.upstream.name,
                "version": fork.upstream.version,
                "currentVersion": latest or fork.upstream.version,
            },
            "localVersion": fork.version,
            "createdAt": fork.upstream.created_at,
            "lastMerged": fork.upstream.merged_at,
            "hasUpstreamUpdate": update is not None,
        }

    def diff(self, name: str, layout: str, warnings: list[str]) -> dict[str, Any]:
        """How a fork differs from the latest upstream that can be read. Raises `ForgeError`."""
        fork = self.find(name, warnings)
        upstream = self.upstream_of(fork, warnings)
        ours = compared(self._fields(self.definition_of(fork), warnings))
        theirs = compared(self._fields(upstream, warnings))
        found = differences(theirs, ours)
        kinds = [each["changeType"] for each in found]
        labels = (f"{upstream.name}@{upstream.version}", f"{fork.name}@{fork.version}")
        return {
            "name": fork.name,
            "upstreamVersion": upstream.version,
            "localVersion": fork.version,
            "differences": found,
            "summary": {each: kinds.count(each) for each in ("added", "removed", "modified")},
            "unified": unified(theirs, ours, labels) if layout == "unified" else UNKNOWN,
        }

    def check(self, name: str | None, warnings: list[str]) -> dict[str, Any]:
        """Which forks have a newer upstream. Raises `ForgeError` for a name that is no fork."""
        forks = [self.find(name, warnings)] if name else list(self._all("all", warnings))
        updates = []
        for fork in forks:
            latest = self._update(fork, warnings)
            if latest is None:
                continue
            updates.append(
                {
                    "name": fork.name,
                    "type": fork.kind,
                    "localVersion": fork.version,
                    "upstreamVersion": latest,
                    "breakingChanges": is_breaking(fork.upstream.version, latest),
                }
            )
        return {"updates": updates, "total": len(updates), "hasUpdates": bool(updates)}

    def find(self, name: str, warnings: list[str]) -> Fork:
        """The fork of a name, an agent before a tool. Raises `ForgeError`."""
        found = [fork for fork in self._all("all", []) if fork.name == name]
        if len(found) > 1:
            warnings.append(f"{name} is both an agent and a tool; this is the agent")
        if found:
            return found[0]
        for kind in KINDS:
            if self._resolver.nearest_file(kind, Reference(name)):
                self._resolver.resolve(kind, Reference(name), warnings)  # says why if it is broken
                raise ForgeError.invalid(
                    f"{name} is {'an agent' if kind == 'agent' else 'a tool'}, but not a fork",
                    "List the forks: fractary_forge_fork_list",
                    name=name,
                )
        raise ForgeError(
            "AGENT_NOT_FOUND",
            f"No fork {name!r} among the agents and tools",
            details={"name": name, "searched": list(self._disk_tiers())},
            suggestions=["List the forks: fractary_forge_fork_list"],
        )

    def definition_of(self, fork: Fork) -> Definition:
        """The fork's own definition. Raises `ForgeError` when its file broke meanwhile."""
        try:
            data = read_data(fork.path, fork.kind)
        except (UnparsableError, FileNotFoundError) as error:
            raise ForgeError.invalid(
                f"{fork.shown} cannot be read: {error}",
                f"See what is wrong: fractary_forge_{fork.kind}_validate",
            ) from error
        version = fork.version or version_of(data)
        return Definition(fork.kind, fork.name, version, "local", fork.shown, data, fork.path)

    def upstream_of(
        self, fork: Fork, warnings: list[str], version: str | None = None
    ) -> Definition:
        """A version of a fork's upstream, the latest unless told. Raises `ForgeError`."""
        wanted = version or self._latest_readable(fork, warnings) or "latest"
        return self._resolver.resolve(
            fork.kind, Reference(fork.upstream.name, wanted), warnings, apart_from=fork.path
        )

    def _latest_readable(self, fork: Fork, warnings: list[str]) -> str | None:
        name = fork.upstream.name
        known = self._resolver.versions(fork.kind, name, warnings, apart_from=fork.path)
        return best_version(known)

    def _all(self, kind: str, warnings: list[str]) -> Iterator[Fork]:
        for each in KINDS:
            if kind not in (each, "all"):
                continue
            seen: set[str] = set()
            for tier in self._disk_tiers():
                for listed in self._resolver.listed(each, tier, warnings):
                    if listed.summary.fork and listed.name not in seen:
                        seen.add(listed.name)
                        yield self._fork(each, listed, listed.summary.fork)

    def _fork(self, kind: Kind, listed: Listed, upstream: ForkRecord) -> Fork:
        path = listed.found.path
        shown = self._configuration.places.shown(path)
        return Fork(kind, listed.name, listed.summary.version, path, shown, upstream)

    def _disk_tiers(self) -> Iterator[Any]:
        yield from (tier for tier in self._resolver.tiers() if tier != "stockyard")

    def _update(self, fork: Fork, warnings: list[str], *, network: bool = True) -> str | None:
        """The latest upstream version, if it is newer than the one that was forked or merged."""
        latest = self._latest(fork, warnings, network=network)
        return latest if latest and is_newer(latest, fork.upstream.version) else None

    def _latest(self, fork: Fork, warnings: list[str], *, network: bool) -> str | None:
        name = fork.upstream.name
        if not is_usable_name(name, fork.kind):
            return None
        known = self._resolver.versions(
            fork.kind, name, warnings, network=network, apart_from=fork.path
        )
        return best_version([*known, *self._recorded_versions(name)])

    def _recorded_versions(self, name: str) -> list[str]:
        """What the package manifest of an upstream says, which needs no network."""
        path = self._configuration.global_root / "manifests" / f"{name}.json"
        try:
            manifest = read_mapping(path)
        except (FileNotFoundError, UnparsableError):
            return []
        latest = manifest.get("latest")
        return [latest] if isinstance(latest, str) else []

    def _fields(self, definition: Definition, warnings: list[str]) -> dict[str, Any]:
        try:
            return flattened(definition, self._resolver, warnings)
        except ForgeError as error:
            warnings.append(f"{error}; compared without its base")
            return dict(definition.data)


def is_breaking(current: str, latest: str) -> bool:
    """Whether the first number grew."""
    try:
        return Version.parse(latest).major > Version.parse(current).major
    except VersionError:
        return False
