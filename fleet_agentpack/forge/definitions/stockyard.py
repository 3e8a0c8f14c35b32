"""The stockyard: definitions over HTTP, asked only when the configuration switches it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from fleet_agentpack.forge.config.addresses import masked_url
from fleet_agentpack.forge.definitions.definition import Definition, strings_of, text_of, version_of
from fleet_agentpack.forge.errors import Loaded
from fleet_agentpack.forge.names import Kind, Reference, is_usable_name
from fleet_agentpack.forge.results import DefinitionRow
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.kit.shapes import objects

if TYPE_CHECKING:
    from fleet_agentpack.forge.config.configuration import Registry
    from fleet_agentpack.forge.registries.cache import RegistryAnswer
    from fleet_agentpack.forge.registries.client import RegistryClient

PAGE_SIZE = 100
MAX_PAGES = 20
MOST_METADATA = 100


class Stockyard:
    """One server of the stockyard API, through the cache."""

    def __init__(self, registry: Registry, client: RegistryClient) -> None:
        self._registry = registry
        self._client = client

    def listing(self, kind: Kind, *, want_tags: bool) -> Loaded[list[DefinitionRow]]:
        """Everything of a kind, a page at a time; nothing when a page is missing."""
        first = self._ask([_search_path(kind, 1)])[0]
        total = first.data["total"] if type(first.data.get("total")) is int else 0
        pages = min(MAX_PAGES, -(-total // PAGE_SIZE))
        answers = [first, *self._ask([_search_path(kind, n) for n in range(2, pages + 1)])]
        lost = [answer for answer in answers if _is_lost(answer)]
        if lost:
            return Loaded([], _warnings(lost[0]))
        warnings = list(_warnings(*answers))
        rows = [
            row
            for answer in answers
            for row in objects(answer.data.get("results"))
            if row.get("type", kind) == kind
        ]
        if len(rows) < total:
            warnings.append(f"The stockyard has {total} {kind}s; the first {len(rows)} are listed")
        usable = [row for row in rows if is_usable_name(row.get("name"), kind)]
        tags = self._tags(kind, usable) if want_tags else Loaded({})
        listed = [
            DefinitionRow(
                row["name"],
                version_of(row),
                text_of(row, "description"),
                tags.value.get(row["name"], UNKNOWN),
                "stockyard",
                self._shown(_definition_path(kind, row["name"], version_of(row))),
            )
            for row in usable
        ]
        return Loaded(listed, (*warnings, *tags.warnings))

    def versions(self, kind: Kind, name: str) -> Loaded[list[str]]:
        """The stable versions of a name."""
        answer = self._ask([_metadata_path(kind, name)])[0]
        return Loaded(_stable_versions(answer.data), _warnings(answer))

    def resolve(self, kind: Kind, reference: Reference) -> Loaded[Definition | None]:
        """The definition that a reference means."""
        metadata = self._ask([_metadata_path(kind, reference.name)])[0]
        chosen = reference.choose(_stable_versions(metadata.data))
        if chosen is None:
            return Loaded(None, _warnings(metadata))
        path = _definition_path(kind, reference.name, chosen)
        answer = self._ask([path])[0]
        warnings = _warnings(metadata, answer)
        if not answer.data:
            return Loaded(None, warnings)
        known = metadata.data.get("stockyard")
        extra = known if isinstance(known, dict) else {}
        defaults = {key: extra[key] for key in ("author", "license") if key in extra}
        data = {**defaults, **answer.data}
        shown = self._shown(path)
        return Loaded(Definition(kind, reference.name, chosen, "stockyard", shown, data), warnings)

    def _tags(
        self, kind: Kind, rows: Sequence[Mapping[str, Any]]
    ) -> Loaded[dict[str, tuple[str, ...]]]:
        """Tags are not part of a search result; they take one question for each name."""
        tags = {row["name"]: tuple(strings_of(row["tags"])) for row in rows if "tags" in row}
        unknown = [row["name"] for row in rows if row["name"] not in tags][:MOST_METADATA]
        answers = self._ask([_metadata_path(kind, name) for name in unknown])
        for name, answer in zip(unknown, answers, strict=True):
            extra = answer.data.get("stockyard")
            tags[name] = tuple(strings_of(extra.get("tags")) if isinstance(extra, dict) else [])
        return Loaded(tags, _warnings(*(each for each in answers if not _is_lost(each))))

    def _absolute(self, path: str) -> str:
        base = self._registry.url.rstrip("/")
        return f"{base}/{path}" if base.endswith("/api/v1") else f"{base}/api/v1/{path}"

    def _shown(self, path: str) -> str:
        return masked_url(self._absolute(path))

    def _ask(self, paths: Sequence[str]) -> list[RegistryAnswer]:
        asked = [(self._registry, self._absolute(each)) for each in paths]
        return [_known(answer) for answer in self._client.ask(asked)]


def _known(answer: RegistryAnswer) -> RegistryAnswer:
    """The answer; that there is no such name is no error."""
    is_missing = answer.error is not None and answer.error.details.get("status") == 404
    return replace(answer, data={}, error=None) if is_missing else answer


def _is_lost(answer: RegistryAnswer) -> bool:
    return answer.error is not None and not answer.data


def _warnings(*answers: RegistryAnswer) -> tuple[str, ...]:
    """Why answers are missing or old."""
    return tuple(
        f"The stockyard could not be read: {answer.error}"
        + ("" if _is_lost(answer) else "; using its last answer")
        for answer in answers
        if answer.error
    )


def _search_path(kind: Kind, page: int) -> str:
    return "search?" + urlencode({"q": "", "type": kind, "page": page, "pageSize": PAGE_SIZE})


def _metadata_path(kind: Kind, name: str) -> str:
    return f"{kind}s/{quote(name, safe='@')}/metadata"


def _definition_path(kind: Kind, name: str, version: str) -> str:
    return f"{kind}s/{quote(name, safe='@')}/versions/{quote(version, safe='')}"


def _stable_versions(metadata: Mapping[str, Any]) -> list[str]:
    return [
        row["version"]
        for row in objects(metadata.get("versions"))
        if isinstance(row.get("version"), str) and row.get("status", "stable") == "stable"
    ]
