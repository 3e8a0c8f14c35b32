"""The configuration of a domain (c1) that has prompts, or gets its first, and none yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.climpt.errors import ClimptError, RenderError
from fleet_agentpack.climpt.library import domains, has_profile
from fleet_agentpack.climpt.options import profile_name
from fleet_agentpack.climpt.profile import Profile
from fleet_agentpack.climpt.project_files import (
    CONFIG_FOLDER,
    FOLDER,
    NAME,
    ProjectFiles,
    UnusableFileError,
    below,
)
from fleet_agentpack.kit import yaml12


@dataclass(frozen=True)
class NewProfile:
    """The two files to be, and the names of the domain's first command."""

    agent: str
    c1: str
    c2: str
    c3: str

    @property
    def prompt_dir(self) -> str:
        """Where its prompts are, below the project."""
        return f"{FOLDER}/{self.agent}/prompts/{self.c1}"

    @property
    def shown(self) -> str:
        """Its first file as people name it."""
        return self._file("app")

    def texts(self, files: ProjectFiles) -> dict[Path, str]:
        """What to write where. Raises `ClimptError`."""
        folders = {
            "working_dir": f"{FOLDER}/{self.agent}",
            "app_prompt": {"base_dir": f"prompts/{self.c1}"},
            "app_schema": {"base_dir": f"schema/{self.c1}"},
        }
        patterns = {
            "directiveType": {"pattern": f"^({self.c2})$"},
            "layerType": {"pattern": f"^({self.c3})$"},
        }
        return {
            in_project(files, self._file("app")): yaml12.dump(folders),
            in_project(files, self._file("user")): yaml12.dump({"params": {"two": patterns}}),
        }

    def _file(self, by: str) -> str:
        return f"{CONFIG_FOLDER}/{profile_name(self.agent, self.c1)}-{by}.yml"


def missing_profiles(files: ProjectFiles, agent: str) -> Iterator[NewProfile]:
    """The profiles that prompts of the project lack, so that nothing finds them."""
    root = files.roots()[0]
    used = set(_prompt_dirs(files, agent))
    for folder in sorted((root / FOLDER / agent / "prompts").glob("*")):
        name = profile_name(agent, folder.name)
        if not NAME.fullmatch(folder.name) or folder.resolve() in used or has_profile(files, name):
            continue
        parents = (path.parent for path in sorted(folder.glob("*/*/f_*.md")))
        first = next((p for p in parents if _are_names(p.name, p.parent.name)), None)
        if first:
            yield NewProfile(agent, folder.name, first.parent.name, first.name)


def in_project(files: ProjectFiles, path: str) -> Path:
    """A path below the project. Raises `ClimptError` for one that leads out of it."""
    try:
        return below(files.roots()[0], path)
    except UnusableFileError as error:
        raise ClimptError("Cannot add", details=f"{path} {error}") from error


def _are_names(*words: str) -> bool:
    return all(NAME.fullmatch(word) for word in words)


def _prompt_dirs(files: ProjectFiles, agent: str) -> Iterator[Path]:
    for c1 in domains(files, agent):
        try:
            yield Profile.load(files, profile_name(agent, c1)).prompt_dir.resolve()
        except RenderError:
            continue
