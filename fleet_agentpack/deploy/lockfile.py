"""`agentpack.lock.json`: the commits and hashes that modules are pinned to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from fleet_agentpack.deploy import manifest, reads
from fleet_agentpack.deploy.errors import DeployError, both_ways
from fleet_agentpack.deploy.manifest import GitSource, Module
from fleet_agentpack.deploy.trees import TreeEntry

FILE_NAME = "agentpack.lock.json"
COMMIT = re.compile(r"[0-9a-f]{40}\Z")
SUPPORTED_VERSIONS = [1]


@dataclass(frozen=True)
class PinnedCommit:
    """The commit that a git module is pinned to."""

    url: str
    commit: str
    subdir: str = ""
    ref: str | None = None  # what it was resolved from; agentpack does not write it

    @property
    def source(self) -> GitSource:
        """The same as a source; the commit is all that is wanted of its history."""
        return GitSource(self.url, self.commit, self.subdir, shallow=False)

    def misfit(self, wanted: GitSource) -> str:
        """What has changed in the manifest since this was pinned; empty when nothing has."""
        if wanted.url != self.url:
            return f"url is {wanted.url}, not {self.url}"
        if wanted.subdir.strip("/") != self.subdir.strip("/"):
            return f"subdir is {wanted.subdir!r}, not {self.subdir!r}"
        by_commit = COMMIT.match(wanted.ref) and wanted.ref != self.commit
        if by_commit or self.ref not in (None, wanted.ref):
            return f"ref is {wanted.ref}, not {self.ref or self.commit}"
        return ""


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
    def pins(self) -> Mapping[str, PinnedModule]:
        """The pinned modules by id."""
        return {module.id: module for module in self.modules}

    def pin(self, module: Module) -> tuple[PinnedModule, PinnedCommit] | None:
        """What a git module is pinned to, None when it is not pinned.

        Raises `DeployError` when the manifest says something else by now.
        """
        pinned, wanted = self.pins.get(module.id), module.source.git
        if pinned is None or wanted is None:
            return None
        commit = pinned.resolved_source.git
        usable = commit is not None and COMMIT.match(commit.commit)
        misfit = commit.misfit(wanted) if commit and usable else "source is not a commit of it"
        if commit is None or misfit:
            raise DeployError(
                "E_LOCKFILE_OUTDATED",
                f"module {module.id}: {FILE_NAME} does not fit {manifest.FILE_NAME} any more: its"
                f" {misfit}; `fleet-agentpack update` pins it again",
                module_id=module.id,
                hint="run `fleet-agentpack update`",
            )
        return pinned, commit

    def holds(self, module: Module) -> bool:
        """Whether a git module is pinned as the manifest wants it."""
        try:
            return self.pin(module) is not None
        except DeployError:
            return False


def load(repo: Path) -> Lockfile:
    """Read a repo's lockfile. Raises `DeployError`."""
    path = repo / FILE_NAME
    reads.at(path)
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
