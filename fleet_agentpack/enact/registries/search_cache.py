"""Search in a remote registry, with a cache on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.config import RegistryConfig
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.registries.remote import RemoteRegistry
from fleet_agentpack.enact.results import Hit
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN, jsonable


@dataclass(frozen=True)
class CachedAnswer:
    """An answer of the registry, and when it was fetched."""

    fetched_at: float
    etag: str | None
    hits: tuple[Hit, ...]


class SearchCache:
    """Answers on disk; a cache that cannot be read or written is ignored."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self.clock = clock

    def search(
        self, registry: RemoteRegistry, query: str, limit: int, settings: RegistryConfig
    ) -> tuple[Sequence[Hit], list[str]]:
        """The registry's hits, from here while fresh; stale ones, and a warning, when it fails."""
        path = self._path(registry.label, query, limit, settings)
        kept = _read(path)
        if kept and 0 <= self.clock() - kept.fetched_at < settings.search_ttl_s:
            return kept.hits, []
        try:
            hits, etag = registry.search(query, limit, kept.etag if kept else None)
        except EnactError as error:
            if kept is None:
                return [], [f"{error.message}; only built-in tools were searched"]
            age_min = max(0, round((self.clock() - kept.fetched_at) / 60))
            return kept.hits, [f"{error.message}; showing results from {age_min} minutes ago"]
        found = kept.hits if hits is None and kept else tuple(hits or ())
        with contextlib.suppress(OSError):
            answer = jsonable(CachedAnswer(self.clock(), etag, found))
            write_atomic(path, json.dumps(answer), mode=0o600)
        return found, []

    def _path(self, label: str, query: str, limit: int, settings: RegistryConfig) -> Path:
        """Where an answer is kept: another token may be shown other tools."""
        token = settings.token.reveal() if settings.token else ""
        identity = hashlib.sha256(token.encode()).hexdigest()
        key = json.dumps([label, identity, query, limit])
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _read(path: Path) -> CachedAnswer | None:
    """A cached answer of any age."""
    try:
        data = json.loads(path.read_bytes())
        hits = tuple(map(_hit, data["hits"]))
        return CachedAnswer(float(data["fetched_at"]), data["etag"], hits)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _hit(row: Mapping[str, Any]) -> Hit:
    name, description = str(row["name"]), str(row["description"])
    tags = tuple(row.get("tags") or ())
    return Hit(name, description, row.get("version") or UNKNOWN, tags or UNKNOWN)
