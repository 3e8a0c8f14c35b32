"""The values that flow through the engine: roots, contents, outputs, and the state of one file.

The types that exist once per file are named tuples, because ten thousand of them are made per call.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError, io_errors
from fleet_agentpack.kit.stamps import Stamp

MANIFEST_PREFIX = ".agentpack.manifest"

Layer = Literal["upstream", "global", "machine", "project"]  # low to high


class Root(NamedTuple):
    """A directory that one target's outputs go to."""

    target: str
    dir: str
    scan_extras: bool

    @property
    def manifest_path(self) -> str:
        """Where this root's list of managed files is kept."""
        return self.path(f"{MANIFEST_PREFIX}.{safe_name(self.target)}.json")

    @property
    def legacy_manifest_path(self) -> str:
        """Where older versions kept it."""
        return self.path(f"{MANIFEST_PREFIX}.json")

    def path(self, relative: str) -> str:
        """A path below this root."""
        return f"{self.dir}/{relative}" if self.dir != "/" else f"/{relative}"


class FileState(NamedTuple):
    """The state of one file: its hash and what its mode says. An absent file is None."""

    sha256: str
    executable: bool
    private: bool = False  # whether others may not read it
    stamp: Stamp | None = None  # what it is known by, if it is remembered
    link: str | None = None  # where it leads, if it is a symbolic link


class Blob(NamedTuple):
    """Content known by its hash: a file's, read when needed, or generated."""

    sha256: str
    executable: bool
    path: str
    data: bytes | None = None
    layer: Layer = "upstream"  # the module's own files, or the overlay that they are from
    private: bool = False  # whether its source may not be read by others

    @classmethod
    def of(cls, data: bytes, *, layer: Layer = "upstream", private: bool = False) -> Blob:
        """A blob of generated content."""
        return cls(hashlib.sha256(data).hexdigest(), False, "", data, layer, private)

    @property
    def mode(self) -> int:
        """The mode of a new file, before the umask."""
        return (0o755 if self.executable else 0o644) & (0o700 if self.private else 0o777)

    def read(self) -> bytes:
        """The bytes. Raises `DeployError` when the file has changed since it was hashed."""
        if self.data is not None:
            return self.data
        data = read_file(self.path)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            message = f"{self.path} changed while it was being read; run the command again"
            raise DeployError.because("changed_meanwhile", message, path=self.path)
        return data


class Output(NamedTuple):
    """One file that a target wants: where, what, and from which modules."""

    root: Root
    path: str
    blob: Blob
    module_ids: tuple[str, ...]

    @property
    def relative(self) -> str:
        """The path below the root."""
        return self.path[len(self.root.path("")) :]


def read_file(path: str) -> bytes:
    """All bytes of a file; symbolic links are followed. Raises `DeployError`."""
    with io_errors(path, "read"), open(path, "rb", buffering=0) as stream:
        return stream.readall() or b""


def names_in(directory: str | Path) -> list[str]:
    """The names in a directory, none when there is no such directory. Raises `DeployError`."""
    reads.into(directory)
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DeployError.io(directory, error, "read") from error


@lru_cache(maxsize=1024)
def safe_name(text: str) -> str:
    """Text as one component of a file name: anything unusual becomes `_`."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else "_" for c in text)


def module_fs_key(module_id: str, *, bounded: bool = True) -> str:
    """The directory name that stands for a module id in overlays and cursor rules."""
    name = safe_name(module_id) or "module"
    digest = hashlib.sha256(module_id.encode("utf-8", "replace")).hexdigest()
    return f"{name[:64] if bounded else name}--{digest[:10]}"


def copy_name(target: str, path: str) -> str:
    """Where a snapshot keeps the copy of a path, below its directory of such copies."""
    return f"{safe_name(target)}/{copy_key(path)}"


def copy_key(path: str) -> str:
    """The name of a path's copy among those of its target."""
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def posix(path: str) -> str:
    """A path as text with forward slashes."""
    return path.replace("\\", "/") if os.sep == "\\" else path


def owner(roots: tuple[Root, ...], target: str, path: str) -> Root | None:
    """The root that a path belongs to: the deepest one of its target above it."""
    best: Root | None = None
    for root in roots:
        inside = root.target == target and path.startswith(f"{root.dir.rstrip('/')}/")
        if inside and (best is None or len(root.dir) > len(best.dir)):
            best = root
    return best
