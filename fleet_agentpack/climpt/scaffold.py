"""Copies the example tree that ships in the package into a project."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.project_files import FOLDER, UnusableFileError, below
from fleet_agentpack.climpt.results import Initialised
from fleet_agentpack.kit.files import write_atomic

REGISTRY = f"{FOLDER}/climpt/registry.json"


def init(project: Path) -> Initialised:
    """Write the example's missing files; never changes an existing one.

    Raises `ClimptError`, with nothing written, when the project has a registry of its own.
    """
    example = {f"{FOLDER}/climpt/{name}": content for name, content in _example()}
    targets = {name: _target(project, name) for name in example}
    registry = targets[REGISTRY]
    if registry.exists() and _content(registry) != example[REGISTRY]:
        raise ClimptError(
            "Already initialised",
            details=f"{REGISTRY} has commands of its own; nothing was written",
            hint="`fleet-agentpack climpt search` finds them",
        )
    missing = [name for name, target in targets.items() if not target.exists()]
    # The registry comes last: what it names is there by then.
    for name in sorted(missing, key=lambda name: name == REGISTRY):
        _write(targets[name], name, example[name])
    return Initialised(tuple(missing), tuple(name for name in example if name not in missing))


def _target(project: Path, name: str) -> Path:
    try:
        return below(project, name)
    except UnusableFileError as error:
        raise ClimptError("Cannot initialise", details=f"{name} {error}") from error


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _write(target: Path, name: str, content: bytes) -> None:
    try:
        write_atomic(target, content)
    except OSError as error:
        reason = error.strerror or "cannot be written"
        raise ClimptError("Cannot initialise", details=f"{name}: {reason}") from error


def _example() -> list[tuple[str, bytes]]:
    """The example's files by their path, in order."""
    root = files("fleet_agentpack.climpt") / "example"
    return sorted((name, file.read_bytes()) for name, file in _files(root, ""))


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry
