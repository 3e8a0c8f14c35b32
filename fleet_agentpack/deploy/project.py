"""The project that a command works in: its root, and the id that its overlays go by."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.home import Home, git_text
from fleet_agentpack.kit.project import FoundProject, why_no_project
from fleet_agentpack.kit.project import find_project as find_place
from fleet_agentpack.kit.stamps import Remembered


@dataclass(frozen=True)
class Project:
    """A directory with files of its own to deploy to."""

    home: Home
    root: str
    has_git: bool

    @cached_property
    def id(self) -> str:
        """The name of its overlays, from its remote; asked for late, since few repos have any."""
        origin = self._origin() if self.has_git else ""
        return _digest(normal_origin(origin) if origin else os.path.realpath(self.root))

    def is_called(self, name: str) -> bool:
        """Whether a name means this project: its id, its remote or its directory."""
        directory = os.path.realpath(self.home.expand(name))
        return self.id in (name, _digest(normal_origin(name)), _digest(directory))

    def _origin(self) -> str:
        asked = git_text(self.home, self.root, "remote", "get-url", "origin")
        return asked or _configured_origin(Path(self.root, ".git"))


def find_project(home: Home, remembered: Remembered[Project]) -> Project | None:
    """The git work tree around the directory to work in, or that directory itself."""
    if not home.place.path:
        return None
    start = Path(home.place.path)
    asked = _git_files(home, start)
    for path in (start, home.user, *asked):
        reads.at(path)
    if _place(home).reason:  # it may have been moved away since
        return None
    return remembered.get(lambda: _find(home, start), *asked)


def why_none(home: Home) -> str:
    """Why there is no project, and what to do about it."""
    return (
        f"{_place(home).reason}; start in a project, or name one: `fleet-agentpack --project DIR`"
    )


def _place(home: Home) -> FoundProject:
    """The directory to work in as it is now."""
    return find_place(home.place.path, str(home.user)) if home.place.path else home.place


def _find(home: Home, start: Path) -> Project:
    told = git_text(home, start, "rev-parse", "--show-toplevel")
    root = Path(told) if told else _work_tree(start)
    # A work tree may be the whole home, such as dotfiles kept in git.
    if root is None or why_no_project(str(root), str(home.user)):
        return Project(home, os.path.normpath(start), has_git=False)
    return Project(home, os.path.normpath(root), has_git=True)


def _work_tree(start: Path) -> Path | None:
    """The nearest directory that looks like one: git may be missing, or refuse to say."""
    for directory in (start, *start.parents):
        if (directory / ".git/HEAD").exists() or (directory / ".git").is_file():
            return directory
    return None


def _git_files(home: Home, start: Path) -> list[Path]:
    """Everything that git's answer about a directory depends on."""
    places = [directory / ".git" for directory in (start, *start.parents)]
    settings = [home.user / ".gitconfig", home.user / ".config/git/config"]
    return [*places, *(place / "config" for place in places), *settings]


def _configured_origin(place: Path) -> str:
    """The remote that `.git/config` names, for when git cannot be asked."""
    try:
        if place.is_file():  # a linked work tree or a submodule
            place = place.parent / place.read_text().removeprefix("gitdir:").strip()
            common = place / "commondir"
            place = place / common.read_text().strip() if common.exists() else place
        lines = (place / "config").read_text("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return ""
    section = ""
    for line in map(str.strip, lines):
        section = line if line.startswith("[") else section
        key, _, value = line.partition("=")
        if section == '[remote "origin"]' and key.strip().lower() == "url":
            return value.strip().strip('"')
    return ""


def normal_origin(url: str) -> str:
    """A remote's URL without its scheme, so that ssh and https name the same project."""
    text = url.strip()
    while text.endswith(".git"):
        text = text[: -len(".git")]
    if text.startswith("git@"):
        return text.removeprefix("git@").replace(":", "/").lower()
    return re.sub(r"\Ahttps?://", "", text).lower()


def _digest(basis: str) -> str:
    return hashlib.sha256(basis.encode("utf-8", "surrogateescape")).hexdigest()[:16]
