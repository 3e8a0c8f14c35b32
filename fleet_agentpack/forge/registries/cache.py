"""The cache directory: registry manifests with a lifetime, downloads by checksum, nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet_agentpack.forge import results
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.files import MAX_MANIFEST_BYTES, Directories, timestamp
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.paths import is_inside

SECONDS_PER_DAY = 86_400
LATEST_MS = 1e14

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class RegistryAnswer:
    """What a registry answered; empty when it has nothing or was never reached."""

    data: Mapping[str, Any] = field(default_factory=dict)
    fetched_at: float = 0.0  # of an answer from the cache, in seconds since the epoch
    ttl_s: float = 0.0
    error: ForgeError | None = None  # why there is no answer, or only the last one

    def is_fresh(self, now: float) -> bool:
        """Whether its lifetime is not over."""
        return 0 <= now - self.fetched_at < self.ttl_s


@dataclass(frozen=True)
class _Entry:
    path: Path
    size: int
    time: float


@dataclass(frozen=True)
class Cache:
    """Reads, writes, counts and clears what is below one directory."""

    directory: Path
    directories: Directories
    now: Callable[[], float]  # the time by which lifetimes are judged

    @property
    def repositories(self) -> Path:
        """Where fetched git repositories are kept; each counts as one download."""
        return self.directory / "downloads" / "git"

    def manifest(self, name: str, url: str) -> RegistryAnswer | None:
        """What is kept for a registry, fresh or not; None for another URL or a broken file."""
        try:
            entry = read_mapping(self._manifest_path(name), MAX_MANIFEST_BYTES)
            fetched_at, ttl = _seconds(entry["fetched_at"]), float(entry["ttl"])
        except (FileNotFoundError, UnparsableError, KeyError, TypeError, ValueError, OverflowError):
            return None
        manifest = entry.get("manifest")
        if fetched_at is None or entry.get("url") != url or not isinstance(manifest, dict):
            return None
        return RegistryAnswer(manifest, fetched_at, ttl)

    def keep_manifest(self, name: str, url: str, manifest: Mapping[str, Any], ttl_s: float) -> None:
        """Remember a registry's answer; a cache that cannot be written is skipped."""
        entry = {
            "url": url,
            "manifest": manifest,
            "fetched_at": int(self.now() * 1000),
            "ttl": ttl_s,
        }
        self._write(self._manifest_path(name), json.dumps(entry, indent=2).encode())

    def download(self, digest: str) -> bytes | None:
        """A kept download by its SHA-256, not yet verified."""
        try:
            return self._download_path(digest).read_bytes()
        except OSError:
            return None

    def keep_download(self, digest: str, content: bytes) -> None:
        """Remember a verified download."""
        self._write(self._download_path(digest), content)

    def stats(self) -> results.CacheStats:
        """Counts, sizes and ages."""
        manifests, downloads = self._entries("manifests"), self._entries("downloads")
        times = sorted(entry.time for entry in manifests)
        ages = (_iso(times[0]), _iso(times[-1])) if times else ("", "")
        return results.CacheStats(
            results.ManifestStats(len(manifests), _readable(manifests), *ages),
            results.DownloadStats(len(downloads), _readable(downloads)),
            totalSize=_readable([*manifests, *downloads]),
            location=str(self.directory),
        )

    def clear(
        self, kind: str = "all", older_than_days: float | None = None
    ) -> results.CacheCleared:
        """Remove entries, all or those older than some days, and say what went.

        Raises `ForgeError` when the directory is not one that can be a cache, or a file stays.
        """
        self._refuse_shared_directory()
        oldest = None
        if older_than_days is not None:
            oldest = self.now() - older_than_days * SECONDS_PER_DAY
        manifests, downloads = (
            self._remove(each, oldest) if kind in (each, "all") else []
            for each in ("manifests", "downloads")
        )
        size = _readable([*manifests, *downloads])
        return results.CacheCleared(
            True, results.ClearedEntries(len(manifests), len(downloads), size)
        )

    def _remove(self, kind: str, oldest: float | None) -> list[_Entry]:
        removed: list[_Entry] = []
        for entry in self._entries(kind):
            if oldest is not None and entry.time >= oldest:
                continue
            try:
                if entry.path.is_dir() and not entry.path.is_symlink():
                    shutil.rmtree(entry.path)
                else:
                    entry.path.unlink(missing_ok=True)
            except OSError as error:
                raise ForgeError.denied(
                    f"cannot remove {entry.path}: {error.strerror}; "
                    f"{len(removed)} other entries were removed",
                    "Check the permissions of the cache directory",
                    path=str(entry.path),
                ) from error
            removed.append(entry)
        for folder, _ in _walk(self.directory / kind):
            if folder != self.directory / kind:
                with suppress(OSError):
                    folder.rmdir()
        return removed

    def _refuse_shared_directory(self) -> None:
        """Refuse to clear a home or a project, whose `downloads` are not ours."""
        for shared in (self.directories.home, self.directories.root):
            if shared is not None and is_inside(shared, self.directory):
                raise ForgeError(
                    "CONFIG_ERROR",
                    f"{self.directory} contains more than a cache; nothing was cleared",
                    "Set FRACTARY_CACHE_DIR to a directory of its own",
                    directory=str(self.directory),
                )

    def _entries(self, kind: str) -> list[_Entry]:
        entries = []
        repositories: dict[Path, list[_Entry]] = {}
        for path in (
            folder / each for folder, names in _walk(self.directory / kind) for each in names
        ):
            try:
                status = path.lstat()
            except OSError:
                continue
            whole = self._repository_of(path)
            if whole is not None:  # one part of it is worth nothing without the others
                part = _Entry(whole, status.st_size, status.st_mtime)
                repositories.setdefault(whole, []).append(part)
                continue
            if stat.S_ISREG(status.st_mode):
                when = _fetched_at(path) if kind == "manifests" else None
                entries.append(_Entry(path, status.st_size, when or status.st_mtime))
        for whole, parts in repositories.items():
            size = sum(part.size for part in parts)
            entries.append(_Entry(whole, size, max(part.time for part in parts)))
        return entries

    def _repository_of(self, path: Path) -> Path | None:
        """The fetched repository that a file is part of."""
        if not path.is_relative_to(self.repositories):
            return None
        first = path.relative_to(self.repositories).parts[0]
        return self.repositories / first

    def _manifest_path(self, name: str) -> Path:
        return self.directory / "manifests" / f"{_UNSAFE.sub('_', name)[:100]}.json"

    def _download_path(self, digest: str) -> Path:
        return self.directory / "downloads" / _UNSAFE.sub("_", digest)

    def _write(self, path: Path, content: bytes) -> None:
        with suppress(OSError):
            if not path.parent.is_symlink():
                write_atomic(path, content)


def readable_size(size: int) -> str:
    """A size for people: `0 Bytes`, `1.5 KB`."""
    value, units = float(size), ["Bytes", "KB", "MB", "GB", "TB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.2f}".rstrip("0").rstrip(".") + f" {units[0]}"


def _readable(entries: list[_Entry]) -> str:
    return readable_size(sum(entry.size for entry in entries))


def _iso(seconds: float) -> str:
    return timestamp(datetime.fromtimestamp(seconds, UTC))


def _fetched_at(path: Path) -> float | None:
    try:
        return _seconds(read_mapping(path, MAX_MANIFEST_BYTES).get("fetched_at"))
    except (FileNotFoundError, UnparsableError):
        return None


def _seconds(milliseconds: Any) -> float | None:
    """A time that a clock can show, None for anything else."""
    if not isinstance(milliseconds, int | float) or not 0 < milliseconds < LATEST_MS:
        return None
    return milliseconds / 1000


def _walk(directory: Path) -> Iterator[tuple[Path, list[str]]]:
    """Each directory below one, the deepest first, with its file names; links are not followed."""
    if not directory.is_symlink():
        for folder, _, names in os.walk(directory, topdown=False):
            yield Path(folder), sorted(names)
