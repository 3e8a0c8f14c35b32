"""Asks registries what they list, through the cache: over HTTP, with git, or on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from fleet_agentpack.forge.config.addresses import local_path, masked_url
from fleet_agentpack.forge.config.configuration import TREES, Registry
from fleet_agentpack.forge.errors import ForgeError, call
from fleet_agentpack.forge.registries.cache import Cache, RegistryAnswer
from fleet_agentpack.forge.registries.catalogue import (
    Catalogue,
    GitFolder,
    LocalFolder,
    Offer,
    offers_of,
    read_catalogue,
)
from fleet_agentpack.forge.registries.credentials import Credentials
from fleet_agentpack.forge.registries.git import PATIENT_S, QUICK_S, GitStore
from fleet_agentpack.forge.registries.transport import AT_ONCE, Request, Transport
from fleet_agentpack.forge.registries.trees import FolderTree, GitTree, Tree
from fleet_agentpack.kit.mappings import UnparsableError, parse_object


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
