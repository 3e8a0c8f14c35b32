"""Where things are: the project, the user's `~/.fractary`, and how paths are shown."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.kit.paths import expand_home


@dataclass(frozen=True)
class Places:
    """The working directory, the home and the environment that a service was started with."""

    cwd: Path
    home: Path
    environ: Mapping[str, str]

    @property
    def project(self) -> Path:
        """The project's own directory of definitions and configuration."""
        return self.cwd / ".fractary"

    @property
    def user(self) -> Path:
        """The user's directory, shared by all projects."""
        return self.home / ".fractary"

    def shown(self, path: Path) -> str:
        """A path for a result: relative under the working directory, else absolute."""
        try:
            return str(path.relative_to(self.cwd))
        except ValueError:
            return str(path)

    def expanded(self, text: str) -> Path:
        """A configured path: `~` is the home, anything relative starts at the project."""
        return self.cwd / expand_home(text, self.home)


def read_text(path: Path, limit: int) -> str:
    """A whole regular text file of bounded size. Raises `UnreadableError`, `FileNotFoundError`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise UnreadableError(_reason(error)) from error
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("not a regular file")
        data = stream.read(limit + 1)
    if len(data) > limit:
        size = max(status.st_size, len(data))
        raise UnreadableError(f"{size:,} bytes; at most {limit:,} are read")
    if b"\x00" in data:
        raise UnreadableError("a binary file, not text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8 text (byte {error.start})") from error


class UnreadableError(ValueError):
    """A file that is there but cannot be taken for text."""


def _reason(error: Exception) -> str:
    return (
        (error.strerror or "cannot be read") if isinstance(error, OSError) else "not a usable path"
    )


def refuse_unwritable(path: Path, error: OSError) -> ForgeError:
    """The error for a file that could not be written."""
    return ForgeError.denied(
        f"cannot write {path}: {error.strerror or 'refused'}",
        "Check the permissions of the directory",
        path=str(path),
    )
