"""Search in a remote registry, with a cache on disk."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.registries.remote import RemoteRegistry
from fleet_agentpack.enact.results import Hit
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN, jsonable


@dataclass(frozen=True)
class CachedAnswer:
    """An answer of the registry, and when it was fetched."""

    hits: tuple[Hit, ...]
    etag: str | None
    fetched_at: float


class SearchCache:
    """Answers on disk; a cache that cannot be read or written is ignored."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self.clock = clock

    def get(self, key: str) -> CachedAnswer | None:
        """A cached answer of any age."""
        try:
            data = json.loads(self._path(key).read_bytes())
            hits = tuple(map(_hit, data["hits"]))
            return CachedAnswer(hits, data["etag"], float(data["fetched_at"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, hits: Sequence[Hit], etag: str | None) -> None:
        """Store an answer."""
        data = {"fetched_at": self.clock(), "etag": etag, "hits": jsonable(hits)}
        try:
            write_atomic(self._path(key), json.dumps(data), mode=0o600)
        except OSError:
            return

    def _path(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _hit(row: Mapping[str, Any]) -> Hit:
    name, description = str(row["name"]), str(row["description"])
    tags = tuple(row.get("tags") or ())
    return Hit(name, description, row.get("version") or UNKNOWN, tags or UNKNOWN)


def search_remote(
    registry: RemoteRegistry,
    query: str,
    limit: int,
    cache: SearchCache,
    *,
    lifetime_s: float,
    identity: str,
) -> tuple[Sequence[Hit], list[str]]:
    """The registry's hits, from the cache while fresh; stale ones, and a warning, when it fails."""
    key = json.dumps([registry.label, identity, query, limit])
    kept = cache.get(key)
    if kept and 0 <= cache.clock() - kept.fetched_at < lifetime_s:
        return kept.hits, []
    try:
        hits, etag = registry.search(query, limit, kept.etag if kept else None)
    except EnactError as error:
        if kept is None:
            return [], [f"{error.message}; only built-in tools were searched"]
        age_min = max(0, round((cache.clock() - kept.fetched_at) / 60))
        return kept.hits, [f"{error.message}; showing results from {age_min} minutes ago"]
    found = kept.hits if hits is None and kept else tuple(hits or ())
    cache.put(key, found, etag)
    return found, []
