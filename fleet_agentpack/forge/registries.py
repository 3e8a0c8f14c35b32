"""Asks registries what they list, through a cache: over HTTP, with git, or on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet_agentpack.forge import results
from fleet_agentpack.forge.access import AT_ONCE, Credentials, Request, Transport, masked_url
from fleet_agentpack.forge.catalogue import (
    Catalogue,
    GitFolder,
    LocalFolder,
    Offer,
    offers_of,
    read_catalogue,
)
from fleet_agentpack.forge.configuration import TREES
from fleet_agentpack.forge.errors import ForgeError, call
from fleet_agentpack.forge.names import MAX_MANIFEST_BYTES, Directories, Registry, local_path
from fleet_agentpack.forge.results import timestamp
from fleet_agentpack.forge.trees import PATIENT_S, QUICK_S, FolderTree, GitStore, GitTree, Tree
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.mappings import UnparsableError, parse_object, read_mapping
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


@dataclass(frozen=True)
class Survey:
    """What the registries offer, and which of them could not be asked."""

    offers: tuple[Offer, ...]
    searched: tuple[str, ...]
    unreached: tuple[tuple[str, ForgeError], ...] = ()
    warnings: tuple[str, ...] = ()


class RegistryClient:
    """Asks registries, through the cache."""

    def __init__(
        self,
        cache: Cache,
        transport: Transport,
        credentials: Credentials,
        environ: Mapping[str, str],
    ) -> None:
        self._cache = cache
        self._transport = transport
        self._credentials = credentials
        self._git = GitStore(cache.repositories, environ)

    def survey(self, registries: Sequence[Registry], *, network: bool = True) -> Survey:
        """Everything that these registries offer, in their order.

        Without `network` only the cache is asked. A registry that fails is replaced by its old
        manifest where there is one, and named in the warnings.
        """
        answers = self._catalogues(registries, network=network)
        offers: list[Offer] = []
        unreached: list[tuple[str, ForgeError]] = []
        warnings: list[str] = []
        for registry, answer in zip(registries, answers, strict=True):
            if answer.error:
                warning = f"Registry {registry.name} could not be read: {answer.error}"
                if answer.data:
                    when = datetime.fromtimestamp(answer.fetched_at, UTC)
                    warning += f"; using its manifest of {when.isoformat(timespec='seconds')}"
                else:
                    unreached.append((registry.name, answer.error))
                warnings.append(warning)
            found = offers_of(registry, Catalogue(answer.data))
            offers += found.value
            warnings += found.warnings
        names = tuple(registry.name for registry in registries)
        return Survey(tuple(offers), names, tuple(unreached), tuple(warnings))

    def look(self, registry: Registry) -> Catalogue:
        """What a registry lists now, whatever the cache has. Raises `ForgeError`."""
        if registry.kind in TREES:
            answer = self._tree_answer(registry, RegistryAnswer(), PATIENT_S)
        else:
            headers = self._credentials.headers(registry, registry.url)
            body = self._transport.fetch_all([Request(registry.url, headers)])[0]
            question = (registry, registry.url)
            answer = self._settled(question, RegistryAnswer(), body, manifest=True)
        if answer.error:
            raise answer.error
        return Catalogue(answer.data)

    def tree_of(
        self, origin: GitFolder | LocalFolder, deadline_s: float = PATIENT_S
    ) -> tuple[Tree, str]:
        """The files of a plugin and the commit they are of, fetched if need be.

        Raises `ForgeError`.
        """
        if isinstance(origin, LocalFolder):
            return FolderTree(Path(origin.root)), ""
        url, ref, pinned = origin.url, origin.ref, origin.commit
        commit = self._git.fetch(url, ref, commit=pinned, deadline_s=deadline_s)
        return GitTree(self._git, url, commit), commit

    def _catalogues(self, registries: Sequence[Registry], *, network: bool) -> list[RegistryAnswer]:
        plain = [each for each in registries if each.kind not in TREES]
        trees = [each for each in registries if each.kind in TREES]
        by_url = self.ask([(each, each.url) for each in plain], manifest=True, network=network)
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            of_trees = list(pool.map(lambda each: self._kept_tree(each, network), trees))
        found = {
            **dict(zip(plain, by_url, strict=True)),
            **dict(zip(trees, of_trees, strict=True)),
        }
        return [found[each] for each in registries]

    def _kept_tree(self, registry: Registry, network: bool) -> RegistryAnswer:
        """What is kept of a repository while it is fresh; a directory is read each time."""
        last = self._cache.manifest(registry.name, _place(registry)) or RegistryAnswer()
        nearby = registry.url.startswith("file:")
        fresh = last.is_fresh(self._cache.now()) and not nearby
        if registry.kind == "git" and (fresh or not network):
            return last
        return self._tree_answer(registry, last, QUICK_S)

    def _tree_answer(
        self, registry: Registry, last: RegistryAnswer, deadline_s: float
    ) -> RegistryAnswer:
        commit, tree = "", None
        try:
            if registry.kind == "git":
                commit = self._git.fetch(registry.url, registry.ref, deadline_s=deadline_s)
                tree = GitTree(self._git, registry.url, commit)
            found = read_catalogue(tree or FolderTree(local_path(registry.url)), registry.name)
        except UnparsableError as error:
            return replace(last, error=_not_a_manifest(registry, str(error)))
        except ForgeError as error:
            return replace(last, error=error)
        data = {**found.data, **({"commit": commit} if commit else {})}
        if commit and registry.name:
            place, ttl = _place(registry), registry.cache_ttl_s
            self._cache.keep_manifest(registry.name, place, data, ttl)
        return RegistryAnswer(data)

    def ask(
        self,
        questions: Sequence[tuple[Registry, str]],
        *,
        manifest: bool = False,
        network: bool = True,
    ) -> list[RegistryAnswer]:
        """Answers from the cache while they are fresh, else from the network, else the last one."""
        now = self._cache.now()
        kept = {
            each: self._cache.manifest(_key(*each), each[1]) or RegistryAnswer()
            for each in questions
        }
        stale = [each for each, last in kept.items() if network and not last.is_fresh(now)]
        owners = {registry for registry, _ in stale}
        headers = {each: self._credentials.headers(each, each.url) for each in owners}
        requests = [Request(url, headers[registry]) for registry, url in stale]
        bodies = dict(zip(stale, self._transport.fetch_all(requests), strict=True))
        return [
            self._settled(each, kept[each], bodies.get(each), manifest=manifest)
            for each in questions
        ]

    def download(self, offer: Offer, url: str, checksum: str | None) -> bytes:
        """A file that a registry refers to, from the cache or fetched, with its checksum verified.

        Raises `ForgeError`: `INTEGRITY_ERROR` when the bytes are not the promised ones.
        """
        kept = self._cache.download(checksum) if checksum else None
        if kept is not None and _digest(kept) == checksum:
            return kept
        headers = self._credentials.headers(offer.registry, url)
        content = self._transport.fetch(Request(url, headers))
        if checksum:
            verify(content, checksum, url)
            self._cache.keep_download(checksum, content)
        return content

    def _settled(
        self,
        question: tuple[Registry, str],
        last: RegistryAnswer,
        body: bytes | ForgeError | None,
        *,
        manifest: bool,
    ) -> RegistryAnswer:
        """The new answer, else the last one together with the reason."""
        if not isinstance(body, bytes):
            return replace(last, error=body)
        registry, url = question
        try:
            data = parse_object(body)
            if manifest and not isinstance(data.get("plugins"), list):
                raise UnparsableError("plugins must be an array")
        except UnparsableError as error:
            shown = masked_url(url)
            other = ForgeError.network(f"{shown} did not answer with a JSON object", url=shown)
            why = _not_a_manifest(registry, str(error)) if manifest else other
            return replace(last, error=why)
        if not url.startswith("file:"):
            self._cache.keep_manifest(_key(registry, url), url, data, registry.cache_ttl_s)
        return RegistryAnswer(data)


def verify(content: bytes, checksum: str, url: str) -> None:
    """Refuse bytes that are not those of a checksum. Raises `ForgeError`."""
    actual, shown = _digest(content), masked_url(url)
    if actual != checksum:
        raise ForgeError(
            "INTEGRITY_ERROR",
            f"Checksum mismatch for {shown}",
            "Do not use this file; tell the registry's maintainer",
            call("cache_clear", "Clear the cache and try again: {}"),
            url=shown,
            expected=f"sha256:{checksum}",
            actual=f"sha256:{actual}",
        )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _key(registry: Registry, url: str) -> str:
    """The name of an answer in the cache; a registry's own manifest has the registry's."""
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    return registry.name if url == registry.url else f"{registry.name}-{digest}"


def _place(registry: Registry) -> str:
    """What an answer in the cache was read from."""
    return f"{registry.url}#{registry.ref}" if registry.ref else registry.url


def _not_a_manifest(registry: Registry, reason: str) -> ForgeError:
    return ForgeError.network(
        f"invalid registry manifest: {reason}",
        "Check that the address is that of a marketplace, a registry manifest or a repository",
        registry=registry.name,
    )
