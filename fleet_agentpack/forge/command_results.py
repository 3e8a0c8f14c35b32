"""What the commands that write answer, for `--json` and for the lines that people read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleet_agentpack.forge.errors import Warnings
from fleet_agentpack.forge.names import Kind, Scope
from fleet_agentpack.forge.results import PluginVersion
from fleet_agentpack.kit.results import UNKNOWN, Maybe


@dataclass(frozen=True)
class Initialised:
    """The configuration and directories that `init` created."""

    created: tuple[str, ...]


@dataclass(frozen=True)
class Created:
    """The file of a new agent, tool or fork."""

    path: str
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class RegistryAddition:
    """A registry that was added, the file that changed, and what was found there."""

    name: str
    path: str
    url: str
    format: Maybe[Literal["claude", "fractary", "plugins"]] = UNKNOWN
    plugins: Maybe[int] = UNKNOWN  # those that can be shown
    listed: Maybe[int] = UNKNOWN  # those that it lists
    commit: Maybe[str] = UNKNOWN
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class RegistryRemoval:
    """A registry that was removed, and the file that changed."""

    name: str
    path: str


@dataclass(frozen=True)
class Login:
    """Where the token of a registry is kept: `keyring` or a file's path."""

    registry: str
    stored: str
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class Logout:
    """Whether there was a login to forget."""

    registry: str
    loggedOut: bool


@dataclass(frozen=True)
class Installation:
    """What `install` put in place."""

    installed: tuple[PluginVersion, ...]
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class Removal:
    """What `uninstall` removed."""

    removed: PluginVersion
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class PluginUpdate:
    """A plugin's step to a newer version, or why it was not taken."""

    name: str
    from_: str
    to: str
    scope: Maybe[Scope] = UNKNOWN
    reason: Maybe[Literal["breaking"]] = UNKNOWN


@dataclass(frozen=True)
class Updates:
    """What `update` did, or would do."""

    updated: tuple[PluginUpdate, ...]
    skipped: tuple[PluginUpdate, ...]
    dryRun: bool
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class MergeConflict:
    """A value that both sides changed; a missing side is null."""

    path: str
    base: object
    local: object
    upstream: object


@dataclass(frozen=True)
class Merge:
    """What merging upstream into a fork changes; `merged` is whether it was written."""

    name: str
    type: Kind
    path: str
    from_: str
    to: str
    changes: tuple[str, ...]
    conflicts: tuple[MergeConflict, ...]
    merged: Maybe[bool] = UNKNOWN
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class Locked:
    """The lockfile and how much it pins."""

    path: str
    agents: int
    tools: int
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class LockProblem:
    """A definition that is not what the lockfile says."""

    name: str
    type: Kind
    problem: Literal["missing", "integrity_mismatch"]
    expected: object
    actual: str | None


@dataclass(frozen=True)
class LockCheck:
    """Whether everything matches the lockfile."""

    valid: bool
    problems: tuple[LockProblem, ...]
    warnings: Warnings = UNKNOWN
