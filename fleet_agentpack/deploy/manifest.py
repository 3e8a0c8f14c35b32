"""What `agentpack.yaml` says, and which modules a profile selects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.kit.shapes import UnknownKey

FILE_NAME = "agentpack.yaml"

Scope = Literal["user", "project"]
SCOPES: tuple[Scope, ...] = ("user", "project")
BASE_TAG = "base"  # what `init` and `import` give the modules of every profile
IMPORTED = "imported"  # the tag of modules that an import has made

_OF_ONE_PROJECT = re.compile(r"project-[0-9a-f]{16}\Z")


@dataclass(frozen=True)
class GitSource:
    """A module's files inside a git repository."""

    url: str
    ref: str = "main"
    subdir: str = ""
    shallow: bool = True


@dataclass(frozen=True)
class Source:
    """Where a module's files come from: a local path or git, exactly one once checked."""

    local_path: str | None = None
    git: GitSource | None = None


@dataclass(frozen=True)
class Module:
    """One entry of `modules`."""

    id: str
    type: str
    source: Source
    enabled: bool = True
    tags: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    scope: str | None = None  # `user` or `project`; both if none is named
    output: str = ""  # where it goes below a target's directory, if its name does not say

    @property
    def name(self) -> str | None:
        """The text after the id's first colon, if there is one."""
        return self.id.partition(":")[2] if ":" in self.id else None

    def goes_to(self, target: str, scope: Scope) -> bool:
        """Whether this module is for a target's files of the user, or of the project."""
        return self.scope in (None, scope) and (not self.targets or target in self.targets)


@dataclass(frozen=True)
class Profile:
    """A selection of modules, perhaps for one project or one machine."""

    include_tags: tuple[str, ...] = ()
    include_modules: tuple[str, ...] = ()
    exclude_modules: tuple[str, ...] = ()
    project: str = ""  # its id, its remote or its directory
    machine: str = ""

    def takes(self, module: Module) -> bool:
        """Whether a module belongs to this profile; exclusion wins."""
        if not module.enabled or module.id in self.exclude_modules:
            return False
        tagged = any(tag in self.include_tags for tag in module.tags)
        return tagged or module.id in self.include_modules


@dataclass(frozen=True)
class TargetConfig:
    """One entry of `targets`."""

    mode: str
    scope: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Whose files it is for."""
        return tuple(scope for scope in SCOPES if self.scope in (scope, "both"))


@dataclass(frozen=True)
class Manifest:
    """A whole, checked `agentpack.yaml`."""

    path: Path
    version: int
    profiles: Mapping[str, Profile]
    targets: Mapping[str, TargetConfig]
    modules: tuple[Module, ...]
    warnings: tuple[str, ...] = ()  # about keys and targets that mean nothing here

    def profile(self, name: str) -> Profile:
        """A profile by its name. Raises `DeployError`."""
        found = self.profiles.get(name)
        if found is None:
            profiles = sorted(self.profiles)
            message = f"profile not found: {name}; choose from {', '.join(profiles)}"
            raise DeployError.because("profile_not_found", message, profile=name, profiles=profiles)
        return found

    def is_of_project(self, name: str) -> bool:
        """Whether a profile is for one project's files only; agentpack's `import` names them so."""
        return bool(self.profile(name).project or _OF_ONE_PROJECT.match(name))

    def select(self, profile: str) -> list[Module]:
        """The modules of a profile, by id."""
        found = self.profile(profile)
        return sorted((m for m in self.modules if found.takes(m)), key=lambda module: module.id)

    def unmatched_tags(self, profile: str) -> list[str]:
        """The tags of a profile that no module has."""
        known = {tag for module in self.modules for tag in module.tags}
        return [tag for tag in self.profile(profile).include_tags if tag not in known]

    def selection_warnings(self, profile: str) -> Iterator[str]:
        """What a profile names that is not there."""
        if not self.modules:
            return
        found = self.profile(profile)
        tags = {tag for module in self.modules for tag in module.tags}
        ids = {module.id for module in self.modules}
        for tag in self.unmatched_tags(profile):
            if tag == BASE_TAG and all(IMPORTED in module.tags for module in self.modules):
                continue  # a project's files alone were imported; the user's may come later
            yield f"profile {profile}: no module has the tag {tag}{_hint(tag, tags)}"
        for module_id in (*found.include_modules, *found.exclude_modules):
            if module_id not in ids:
                yield f"profile {profile}: there is no module {module_id}{_hint(module_id, ids)}"


def _hint(name: str, known: Iterable[str]) -> str:
    return UnknownKey.among(known, (name,)).hint
