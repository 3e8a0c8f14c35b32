"""What every registry offers: hits, releases, bundles and attestations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.results import Hit
from fleet_agentpack.kit.semver import Version, VersionError
from fleet_agentpack.kit.visible import visible

MOST_ATTESTATIONS = 200
LONGEST_SHOWN = 300
_WORD = re.compile(r"\w+", re.UNICODE)
_BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True)
class Release:
    """One version of a tool that a registry offers."""

    name: str
    version: str
    digest: str | None = None  # sha256 of the bundle in hex, as the registry claims it


@dataclass(frozen=True)
class Listed:
    """An attestation that a registry lists; a veto may be what it does not give out."""

    auditor: str  # as the registry says: the key to fetch it by, and no more
    read: Callable[[], bytes]  # raises `EnactError`


Tick = Callable[[], None]  # called repeatedly during a download; may raise to cancel it


def no_tick() -> None:
    """Report nothing."""


def refuse_too_many(attestations: Sequence[object], label: str) -> None:
    """Refuse a list too long to read: the rest could contain a veto. Raises `EnactError`."""
    if len(attestations) > MOST_ATTESTATIONS:
        message = f"the registry lists more than {MOST_ATTESTATIONS} attestations for one version"
        raise EnactError.registry_error(label, message)


class Registry(Protocol):
    """Where tools come from."""

    @property
    def label(self) -> str:
        """The name of this registry in results and receipts."""

    def release(self, name: str, version: str | None) -> Release:
        """The wanted version, or the highest. Raises `EnactError`."""

    def versions(self, name: str) -> Mapping[str, bool]:
        """Every version, and whether it is withdrawn. Raises `EnactError`."""

    def download(self, release: Release, tick: Tick) -> bytes:
        """The bundle, whose bytes match every claim made about them. Raises `EnactError`."""

    def attestations(self, release: Release, tick: Tick) -> Sequence[Listed]:
        """Every attestation about a release. Raises `EnactError`, also for too many."""


def shown(text: object) -> str:
    """Text from a registry, made safe for an agent: one short line, nothing hidden in it."""
    plain = visible(_BLANKS.sub(" ", text).strip()) if isinstance(text, str) else ""
    return plain if len(plain) <= LONGEST_SHOWN else plain[: LONGEST_SHOWN - 1] + "…"


def best_version(versions: Iterable[str]) -> str | None:
    """The highest version, a released one before any pre-release."""
    parsed = []
    for text in versions:
        try:
            parsed.append((Version.parse(text), text))
        except VersionError:
            continue
    released = [pair for pair in parsed if not pair[0].pre]
    return max(released or parsed, default=(None, None))[1]


def rank(hits: Sequence[Hit], query: str) -> list[Hit]:
    """The hits that match a query, best first: words are prefixes, any may match."""
    words = _search_terms(query)
    if not words:
        return list(hits)
    scored = [(_score(hit, words), hit) for hit in hits]
    return [hit for score, hit in sorted(scored, key=lambda pair: -pair[0]) if score > 0]


def _search_terms(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _score(hit: Hit, words: Sequence[str]) -> float:
    tags = hit.tags if isinstance(hit.tags, tuple) else ()
    named = _search_terms(f"{hit.name} {' '.join(tags)}")
    strong = [part for word in named for part in (word, *word.split("_"))]
    weak = _search_terms(hit.description)
    return sum(
        3.0 if any(other.startswith(word) for other in strong)
        else 1.0 if any(other.startswith(word) for other in weak)
        else 0.0
        for word in words
    )  # fmt: skip
