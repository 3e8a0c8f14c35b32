"""Copies the example tree that ships in the package into a project."""

from __future__ import annotations

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
    example = _example()
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


def _example() -> dict[str, bytes]:
    """The example's files by their path in a project, in order."""
    root = Path(__file__).with_name("example")
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {f"{FOLDER}/climpt/{name}": (root / name).read_bytes() for name in names}
