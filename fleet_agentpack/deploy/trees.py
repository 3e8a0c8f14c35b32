"""Trees of source files, looked at where they are and never copied."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import HashCache
from fleet_agentpack.deploy.listing import Lister, Listing
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
        self.lister = Lister()
        self._blobs: dict[str, Blob] = {}
        self._trees: dict[str, Tree] = {}

    @property
    def paths(self) -> set[str]:
        """Every file that is part of a tree."""
        return {blob.path for tree in self._trees.values() for blob in tree.values()}

    def read(self, path: str, boundaries: tuple[str, ...]) -> Tree:
        """The files of a directory, or a single file under its own name.

        Links to files are followed while they stay inside one of the boundaries.
        """
        try:
            tree = self._directory(path, boundaries)
        except NotADirectoryError:
            tree = {_file_name(path): self._single(path)}
        except OSError as error:
            raise _unreadable(path, error) from error
        before = self._trees.get(path)
        if before == tree:
            return before
        self._trees[path] = tree
        return tree

    def _directory(self, top: str, boundaries: tuple[str, ...]) -> Tree:
        """The files below a directory; one that is not known yet is opened without another look."""
        tree: Tree = {}
        known, blobs, lstat = self.hashes.entries, self._blobs, os.lstat
        for prefix, listing in _walk(top, self.lister, _SKIPPED):
            for name, path in listing.files:
                if name in _SKIPPED:
                    continue
                entry = known.get(path)
                if entry is None:
                    tree[prefix + name] = self._learnt(path)
                    continue
                status = lstat(path)
                blob = blobs.get(path)
                # The same test as in `HashCache.digest`; a call would cost as much as the test.
                if (
                    blob is not None
                    and entry[0] == status.st_mtime_ns
                    and entry[1] == status.st_ctime_ns
                    and entry[2] == status.st_ino
                    and entry[3] == status.st_size
                    and entry[4] == status.st_dev
                    and entry[5] == blob.sha256
                    and blob.executable == _may_execute(status.st_mode)
                ):
                    tree[prefix + name] = blob
                else:
                    tree[prefix + name] = self._blob(path, status)
            for name, path in listing.others:
                tree[prefix + name] = self._blob(path, _through_link(path, boundaries))
        return tree

    def _single(self, path: str) -> Blob:
        try:
            return self._blob(path, os.stat(path))
        except OSError as error:
            raise _unreadable(path, error) from error

    def _learnt(self, path: str) -> Blob:
        _check_encoding(path)
        sha256, status = self.hashes.learn(path)
        return self._kept(path, status, sha256)

    def _blob(self, path: str, status: os.stat_result) -> Blob:
        _check_encoding(path)
        if not stat.S_ISREG(status.st_mode):
            raise DeployError.config_invalid(f"{path} is not a regular file", path=path)
        return self._kept(path, status, self.hashes.digest(path, status))

    def _kept(self, path: str, status: os.stat_result, sha256: str) -> Blob:
        """The blob that was given for the same content before, or a new one."""
        executable = _may_execute(status.st_mode)
        known = self._blobs.get(path)
        if known is not None and known.sha256 == sha256 and known.executable == executable:
            return known
        blob = Blob(sha256, status.st_size, executable, path)
        self._blobs[path] = blob
        return blob


def _walk(top: str, lister: Lister, skipped: frozenset[str]) -> Iterator[tuple[str, Listing]]:
    """The listings of a directory and those below it, each with the prefix of its names."""
    pending = [("", top)]
    while pending:
        prefix, directory = pending.pop()
        listing = lister.list(directory)
        yield prefix, listing
        for name, path in listing.directories:
            if name not in skipped:
                pending.append((f"{prefix}{name}/", path))


def _through_link(path: str, boundaries: tuple[str, ...]) -> os.stat_result:
    """The stat of what a link leads to, which must be a file inside the boundaries."""
    real = os.path.realpath(path)
    tops = [os.path.realpath(boundary) for boundary in boundaries]
    if not any(real == top or real.startswith(top.rstrip(os.sep) + os.sep) for top in tops):
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
        found = []
        for prefix, listing in _walk(path, Lister(), frozenset({".git"})):
            for name, place in (*listing.files, *listing.others):
                if name == ".git":  # a submodule's pointer to its repository
                    continue
                _check_encoding(place)
                is_link = os.path.islink(place)
                status = _through_link(place, boundaries) if is_link else os.lstat(place)
                found.append(TreeEntry(prefix + name, hashes.digest(place, status), status.st_size))
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


def _may_execute(mode: int) -> bool:
    return os.name != "nt" and mode & stat.S_IXUSR != 0


def _check_encoding(path: str) -> None:
    if path.isascii():
        return
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
