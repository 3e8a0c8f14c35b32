"""`agentpack.lock.json`: the commits and hashes that modules are pinned to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_agentpack.deploy.errors import DeployError

FILE_NAME = "agentpack.lock.json"
SUPPORTED_VERSIONS = [1]


@dataclass(frozen=True)
class LockedGit:
    """The commit that a git module is pinned to."""

    url: str
    commit: str
    subdir: str


@dataclass(frozen=True)
class Locked:
    """One module as the lockfile pins it."""

    id: str
    sha256: str
    git: LockedGit | None


@dataclass(frozen=True)
class Lockfile:
    """The pinned modules by id."""

    path: Path
    modules: Mapping[str, Locked]


def load(repo: Path) -> Lockfile:
    """Read a repo's lockfile. Raises `DeployError`."""
    path = repo / FILE_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DeployError(
            "E_LOCKFILE_MISSING",
            f"there is no {path}; run `fleet-agentpack lock` or `fleet-agentpack update`",
            path=str(path),
            path_posix=path.as_posix(),
            hint="run `fleet-agentpack lock`",
        ) from error
    except OSError as error:
        raise DeployError.io(path, error, "read") from error
    return Lockfile(path, _modules(path, data))


def _modules(path: Path, data: bytes) -> dict[str, Locked]:
    try:
        document = json.loads(data)
        version = document["version"]
        rows = document["modules"] if version in SUPPORTED_VERSIONS else []
        modules = [_locked(row) for row in rows]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DeployError(
            "E_LOCKFILE_INVALID",
            f"{path} cannot be read as a lockfile",
            path=str(path),
            path_posix=path.as_posix(),
            error=f"{type(error).__name__}: {error}",
        ) from error
    if version not in SUPPORTED_VERSIONS:
        raise DeployError(
            "E_LOCKFILE_UNSUPPORTED_VERSION",
            f"{path}: version {version} is not supported",
            path=str(path),
            path_posix=path.as_posix(),
            version=version,
            supported=SUPPORTED_VERSIONS,
            hint="write it again with `fleet-agentpack lock`",
        )
    return {module.id: module for module in modules}


def _locked(row: Mapping[str, Any]) -> Locked:
    git = row["resolved_source"].get("git")
    pinned = (
        LockedGit(_text(git["url"]), _text(git["commit"]), _text(git.get("subdir", "")))
        if git
        else None
    )
    return Locked(_text(row["id"]), _text(row["sha256"]), pinned)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected text")
    return value
