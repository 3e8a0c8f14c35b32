"""Runs git in agents' repositories, whatever repository the environment of the server names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.process import Completed, run

GIT_S = 300.0
_REPOSITORY_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")
# For commits of ours, where the user has not told git who they are.
_IDENTITY = {
    "GIT_AUTHOR_NAME": "fleet-agentpack",
    "GIT_AUTHOR_EMAIL": "fleet-agentpack@localhost",
    "GIT_COMMITTER_NAME": "fleet-agentpack",
    "GIT_COMMITTER_EMAIL": "fleet-agentpack@localhost",
}


@dataclass(frozen=True)
class Git:
    """Git as a program, with the environment that it gets."""

    environ: Mapping[str, str]

    def run(self, directory: Path, *arguments: str, index: Path | None = None) -> Completed:
        """Run git in a directory, with another index if given. Raises 503 without git."""
        inherited = {k: v for k, v in self.environ.items() if k not in _REPOSITORY_VARIABLES}
        env = {**_IDENTITY, **inherited, **({"GIT_INDEX_FILE": str(index)} if index else {})}
        try:
            return run(["git", "-C", directory, *arguments], env=env, timeout_s=GIT_S)
        except FileNotFoundError as error:
            raise FleetError.unavailable("git is not installed; local agents need it.") from error

    def text(self, directory: Path, *arguments: str) -> str:
        """What git prints, without surrounding space."""
        return self.run(directory, *arguments).text.strip()

    def succeeds(self, directory: Path, *arguments: str) -> bool:
        """Whether git ends with status 0."""
        return self.run(directory, *arguments).status == 0

    def repository_of(self, directory: Path) -> Path | None:
        """The root of the repository that a directory is in."""
        try:
            found = self.run(directory, "rev-parse", "--show-toplevel")
        except (FleetError, OSError):
            return None
        root = found.text.strip()
        return Path(root) if found.status == 0 and root else None

    def part_of(self, repository: Path, path: Path) -> str | None:
        """Where a directory is in its repository; None if the last commit does not have it."""
        part = os.path.relpath(path.resolve(), repository.resolve())
        if part == ".":
            return part
        listed = self.run(repository, "ls-tree", "-d", "HEAD", part)
        return part if listed.status == 0 and listed.text.strip() else None
