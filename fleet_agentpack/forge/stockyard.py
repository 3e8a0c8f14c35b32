"""The stockyard: definitions over HTTP, asked only when the configuration switches it on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from fleet_agentpack.forge.cache import Cache
from fleet_agentpack.forge.config import Registry
from fleet_agentpack.forge.credentials import Credentials
from fleet_agentpack.forge.definitions import (
    Definition,
    Kind,
    Row,
    Summary,
    strings_of,
    text_of,
    version_of,
)
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.masking import masked_url
from fleet_agentpack.forge.names import Reference, is_usable_name
from fleet_agentpack.forge.parsing import UnparsableError, as_mapping, parse_json
from fleet_agentpack.forge.transport import Request, Transport

PAGE_SIZE = 100
MAX_PAGES = 20
MOST_METADATA = 100


class Stockyard:
    """One remote side of the drafted API, through the cache."""

    def __init__(
        self, registry: Registry, cache: Cache, transport: Transport, credentials: Credentials
    ) -> None:
        self._registry = registry
        self._cache = cache
        self._transport = transport
        self._credentials = credentials

    def rows(self, kind: Kind, warnings: list[str], *, want_tags: bool) -> list[Row]:
        """Everything of a kind as lines of a list; failing is a warning."""
        try:
            results, total = self._listing(kind, warnings)
        except ForgeError as error:
            warnings.append(_not_reached(error))
            return []
        if len(results) < total:
            warnings.append(f"The stockyard has {total} {kind}s; {len(results)} of them are here")
        usable = [row for row in results if is_usable_name(row.get("name"), kind)]
        tags = self._tags(kind, usable, warnings) if want_tags else {}
        return [
            Row(
                row["name"],
                "stockyard",
                self._shown(_definition_path(kind, row["name"], version_of(row))),
                Summary(version_of(row), text_of(row, "description"), tags.get(row["name"])),
            )
            for row in usable
        ]

    def versions(self, kind: Kind, name: str, warnings: list[str]) -> list[str]:
        """The stable versions of a name; failing is a warning."""
        return _stable_versions(self._metadata(kind, name, warnings))

    def resolve(self, kind: Kind, reference: Reference, warnings: list[str]) -> Definition | None:
        """The definition that a reference means; failing is a warning."""
        metadata = self._metadata(kind, reference.name, warnings)
        chosen = reference.choose(_stable_versions(metadata))
        if chosen is None:
            return None
        path = _definition_path(kind, reference.name, chosen)
        data = self._one(path, warnings)
        if not data:
            return None
        extra = metadata.get("stockyard")
        known = extra if isinstance(extra, dict) else {}
        defaults = {key: known[key] for key in ("author", "license") if key in known}
        return Definition(
            kind, reference.name, chosen, "stockyard", self._shown(path), {**defaults, **data}
        )

    def _metadata(self, kind: Kind, name: str, warnings: list[str]) -> dict[str, Any]:
        return self._one(_metadata_path(kind, name), warnings) or {}

    def _one(self, path: str, warnings: list[str]) -> dict[str, Any] | None:
        try:
            return _found(self._ask_all([path], warnings)[0])
        except ForgeError as error:
            warnings.append(_not_reached(error))
            return None

    def _tags(
        self, kind: Kind, rows: Sequence[dict[str, Any]], warnings: list[str]
    ) -> dict[str, tuple[str, ...]]:
        """Tags are not part of a search result; they take one question for each name."""
        tags = {row["name"]: tuple(strings_of(row["tags"])) for row in rows if "tags" in row}
        unknown = [row["name"] for row in rows if row["name"] not in tags][:MOST_METADATA]
        answers = self._ask_all([_metadata_path(kind, name) for name in unknown], warnings)
        for name, answer in zip(unknown, answers, strict=True):
            extra = None if isinstance(answer, ForgeError) else answer.get("stockyard")
            tags[name] = tuple(strings_of(extra.get("tags")) if isinstance(extra, dict) else [])
        return tags

    def _listing(self, kind: Kind, warnings: list[str]) -> tuple[list[dict[str, Any]], int]:
        """Everything of a kind, a page at a time, and how much there is. Raises `ForgeError`."""
        first = _found(self._ask_all([_search_path(kind, 1)], warnings)[0]) or {}
        total = first["total"] if type(first.get("total")) is int else 0
        pages = min(MAX_PAGES, -(-total // PAGE_SIZE))
        rest = self._ask_all([_search_path(kind, n) for n in range(2, pages + 1)], warnings)
        results: list[dict[str, Any]] = []
        for answer in (first, *rest):
            if isinstance(answer, ForgeError):
                raise answer
            rows = answer.get("results")
            results += [
                row
                for row in (rows if isinstance(rows, list) else [])
                if isinstance(row, dict) and row.get("type", kind) == kind
            ]
        return results, max(total, len(results))

    def _absolute(self, path: str) -> str:
        base = self._registry.url.rstrip("/")
        return f"{base}/{path}" if base.endswith("/api/v1") else f"{base}/api/v1/{path}"

    def _shown(self, path: str) -> str:
        return masked_url(self._absolute(path))

    def _ask_all(
        self, paths: Sequence[str], warnings: list[str]
    ) -> list[dict[str, Any] | ForgeError]:
        urls = [self._absolute(path) for path in paths]
        kept = [self._cache.manifest(_key(self._registry, url), url) for url in urls]
        answers: list[Any] = [
            entry.manifest if entry and entry.is_fresh(self._cache.now()) else None
            for entry in kept
        ]
        missing = [index for index, answer in enumerate(answers) if not isinstance(answer, dict)]
        headers = self._credentials.headers(self._registry, self._registry.url) if missing else {}
        fetched = self._transport.fetch_all([Request(urls[index], headers) for index in missing])
        for index, body in zip(missing, fetched, strict=True):
            answers[index] = self._parsed(urls[index], body)
            entry = kept[index]
            is_error = isinstance(answers[index], ForgeError)
            gone = is_error and answers[index].details.get("status") == 404
            if is_error and not gone and entry and isinstance(entry.manifest, dict):
                warnings.append(f"{_not_reached(answers[index])}; this is an older answer of it")
                answers[index] = entry.manifest
        return answers

    def _parsed(self, url: str, body: bytes | ForgeError) -> dict[str, Any] | ForgeError:
        if isinstance(body, ForgeError):
            return body
        try:
            answer = as_mapping(parse_json(body.decode("utf-8-sig")))
        except (UnicodeDecodeError, UnparsableError):
            shown = masked_url(url)
            return ForgeError.network(f"{shown} did not answer with a JSON object", url=shown)
        self._cache.keep_manifest(
            _key(self._registry, url), url, answer, self._registry.cache_ttl_s
        )
        return answer


def _search_path(kind: Kind, page: int) -> str:
    return "search?" + urlencode({"q": "", "type": kind, "page": page, "pageSize": PAGE_SIZE})


def _metadata_path(kind: Kind, name: str) -> str:
    return f"{kind}s/{quote(name, safe='@')}/metadata"


def _definition_path(kind: Kind, name: str, version: str) -> str:
    return f"{kind}s/{quote(name, safe='@')}/versions/{quote(version, safe='')}"


def _stable_versions(metadata: dict[str, Any]) -> list[str]:
    rows = metadata.get("versions")
    return [
        row["version"]
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict)
        and isinstance(row.get("version"), str)
        and row.get("status", "stable") == "stable"
    ]


def _not_reached(error: ForgeError) -> str:
    return f"The stockyard was not reached: {error}"


def _key(registry: Registry, url: str) -> str:
    return f"{registry.name}-{hashlib.sha256(url.encode()).hexdigest()[:16]}"


def _found(answer: dict[str, Any] | ForgeError) -> dict[str, Any] | None:
    if isinstance(answer, ForgeError):
        if answer.details.get("status") == 404:
            return None
        raise answer
    return answer
