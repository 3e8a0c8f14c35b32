"""Which profile selects the user's files, and which the project's.

A profile that belongs to a project never reaches the user's files: these would change with
whichever project was deployed last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.home import normal_machine
from fleet_agentpack.deploy.manifest import Manifest, Module, Profile, Scope
from fleet_agentpack.deploy.project import Project
from fleet_agentpack.deploy.results import ProfilesUsed

DEFAULT = "default"


@dataclass(frozen=True)
class Selection:
    """A profile for the user's files and one for the project's, by name."""

    manifest: Manifest
    user: str
    project: str

    @property
    def names(self) -> tuple[str, ...]:
        """The profiles that are in use, each once."""
        return tuple(dict.fromkeys((self.user, self.project)))

    @property
    def used(self) -> ProfilesUsed:
        """The same as an answer shows it."""
        return ProfilesUsed(self.project, self.user)

    @property
    def modules(self) -> dict[Scope, list[Module]]:
        """The modules for the user's files and for the project's, by id."""
        of_user = self.manifest.select(self.user)
        same = self.user == self.project
        return {
            "user": of_user,
            "project": of_user if same else self.manifest.select(self.project),
        }

    @property
    def unmatched_tags(self) -> list[str]:
        """Tags that select nothing."""
        return [tag for name in self.names for tag in self.manifest.unmatched_tags(name)]

    @property
    def empty(self) -> str:
        """The name of a profile that selects no module at all, if one does."""
        return next((name for name in self.names if not self.manifest.select(name)), "")

    @property
    def warnings(self) -> Iterator[str]:
        """What the profiles name that is not there."""
        for name in self.names:
            yield from self.manifest.selection_warnings(name)


def choose(manifest: Manifest, asked: str, project: Project | None, machine: str) -> Selection:
    """The profiles to use; the most closely bound ones unless another is asked for."""
    of_user = _bound(manifest, None, machine)
    if asked == DEFAULT:
        return Selection(manifest, of_user, _bound(manifest, project, machine))
    if manifest.is_of_project(asked):
        return Selection(manifest, of_user, asked)
    return Selection(manifest, asked, asked)


def _bound(manifest: Manifest, project: Project | None, machine: str) -> str:
    """The profile that is bound to this place most closely, else the default."""
    best: dict[int, list[str]] = {}
    for name, profile in manifest.profiles.items():
        if _fits(profile, project, machine):
            closeness = 2 * bool(profile.project) + bool(profile.machine)
            best.setdefault(closeness, []).append(name)
    if not best:
        return DEFAULT
    names = sorted(best[max(best)])
    if len(names) > 1:
        raise DeployError.config_invalid(
            f"profiles {' and '.join(names)} are bound to the same project or machine;"
            " bind one of them",
            profiles=names,
        )
    return names[0]


def _fits(profile: Profile, project: Project | None, machine: str) -> bool:
    if not (profile.project or profile.machine):
        return False
    here = not profile.machine or normal_machine(profile.machine) == machine
    if not profile.project:
        return here
    return here and project is not None and project.is_called(profile.project)
