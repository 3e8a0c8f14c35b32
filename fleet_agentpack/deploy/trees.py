"""Trees of source files, looked at where they are and never copied."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import HashCache
from fleet_agentpack.deploy.model import Blob

Tree = dict[str, Blob]  # relative path → content

METADATA_DIR = ".agentpack"
_SKIPPED = frozenset({".git", METADATA_DIR})


class TreeEntry(NamedTuple):
    """One file as lockfiles and baselines list it."""

    path: str
    sha256: str
    bytes: int


class TreeReader:
    """Reads trees through the hash cache, and gives an unchanged tree back as the same object."""

    def __init__(self, hashes: HashCache) -> None:
        self.hashes = hashes
        self.looked_at: set[str] = set()
        self._blobs: dict[str, Blob] = {}
        self._trees: dict[str, Tree] = {}

    def read(self, path: str, boundaries: tuple[str, ...]) -> Tree:
        """The files of a directory, or a single file under its own name.

        Links to files are followed while they stay inside one of the boundaries.
        """
        try:
            top = os.stat(path)
            if stat.S_ISDIR(top.st_mode):
                tree = {
                    name: self._blob(place, status)
                    for name, place, status in _walk(path, boundaries)
                }
            else:
                tree = {_file_name(path): self._blob(path, top)}
        except OSError as error:
            raise _unreadable(path, error) from error
        before = self._trees.get(path)
        if before == tree:
            return before
        self._trees[path] = tree
        return tree

    def file(self, path: str, boundaries: tuple[str, ...]) -> Blob | None:
        """One file's content, or None when there is no such file."""
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                status = _through_link(path, boundaries)
            return self._blob(path, status) if stat.S_ISREG(status.st_mode) else None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(path, error) from error

    def _blob(self, path: str, status: os.stat_result) -> Blob:
        self.looked_at.add(path)
        if not stat.S_ISREG(status.st_mode):
            raise DeployError.config_invalid(f"{path} is not a regular file", path=path)
        sha256 = self.hashes.digest(path, status)
        executable = os.name != "nt" and bool(status.st_mode & stat.S_IXUSR)
        known = self._blobs.get(path)
        if known is not None and known.sha256 == sha256 and known.executable == executable:
            return known
        blob = Blob(sha256, status.st_size, executable, path)
        self._blobs[path] = blob
        return blob


def _walk(
    top: str, boundaries: tuple[str, ...], skipped: frozenset[str] = _SKIPPED
) -> Iterator[tuple[str, str, os.stat_result]]:
    """Every file below a directory: relative name, path, stat."""
    pending = [(top, "")]
    while pending:
        directory, prefix = pending.pop()
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name in skipped:
                    continue
                if not name.isascii():
                    _check_encoding(entry.path)
                if entry.is_symlink():
                    yield prefix + name, entry.path, _through_link(entry.path, boundaries)
                elif entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, f"{prefix}{name}/"))
                else:
                    yield prefix + name, entry.path, entry.stat(follow_symlinks=False)


def _through_link(path: str, boundaries: tuple[str, ...]) -> os.stat_result:
    """The stat of what a link leads to, which must be a file inside the boundaries."""
    real = os.path.realpath(path)
    if not any(real == top or real.startswith(top.rstrip(os.sep) + os.sep) for top in boundaries):
        raise DeployError.config_invalid(
            f"{path} is a link that leads out of its module",
            path=path,
            hint="copy the file instead",
        )
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise _broken(path, "is a link that leads nowhere") from error
    if stat.S_ISDIR(status.st_mode):
        raise _broken(path, "is a link to a directory")
    return status


def list_files(path: str, hashes: HashCache, boundaries: tuple[str, ...]) -> list[TreeEntry]:
    """Every file with hash and size, sorted, `.agentpack` included: what a lockfile records."""
    try:
        top = os.stat(path)
        if not stat.S_ISDIR(top.st_mode):
            return [TreeEntry(_file_name(path), hashes.digest(path, top), top.st_size)]
        found = [
            TreeEntry(name, hashes.digest(place, status), status.st_size)
            for name, place, status in _walk(path, boundaries, frozenset({".git"}))
        ]
    except OSError as error:
        raise _unreadable(path, error) from error
    return sorted(found, key=lambda entry: entry.path.encode())


def tree_hash(entries: Iterable[TreeEntry]) -> str:
    """One hash for a whole tree."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(f"{entry.path}\n{entry.sha256}\n{entry.bytes}\n".encode())
    return digest.hexdigest()


def _file_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _check_encoding(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode("utf-8", "replace")
        raise DeployError.config_invalid(
            f"the file name {shown} is not valid UTF-8; rename the file", path=shown
        ) from error


def _broken(path: str, problem: str) -> DeployError:
    return DeployError(
        "E_UNEXPECTED",
        f"{path} {problem}",
        reason="module_source_unusable",
        next_actions=("fix_module", "retry_command"),
        path=path,
    )


def _unreadable(path: str, error: OSError) -> DeployError:
    if isinstance(error, FileNotFoundError):
        return _broken(error.filename or path, "does not exist")
    return DeployError.io(error.filename or path, error, "read")
