"""Files: where they are and how they are shown, parsed with one error, written under a lock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.kit.files import write_atomic
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


KeyPath = tuple[str | int, ...]  # where a value is inside parsed data

MAX_MANIFEST_BYTES = 10_000_000


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
