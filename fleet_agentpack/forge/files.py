"""Files: where they are and how they are shown, parsed with one error, written under a lock."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.kit.files import UnreadableError, read_text, write_atomic
from fleet_agentpack.kit.journal import SwapError
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock
from fleet_agentpack.kit.paths import PathArguments, expand_home


@dataclass(frozen=True)
class Directories:
    """The project, the home and the environment that a service works with."""

    root: Path | None  # the project's directory; None where there is no project
    home: Path
    environ: Mapping[str, str]
    no_project: str = ""  # why there is none and what to do, as a sentence
    start: Path | None = None  # of a caller's relative paths, unless it is the project

    @property
    def project(self) -> Path:
        """The project's own definitions and configuration. Raises `ForgeError` without one."""
        if self.root is None:
            raise ForgeError("CONFIG_ERROR", "this needs a project", self.no_project)
        return self.root / ".fractary"

    @property
    def user(self) -> Path:
        """The user's directory, shared by all projects."""
        return self.home / ".fractary"

    @property
    def claude(self) -> Path:
        """Where Claude Code keeps what is the user's."""
        return self.paths.expand("$CLAUDE_CONFIG_DIR")

    @property
    def codex(self) -> Path:
        """Where Codex keeps what is the user's."""
        return self.paths.expand("$CODEX_HOME")

    @property
    def paths(self) -> PathArguments:
        """What paths mean that a caller gives."""
        return PathArguments(self.start or self.root, self.home, self.environ, self.no_project)

    def shown(self, path: Path | str) -> str:
        """A path for a result: relative inside the project, else as it is."""
        inside = self.root is not None and Path(path).is_relative_to(self.root)
        return str(Path(path).relative_to(self.root)) if inside and self.root else str(path)

    def expanded(self, text: str) -> Path:
        """A configured path: `~` is the home, anything relative starts at the project."""
        return (self.root or self.home) / expand_home(text, self.home)


T = TypeVar("T")

KeyPath = tuple[str | int, ...]  # where a value is inside parsed data

MAX_CONFIG_BYTES = 1_000_000
MAX_MANIFEST_BYTES = 10_000_000
MAX_DEPTH = 100  # as for YAML; what walks the data may recurse


class UnparsableError(ValueError):
    """Text that is not the JSON or YAML mapping it should be; the message says what and where."""


def parse_json(text: str) -> object:
    """JSON data; duplicate keys and endless nesting are refused. Raises `UnparsableError`."""
    try:
        data = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise UnparsableError(f"not valid JSON: {error.msg} (line {error.lineno})") from error
    except RecursionError as error:
        raise UnparsableError("not usable JSON: nested too deeply") from error
    except ValueError as error:  # a number with too many digits
        raise UnparsableError("not usable JSON: a number is too long") from error
    if _is_deep(data):
        raise UnparsableError(f"not usable JSON: nested deeper than {MAX_DEPTH} levels")
    return data


def parse_yaml(text: str) -> object:
    """YAML 1.2 data. Raises `UnparsableError`."""
    from fleet_agentpack.kit import yaml12

    try:
        return yaml12.load(text)
    except yaml12.YamlError as error:
        raise UnparsableError(f"not valid YAML: {error}") from error


def read_mapping(path: Path, limit: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """The mapping in a JSON or YAML file, chosen by its ending; an empty YAML file has no keys.

    Raises `UnparsableError`, `FileNotFoundError`.
    """
    text = read_parsable(path, limit)
    data = parse_yaml(text) or {} if path.suffix in (".yaml", ".yml") else parse_json(text)
    return as_mapping(data)


def read_parsable(path: Path, limit: int) -> str:
    """The text of a file. Raises `UnparsableError`, `FileNotFoundError`."""
    try:
        return read_text(path, limit)
    except UnreadableError as error:
        # Container mounts make a directory of a file that is not there.
        is_directory = error.kind == "directory"
        reason = "a directory, where a file is expected" if is_directory else str(error)
        raise UnparsableError(reason) from error


def as_mapping(data: object) -> dict[str, Any]:
    """Parsed data that has to be an object with text keys. Raises `UnparsableError`."""
    if not isinstance(data, dict):
        raise UnparsableError(f"must be an object, not {type_name(data)}")
    return {str(key): value for key, value in data.items()}


def type_name(value: object) -> str:
    """What JSON calls the type of a value."""
    return next((name for kind, name in _NAMES if isinstance(value, kind)), "unknown")


_NAMES: tuple[tuple[type, str], ...] = (
    (NoneType, "null"),
    (bool, "boolean"),
    (int, "number"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def _is_deep(data: object) -> bool:
    level = [data]
    for _ in range(MAX_DEPTH + 1):
        inner = [each for each in level if isinstance(each, dict | list)]
        level = [
            item for each in inner for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not inner:
            return False
    return True


def _unique(pairs: list[tuple[str, T]]) -> dict[str, T]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise UnparsableError(f"not usable JSON: duplicate key {key!r}")
            seen.add(key)
    return found


@contextmanager
def writing_below(root: Path) -> Iterator[None]:
    """Hold the lock of a `.fractary` directory. Raises `ForgeError` when a write fails inside."""
    try:
        with file_lock(root / ".forge.lock"):
            yield
    except LockTimeoutError as error:
        raise ForgeError.conflict(
            f"another command is writing to {root}", "Try again when it has ended"
        ) from error
    except OSError as error:
        raise ForgeError.unwritable(Path(error.filename or root), error) from error
    except SwapError as error:
        raise ForgeError.conflict(
            str(error), "Remove the cause, then run the command again", path=error.path
        ) from error


def write_file(path: Path, content: bytes | str) -> None:
    """Replace a file; a symbolic link to it stays one."""
    write_atomic(Path(os.path.realpath(path)), content, durable=True)


def dotted(path: KeyPath) -> str:
    """A path as text."""
    return ".".join(str(part) for part in path)


def timestamp(now: datetime) -> str:
    """A time as the original program writes it."""
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
