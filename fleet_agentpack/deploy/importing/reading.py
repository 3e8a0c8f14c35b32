"""Reads one file, or the directory of a skill, as the module that it would become."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import may_execute
from fleet_agentpack.deploy.importing.items import Item
from fleet_agentpack.deploy.importing.places import Place
from fleet_agentpack.deploy.importing.results import SecretRow, SkippedRow
from fleet_agentpack.deploy.importing.secrets import is_secret_file, secret_lines
from fleet_agentpack.deploy.manifest import Module, Source
from fleet_agentpack.deploy.model import Blob
from fleet_agentpack.deploy.trees import METADATA_DIR
from fleet_agentpack.deploy.validate import INSTRUCTIONS, validate
from fleet_agentpack.kit.files import UnreadableError, read_bytes

LARGEST_FILE = 16 << 20
LARGEST_SKILL = 64 << 20
MOST_FILES = 2000

_LEFT_OUT = {
    "node_modules": "installed packages",
    "__pycache__": "a cache",
    ".git": "a repository of its own",
    ".DS_Store": "a cache",
    METADATA_DIR: "a name that agentpack uses itself",
}


class NotImportedError(Exception):
    """Why something stays where it is."""


class UnfitError(NotImportedError):
    """A file that is no valid module of this type; it may be one of another."""


@dataclass
class Reader:
    """Reads items, and notes what it leaves out of them, and the secrets that it meets."""

    skipped: list[SkippedRow] = field(default_factory=list)
    secrets: list[SecretRow] = field(default_factory=list)

    def read(self, place: Place, path: str, name: str) -> Item:
        """The item at a path. Raises `NotImportedError`."""
        if os.path.islink(path):
            raise NotImportedError(f"a link to {os.readlink(path)}, which stays a link")
        if place.reading.shape == "directories":
            tree = self._tree(path)
        else:
            tree = {_inside(place, name): _blob(path)}
        item = Item(place, path, name, tree)
        _check(item)
        if hidden := [SecretRow(*found) for found in _secrets(item)]:
            self.secrets += hidden
            message = f"{hidden[0].path} holds what looks like a secret, which a pack must not"
            raise NotImportedError(message)
        return item

    def _tree(self, top: str) -> dict[str, Blob]:
        tree: dict[str, Blob] = {}
        size, pending = 0, [("", top)]
        while pending:
            prefix, directory = pending.pop()
            for entry in _entries(directory):
                name = f"{prefix}{entry.name}"
                if self._leaves_out(entry):
                    continue
                if entry.is_symlink():
                    raise NotImportedError(f"{entry.path} in it is a link")
                if entry.is_dir(follow_symlinks=False):
                    pending.append((f"{name}/", entry.path))
                    continue
                size += entry.stat(follow_symlinks=False).st_size
                if size > LARGEST_SKILL or len(tree) >= MOST_FILES:
                    raise NotImportedError(
                        f"larger than {LARGEST_SKILL >> 20} MiB or {MOST_FILES:,} files"
                    )
                tree[name] = _blob(entry.path)
        return dict(sorted(tree.items()))

    def _leaves_out(self, entry: os.DirEntry[str]) -> bool:
        if reason := _LEFT_OUT.get(entry.name):
            self.skipped.append(SkippedRow(entry.path, "part of a skill", reason))
        elif is_secret_file(entry.name) and not entry.is_dir(follow_symlinks=False):
            reason = "a file for secrets, which a pack must not hold"
            self.skipped.append(SkippedRow(entry.path, "part of a skill", reason))
            self.secrets.append(SecretRow(entry.path, ""))
        return bool(reason)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(directory))
    except OSError as error:
        raise NotImportedError(f"{directory} cannot be read: {error.strerror}") from error


def _inside(place: Place, name: str) -> str:
    """The name of a file in its module: rules keep their folder, the others are single files."""
    if place.reading.shape == "one_file":
        return INSTRUCTIONS
    return name if place.area.takes == "instructions" else name.rpartition("/")[2]


def _check(item: Item) -> None:
    probe = Module(f"{item.kind}:probe", item.kind, Source(item.path), targets=(item.target,))
    try:
        validate(probe, item.tree)
    except DeployError as error:
        reason = error.message.partition("probe")[2].lstrip(": ")
        raise UnfitError(f"a pack cannot hold it: {reason}") from error


def _blob(path: str) -> Blob:
    try:
        path.encode()
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):
            raise NotImportedError(f"{path} is not a regular file")
        data = read_bytes(Path(path), LARGEST_FILE)
    except UnicodeEncodeError as error:
        raise NotImportedError("its name is not UTF-8 text") from error
    except (OSError, UnreadableError) as error:
        raise NotImportedError(f"{path} cannot be read: {error}") from error
    return Blob(hashlib.sha256(data).hexdigest(), may_execute(mode), path, data)


def _secrets(item: Item) -> Iterator[tuple[str, str]]:
    """The files and lines that hold what looks like a secret."""
    for blob in item.tree.values():
        for line in secret_lines((blob.data or b"").decode("utf-8", "replace")):
            yield blob.path, f"line {line}"
