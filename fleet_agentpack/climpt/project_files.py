"""Finds and reads climpt's files: below the project, then below the home."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.project import up_to_repository

FOLDER = ".agent"
CONFIG_FOLDER = f"{FOLDER}/climpt/config"
REGISTRY_CONFIG = f"{CONFIG_FOLDER}/registry_config.json"
DEFAULT_AGENT = "climpt"
MAX_BYTES = 64 * 1024 * 1024

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

NAME_RULE = "use letters, digits, '-' and '_' only, at most 100"
NAME_HINT = f"{NAME_RULE}; correct the registry"

_REASONS = {
    "too_large": f"larger than {MAX_BYTES // 1024 // 1024} MB",
    "not_text": "not UTF-8 text",
}
CORRECT_FILE = Action("reload", text="correct the file, then call {}", person="correct the file")

_INIT_HINT = Action.command("climpt", "init", text="`{}` puts an example there")


class UnusableFileError(ValueError):
    """A file that exists but must not or cannot be read; the message says why."""


@dataclass(frozen=True)
class FoundFile:
    """A file's text, and how to name the file to the caller."""

    shown: str
    text: str


class ProjectFiles:
    """The two roots that climpt looks below; without a project, the home alone."""

    def __init__(self, project: Path | None, home: Path, no_project: str = "") -> None:
        self._cwd = project or home
        self._home = home
        self._no_project = no_project  # why there is none and what to do, as a sentence

    def roots(self) -> list[Path]:
        """The project first, then the home."""
        return list(dict.fromkeys([self._project(), self._home]))

    def registry(self, agent: str) -> FoundFile:
        """The registry file of an agent. Raises `ClimptError` when there is none."""
        path = self._registered().get(agent) or f"{FOLDER}/{agent}/registry.json"
        found = self._find(path)
        if found is None:
            known = _INIT_HINT if agent == DEFAULT_AGENT else self._agents_hint(path)
            hint = self._no_project or known
            raise ClimptError.registry_missing(path, hint)
        return found

    def registry_path(self, agent: str) -> Path:
        """Where an agent's registry is, or would be made: in the project unless it is elsewhere."""
        path = self._registered().get(agent) or f"{FOLDER}/{agent}/registry.json"
        with registry_errors(path):
            places = [below(root, path) for root in self.roots()]
        return next((place for place in places if place.exists()), places[0])

    def shown(self, path: Path) -> str:
        """A file as people name it: relative to the project, or to the home."""
        project, home = (root.resolve() for root in (self._project(), self._home))
        if path.is_relative_to(project):
            return str(path.relative_to(project))
        return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)

    def prompt_sources(self) -> list[Path]:
        """The files and folders that decide which commands there are, there or not."""
        roots = [Path(place) for place in up_to_repository(str(self._cwd))]
        roots = list(dict.fromkeys([*roots, self._home]))
        found = [root / FOLDER for root in roots]
        for root in self.roots():
            found.append(root / REGISTRY_CONFIG)
            found += [each / "registry.json" for each in sorted((root / FOLDER).glob("*/"))]
        with suppress(ClimptError):  # its file is among these
            found += [root / path for root in self.roots() for path in self._registered().values()]
        return list(dict.fromkeys(found))

    def folders(self) -> list[str]:
        """Every folder that an agent may have: a profile's name may begin with its name."""
        return sorted(
            {*self.agents(), *(p.name for r in self.roots() for p in (r / FOLDER).glob("*/"))}
        )

    def agents(self) -> list[str]:
        """Every agent that has a registry: those configured, then those with a folder."""
        folders = sorted(
            registry.parent.name
            for root in self.roots()
            for registry in (root / FOLDER).glob("*/registry.json")
        )
        named = [DEFAULT_AGENT, *self._registered(), *folders]
        return [agent for agent in dict.fromkeys(named) if NAME.fullmatch(agent)]

    def _registered(self) -> dict[str, str]:
        """The registries that registry_config.json names, read anew each time."""
        found = self._find(REGISTRY_CONFIG)
        with registry_errors(REGISTRY_CONFIG):
            return _registries(found.text) if found else {}

    def _find(self, path: str) -> FoundFile | None:
        """The first of the roots' files of that path; an absolute path stands for itself."""
        for root in self.roots():
            with registry_errors(path):
                text = read(root, path)
            if text is not None:
                return FoundFile(self._shown(root, path), text)
        return None

    def _agents_hint(self, path: str) -> str:
        return f"agents: {', '.join(self.agents())}; add others in {REGISTRY_CONFIG} or as {path}"

    def _project(self) -> Path:
        """The nearest folder with climpt's files, looking no higher than the repository's root."""
        lineage = map(Path, up_to_repository(str(self._cwd)))
        nearest_first = (place for place in lineage if place != self._home)
        return next((place for place in nearest_first if (place / FOLDER).is_dir()), self._cwd)

    def _shown(self, root: Path, path: str) -> str:
        return f"~/{path}" if root == self._home != self._project() else path


@contextmanager
def registry_errors(path: str) -> Iterator[None]:
    """Let what is wrong with a registry's file leave the block as the contract's error."""
    try:
        yield
    except UnusableFileError as error:
        raise ClimptError.registry_unreadable(path, str(error), CORRECT_FILE) from error


def read(root: Path, path: str) -> str | None:
    """A text file below a root; None when it is not there. Raises `UnusableFileError`."""
    file = below(root, path)
    try:
        return read_text(file, MAX_BYTES)
    except FileNotFoundError:
        return None
    except UnreadableError as error:
        if error.kind == "below_a_file":
            return None
        raise UnusableFileError(_REASONS.get(error.kind, str(error))) from error


def below(root: Path, path: str) -> Path:
    """A path below a root, links followed; an absolute path from a configuration stands for itself.

    Raises `UnusableFileError` when it leads out of the root.
    """
    try:
        resolved = (root / path).resolve()
        inside = Path(path).is_absolute() or is_inside(resolved, root)
    except (OSError, ValueError, RuntimeError) as error:
        raise UnusableFileError("not a usable path") from error
    if not inside:
        raise UnusableFileError("leads out of the folder it belongs to")
    return resolved


def _registries(text: str) -> dict[str, str]:
    try:
        data: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise UnusableFileError(f"not valid JSON: {error.msg} (line {error.lineno})") from error
    except (ValueError, RecursionError) as error:
        raise UnusableFileError("not usable JSON") from error
    registries = data.get("registries") if isinstance(data, dict) else None
    if not isinstance(registries, dict):
        raise UnusableFileError("registries must be an object of agents and paths")
    return {agent: path for agent, path in registries.items() if path and isinstance(path, str)}
