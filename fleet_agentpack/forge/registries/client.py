"""Registry manifests: fetched or read from the cache, checked entry by entry, never trusted."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin

from fleet_agentpack.forge.config.configuration import Registry
from fleet_agentpack.forge.config.files import is_registry_url
from fleet_agentpack.forge.config.masking import masked_url
from fleet_agentpack.forge.definitions.definition import described, strings_of, text_of, version_of
from fleet_agentpack.forge.errors import ForgeError, call
from fleet_agentpack.forge.loaded import Loaded
from fleet_agentpack.forge.names import is_usable_name
from fleet_agentpack.forge.parsing import UnparsableError, as_mapping, parse_json
from fleet_agentpack.forge.registries.cache import Cache, RegistryAnswer
from fleet_agentpack.forge.registries.credentials import Credentials
from fleet_agentpack.forge.registries.transport import Request, Transport
from fleet_agentpack.forge.results import Described
from fleet_agentpack.kit.results import UNKNOWN, Maybe

_CHECKSUM = re.compile(r"sha256[:-]([0-9a-f]{64})\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Offer(Described):
    """One plugin as a registry lists it."""

    registry: Registry
    manifest_url: str
    checksum: str | None = None  # hexadecimal SHA-256 of the plugin's manifest
    homepage: Maybe[str] = UNKNOWN
    repository: Maybe[str] = UNKNOWN
    tags: tuple[str, ...] = ()
    downloads: Maybe[int] = UNKNOWN
    versions: tuple[str, ...] = ()  # this and any other that the registry names


@dataclass(frozen=True)
class Survey:
    """What the registries offer, and which of them could not be asked."""

    offers: tuple[Offer, ...]
    searched: tuple[str, ...]
    unreached: tuple[tuple[str, ForgeError], ...] = ()
    warnings: tuple[str, ...] = ()


Refused = Callable[[Registry, str, str], ForgeError]  # for an answer, by its URL and what is wrong


@dataclass(frozen=True)
class Expected:
    """What an answer must be: a JSON object, with lists under these keys."""

    refused: Refused
    lists: tuple[str, ...] = ()


class RegistryClient:
    """Asks registries, through the cache."""

    def __init__(self, cache: Cache, transport: Transport, credentials: Credentials) -> None:
        self._cache = cache
        self._transport = transport
        self._credentials = credentials

    def survey(self, registries: Sequence[Registry], *, network: bool = True) -> Survey:
        """Everything that these registries offer, in their order.

        Without `network` only the cache is asked. A registry that fails is replaced by its old
        manifest where there is one, and named in the warnings.
        """
        expected = Expected(_not_a_manifest, lists=("plugins",))
        answers = self.ask([(each, each.url) for each in registries], expected, network=network)
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
            found = _offers(registry, answer.data)
            offers += found.value
            warnings += found.warnings
        names = tuple(registry.name for registry in registries)
        return Survey(tuple(offers), names, tuple(unreached), tuple(warnings))

    def ask(
        self, questions: Sequence[tuple[Registry, str]], expected: Expected, *, network: bool = True
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
        return [self._settled(each, kept[each], bodies.get(each), expected) for each in questions]

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
        expected: Expected,
    ) -> RegistryAnswer:
        """The new answer, else the last one together with the reason."""
        if not isinstance(body, bytes):
            return replace(last, error=body)
        registry, url = question
        try:
            data = as_mapping(parse_json(body.decode("utf-8-sig")))
            for key in expected.lists:
                if not isinstance(data.get(key), list):
                    raise UnparsableError(f"{key} must be an array")
        except (UnicodeDecodeError, UnparsableError) as error:
            reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
            return replace(last, error=expected.refused(registry, url, reason))
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


def checksum_of(value: object) -> str | None:
    """The hexadecimal digest in `sha256:…` or `sha256-…`, None for anything else."""
    match = _CHECKSUM.match(value) if isinstance(value, str) else None
    return match[1].lower() if match else None


def safe_url(base: str, url: object) -> str | None:
    """A URL that a manifest refers to; a remote one may not point into this machine's files."""
    if not isinstance(url, str) or not url:
        return None
    try:
        target = urljoin(base, url)
    except ValueError:
        return None
    if not is_registry_url(target) or (target.startswith("file:") and not base.startswith("file:")):
        return None
    return target


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _key(registry: Registry, url: str) -> str:
    """The name of an answer in the cache; a registry's own manifest has the registry's."""
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    return registry.name if url == registry.url else f"{registry.name}-{digest}"


def _not_a_manifest(registry: Registry, _: str, reason: str) -> ForgeError:
    return ForgeError.network(f"invalid registry manifest: {reason}", registry=registry.name)


def _offers(registry: Registry, manifest: Mapping[str, object]) -> Loaded[list[Offer]]:
    entries = manifest.get("plugins")
    offers = [_offer(registry, each) for each in entries] if isinstance(entries, list) else []
    broken = offers.count(None)
    warning = (
        f"Registry {registry.name}: {broken} of {len(offers)} entries lack a usable name, "
        "version or manifest_url and were skipped"
    )
    return Loaded([offer for offer in offers if offer], (warning,) if broken else ())


def _offer(registry: Registry, entry: Any) -> Offer | None:
    if not isinstance(entry, dict):
        return None
    url = safe_url(registry.url, entry.get("manifest_url") or entry.get("manifest"))
    version = version_of(entry)
    if not is_usable_name(entry.get("name")) or not version or url is None:
        return None
    downloads = entry.get("downloads")
    others = [
        version_of(each) if isinstance(each, dict) else str(each)
        for each in (entry["versions"] if isinstance(entry.get("versions"), list) else [])
    ]
    return Offer(
        **vars(described(entry["name"], version, entry)),
        registry=registry,
        manifest_url=url,
        checksum=checksum_of(entry.get("checksum")),
        homepage=text_of(entry, "homepage"),
        repository=text_of(entry, "repository"),
        tags=tuple(strings_of(entry.get("tags") or entry.get("keywords"))),
        downloads=downloads if type(downloads) is int else UNKNOWN,
        versions=tuple(dict.fromkeys([version, *(each for each in others if each)])),
    )
