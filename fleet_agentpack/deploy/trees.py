"""Trees of source files, read in place and never copied."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import HashCache, is_private, may_execute
from fleet_agentpack.deploy.listing import Lister, Listing
from fleet_agentpack.deploy.model import Blob, FileState
from fleet_agentpack.kit.files import hash_file
from fleet_agentpack.kit.paths import is_inside

Tree = dict[str, Blob]  # relative path → content

METADATA_DIR = ".agentpack"
_SKIPPED = frozenset({".git", METADATA_DIR})


@dataclass(frozen=True)
class TreeEntry:
    """One file as lockfiles and baselines list it."""

    path: str
    sha256: str
    bytes: int = 0


class TreeReader:
    """Reads trees through the hash cache; an unchanged tree is returned as the same object."""

    def __init__(self, hashes: HashCache) -> None:
        self.hashes = hashes
        self.lister = Lister()
        self._blobs: dict[str, tuple[FileState, Blob]] = {}
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
        tree: Tree = {}
        look, blobs = self.hashes.look, self._blobs
        for prefix, listing in _walk(top, self.lister, _SKIPPED):
            for name, path in listing.files:
                if name not in _SKIPPED:
                    state, known = look(path), blobs.get(path)
                    same = known is not None and (known[0] is state or known[0][:3] == state[:3])
                    tree[prefix + name] = known[1] if known and same else self._new(path, state)
            for name, path in listing.others:
                tree[prefix + name] = self._linked(path, _through_link(path, boundaries))
        return tree

    def _single(self, path: str) -> Blob:
        try:
            if os.path.islink(path):
                return self._linked(path, os.stat(path))
            return self._new(path, self.hashes.look(path))
        except OSError as error:
            raise _unreadable(path, error) from error

    def _linked(self, path: str, status: os.stat_result) -> Blob:
        """The target of a link; read each time, because its stat says nothing about the link."""
        if not stat.S_ISREG(status.st_mode):
            raise DeployError.config_invalid(f"{path} is not a regular file", path=path)
        sha256, mode = hash_file(path, status.st_size), status.st_mode
        return self._new(path, FileState(sha256, may_execute(mode), is_private(mode)))

    def _new(self, path: str, state: FileState) -> Blob:
        _check_encoding(path)
        sha256, executable, private, _, _ = state
        blob = Blob(sha256, executable, path, None, "upstream", private)
        self._blobs[path] = state, blob
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
    """The stat of a link's target, which must be a file inside the boundaries."""
    reads.at(path)
    if not is_inside(path, *boundaries):
        raise DeployError.config_invalid(
            f"{path} is a symbolic link that points outside its module",
            path=path,
            hint="copy the file instead",
        )
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise _broken(path, "is a broken symbolic link") from error
    if stat.S_ISDIR(status.st_mode):
        raise _broken(path, "is a symbolic link to a directory")
    return status


def list_files(path: str, hashes: HashCache, boundaries: tuple[str, ...]) -> list[TreeEntry]:
    """Every file with hash and size, sorted, `.agentpack` included: what a lockfile records."""
    try:
        if not os.path.isdir(path):
            return [_listed(_file_name(path), path, os.stat(path), hashes)]
        found = []
        for prefix, listing in _walk(path, Lister(), frozenset({".git"})):
            for name, place in (*listing.files, *listing.others):
                if name == ".git":  # a submodule's pointer to its repository
                    continue
                _check_encoding(place)
                is_link = os.path.islink(place)
                status = _through_link(place, boundaries) if is_link else os.lstat(place)
                found.append(_listed(prefix + name, place, status, hashes))
    except OSError as error:
        raise _unreadable(path, error) from error
    return sorted(found, key=lambda entry: entry.path.encode())


def _listed(name: str, path: str, status: os.stat_result, hashes: HashCache) -> TreeEntry:
    size = status.st_size
    sha256 = hash_file(path, size) if os.path.islink(path) else hashes.look(path).sha256
    return TreeEntry(name, sha256, size)


def tree_hash(entries: Iterable[TreeEntry]) -> str:
    """One hash for a whole tree."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(f"{entry.path}\n{entry.sha256}\n{entry.bytes}\n".encode())
    return digest.hexdigest()


def _file_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


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
    return DeployError.because("module_source_unusable", f"{path} {problem}", path=path)


def _unreadable(path: str, error: OSError) -> DeployError:
    if isinstance(error, FileNotFoundError):
        return _broken(error.filename or path, "does not exist")
    return DeployError.io(error.filename or path, error, "read")
