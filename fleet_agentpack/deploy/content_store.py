"""Contents by their hash, each stored once; copies in snapshots are further names of them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.model import Blob
from fleet_agentpack.kit.disk import Disk, is_sealed
from fleet_agentpack.kit.files import hash_file

_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class ContentStore:
    """The contents of one home: a directory of 0700, files of 0600."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self.directory = directory
        self.added = 0  # bytes
        self._disk = disk
        self._verified: set[str] = set()

    def path(self, sha256: str) -> str:
        """Where a content is, or would be."""
        return f"{self.directory}/{sha256}"

    def names(self) -> frozenset[str]:
        """The hashes of all contents that are there. Raises `OSError`."""
        return frozenset(os.listdir(self.directory))

    def add(self, blobs: Iterable[Blob]) -> None:
        """Store contents that are not there yet. Raises `OSError`, `DeployError`."""
        verified = self._verified
        for blob in blobs:
            if blob.sha256 not in verified:
                if not self.verify(blob.sha256):
                    self._write(blob)
                verified.add(blob.sha256)

    def verify(self, sha256: str) -> bool:
        """Whether a content is there and whole; one that is not is removed."""
        path = self.path(sha256)
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return False
        if is_sealed(found) and (found.st_size or sha256 == _EMPTY):
            return True
        if hash_file(path, found.st_size) == sha256:
            return True
        self._disk.remove(path)
        return False

    def _write(self, blob: Blob) -> None:
        if blob.data is None and blob.path in ("", self.path(blob.sha256)):
            message = f"the content {blob.sha256} is missing in {self.directory}"
            raise DeployError.because("content_lost", message, path=self.path(blob.sha256))
        data = blob.read()
        self._disk.create(self.path(blob.sha256), data, 0o600, sealed=True)
        self.added += len(data)


def stored_contents(directory: str) -> list[tuple[str, os.stat_result]]:
    """Every content of a store, by its hash, with its stat. Raises `OSError`."""
    try:
        with os.scandir(directory) as entries:
            return [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except FileNotFoundError:
        return []
