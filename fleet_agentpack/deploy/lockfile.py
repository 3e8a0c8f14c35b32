"""`agentpack.lock.json`: the commits and hashes that modules are pinned to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from fleet_agentpack.deploy import looks
from fleet_agentpack.deploy.errors import DeployError, both_ways
from fleet_agentpack.deploy.manifest import GitSource
from fleet_agentpack.deploy.trees import TreeEntry

FILE_NAME = "agentpack.lock.json"
SUPPORTED_VERSIONS = [1]


@dataclass(frozen=True)
class PinnedCommit:
    """The commit that a git module is pinned to."""

    url: str
    commit: str
    subdir: str = ""

    @property
    def source(self) -> GitSource:
        """The same as a source; the commit is all that is wanted of its history."""
        return GitSource(self.url, self.commit, self.subdir, shallow=False)


@dataclass(frozen=True)
class PinnedPath:
    """A module inside the config repo."""

    path: str


@dataclass(frozen=True)
class PinnedSource:
    """Where a pinned module comes from: one of the two."""

    local_path: PinnedPath | None = None
    git: PinnedCommit | None = None


@dataclass(frozen=True, kw_only=True)
class PinnedModule:
    """One module as the lockfile pins it."""

    id: str
    type: str = ""
    resolved_source: PinnedSource
    resolved_version: str = ""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ListedModule(PinnedModule):
    """A pinned module with its files, which we write for other readers and never read."""

    file_manifest: Sequence[TreeEntry]


@dataclass(frozen=True, kw_only=True)
class Lockfile:
    """The whole file."""

    version: int = 1
    generated_at: str = ""
    modules: Sequence[PinnedModule]

    @cached_property
    def commits(self) -> Mapping[str, PinnedCommit]:
        """The commits that git modules are pinned to, by module id."""
        sources = ((module.id, module.resolved_source.git) for module in self.modules)
        return {module_id: commit for module_id, commit in sources if commit}


def load(repo: Path) -> Lockfile:
    """Read a repo's lockfile. Raises `DeployError`."""
    path = repo / FILE_NAME
    looks.at(path)
    try:
        return _decode(path, path.read_bytes())
    except FileNotFoundError as error:
        raise DeployError(
            "E_LOCKFILE_MISSING",
            f"{path} does not exist; run `fleet-agentpack lock` or `fleet-agentpack update`",
            hint="run `fleet-agentpack lock`",
            **both_ways(path=path),
        ) from error
    except OSError as error:
        raise DeployError.io(path, error, "read") from error


@dataclass(frozen=True)
class _Header:
    version: Any


def _decode(path: Path, data: bytes) -> Lockfile:
    try:
        version = msgspec.json.decode(data, type=_Header).version
        if version in SUPPORTED_VERSIONS:
            return msgspec.json.decode(data, type=Lockfile)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DeployError(
            "E_LOCKFILE_INVALID",
            f"{path} is not a valid lockfile",
            error=f"{type(error).__name__}: {error}",
            **both_ways(path=path),
        ) from error
    raise DeployError(
        "E_LOCKFILE_UNSUPPORTED_VERSION",
        f"{path}: version {version} is not supported, only version 1",
        version=version,
        supported=SUPPORTED_VERSIONS,
        hint="regenerate it with `fleet-agentpack lock`",
        **both_ways(path=path),
    )
