"""The registry's HTTP API: one method per endpoint; every claim of the registry is checked."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

from fleet_agentpack.enact.bundle import LARGEST_BUNDLE
from fleet_agentpack.enact.errors import FIND_ANOTHER, EnactError
from fleet_agentpack.enact.names import is_name, is_reserved
from fleet_agentpack.enact.registries import registry
from fleet_agentpack.enact.registries.registry import Listed, Release, Tick, best_version, shown
from fleet_agentpack.enact.registries.transport import (
    ANSWER_DEADLINE_S,
    RegistryHttp,
    RegistryRefusal,
    parse_object,
)
from fleet_agentpack.enact.results import Hit
from fleet_agentpack.enact.trust.attestations import LARGEST_ATTESTATION
from fleet_agentpack.kit.http import Answer
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.kit.shapes import objects

DOWNLOAD_DEADLINE_S = 300.0
ATTESTATIONS_DEADLINE_S = 60.0  # for all of one version together
LONGEST_AUDITOR = 320


class _Version(NamedTuple):
    digest: str | None
    is_yanked: bool


class RemoteRegistry:
    """A registry behind HTTP."""

    def __init__(self, http: RegistryHttp) -> None:
        self._http = http
        self._encode_deep = False  # which form of a deep name this registry wants

    @property
    def label(self) -> str:
        """The address."""
        return self._http.url

    def search(
        self, query: str, limit: int, etag: str | None = None
    ) -> tuple[list[Hit] | None, str | None]:
        """The hits and their ETag; None instead of hits that have not changed since that ETag."""
        headers = {"If-None-Match": etag} if etag else None
        answer = self._http.request(
            "GET", "/tools/search", params={"q": query, "limit": limit}, headers=headers
        )
        if answer.status == 304:
            return None, etag
        hits = map(_hit, objects(parse_object(answer.body, self.label).get("tools")))
        return [hit for hit in hits if hit], answer.headers.get("etag")

    def release(self, name: str, version: str | None) -> Release:
        """The wanted version, or the highest that is not withdrawn."""
        return self._exact(name, version) if version else self._latest(name)

    def versions(self, name: str) -> Mapping[str, bool]:
        """Every version, and whether it is withdrawn."""
        return {version: row.is_yanked for version, row in self._versions(name).items()}

    def download(self, release: Release, tick: Tick = registry.no_tick) -> bytes:
        """The bundle; its hash is computed here and compared with every claim."""
        path = f"/versions/{quote(release.version, safe='')}/download"
        with _missing(lambda: EnactError.version_not_found(release.name, release.version)):
            answer = self._get(
                release.name, path, limit=LARGEST_BUNDLE, deadline_s=DOWNLOAD_DEADLINE_S, tick=tick
            )
        digest = hashlib.sha256(answer.body).hexdigest()
        claims = {
            "the registry's record": release.digest,
            "ETag": _claimed(answer.headers.get("etag")),
            "X-Bundle-Hash": _claimed(answer.headers.get("x-bundle-hash")),
        }
        if not answer.body:
            raise EnactError.integrity_failed(release.name, "the download is empty")
        if not any(claims.values()):
            reason = "the registry does not state the bundle's hash"
            raise EnactError.integrity_failed(release.name, reason)
        for source, claim in claims.items():
            if claim and claim != digest:
                reason = f"the downloaded bytes do not match {source}"
                raise EnactError.integrity_failed(
                    release.name, reason, claimed=claim, actual=digest
                )
        return answer.body

    def attestations(self, release: Release, tick: Tick = registry.no_tick) -> Sequence[Listed]:
        """The listed rows; a row's `auditor` is only the key to fetch its bundle by."""
        version = quote(release.version, safe="")
        with _missing(lambda: EnactError.version_not_found(release.name, release.version)):
            rows, total = self._attested(release.name, f"/versions/{version}/attestations")
        # What it counts and does not give may be a veto, as a row without an auditor may be.
        lacking = [None] if len(rows) < total else []
        auditors = dict.fromkeys(map(_auditor, [*rows, *lacking]))
        ends = time.monotonic() + ATTESTATIONS_DEADLINE_S
        below = f"/versions/{version}/trust/attestations"

        def read(auditor: str) -> bytes:
            if not auditor:
                is_whole = len(rows) >= total
                why = (
                    "a row has no usable auditor"
                    if is_whole
                    else f"it gives {len(rows)} of {total}"
                )
                raise EnactError.registry_error(self.label, why)
            left = min(ends - time.monotonic(), ANSWER_DEADLINE_S)
            if left <= 0:
                raise EnactError.registry_unavailable(self.label, "it responds too slowly")
            path, limit = f"{below}/{quote(auditor, safe='')}", LARGEST_ATTESTATION
            return self._get(release.name, path, limit=limit, deadline_s=left, tick=tick).body

        return [Listed(shown(auditor), partial(read, auditor)) for auditor in auditors]

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _attested(self, name: str, path: str) -> tuple[list[object], int]:
        """The rows of a list that may come in pages, and how many there should be."""
        rows: list[object] = []
        while True:
            answer = self._get(name, f"{path}?offset={len(rows)}" if rows else path)
            found = parse_object(answer.body, self.label)
            page, total = found.get("attestations") or [], found.get("total")
            rows += page if isinstance(page, list) else [page]
            registry.refuse_too_many(rows, self.label)
            if not isinstance(total, int) or len(rows) >= total or not page:
                return rows, total if isinstance(total, int) else 0

    def _exact(self, name: str, version: str) -> Release:
        with _missing(
            lambda: EnactError.version_not_found(name, version, sorted(self._versions(name)))
        ):
            answer = self._get(name, f"/versions/{quote(version, safe='')}")
        found = parse_object(answer.body, self.label)
        self._check_identity(found, name, version)
        if found.get("yanked") is True:
            raise _yanked(name, version, found.get("yank_reason"), found.get("yank_replacement"))
        stated = found.get("bundle")
        claim = stated.get("hash") if isinstance(stated, dict) else None
        return Release(name, version, _claimed(claim))

    def _latest(self, name: str) -> Release:
        versions = self._versions(name)
        version = best_version(v for v, row in versions.items() if not row.is_yanked)
        if version is None:
            if versions:
                highest = best_version(versions) or ""
                raise _yanked(name, highest, "every version was withdrawn", None)
            raise EnactError.tool_not_found(name, "it has no version that can be installed")
        return Release(name, version, versions[version].digest)

    def _versions(self, name: str) -> dict[str, _Version]:
        with _missing(lambda: EnactError.tool_not_found(name)):
            answer = self._get(name, "")
        found = parse_object(answer.body, self.label)
        self._check_identity(found, name, None)
        rows = [(row.get("version"), row) for row in objects(found.get("versions"))]
        return {
            version: _Version(_claimed(row.get("bundle_hash")), row.get("yanked") is True)
            for version, row in rows
            if isinstance(version, str)
        }

    def _check_identity(self, found: Mapping[str, object], name: str, version: str | None) -> None:
        if found.get("name") != name or (version and found.get("version") != version):
            message = f"the registry answered for a tool other than {name}"
            raise EnactError.registry_error(self.label, message)

    def _get(self, name: str, path: str, **options: Any) -> Answer:
        """Ask about a tool: literal slashes first, `%2F` where a deep name needs it."""
        is_deep = name.count("/") >= 2
        if not (is_deep and self._encode_deep and path):
            try:
                return self._http.request("GET", f"/tools/{name}{path}", **options)
            except RegistryRefusal as error:
                if error.status != 404 or not is_deep:
                    raise
        answer = self._http.request("GET", f"/tools/{quote(name, safe='@')}{path}", **options)
        self._encode_deep = True
        return answer


def _hit(row: Mapping[str, object]) -> Hit | None:
    name, version, tags = row.get("name"), row.get("version"), row.get("tags")
    if not isinstance(name, str) or not is_name(name) or is_reserved(name):
        return None
    return Hit(
        name,
        shown(row.get("description")),
        version if isinstance(version, str) and version else UNKNOWN,
        tuple(map(shown, tags[:20])) or UNKNOWN if isinstance(tags, list) else UNKNOWN,
    )


def _auditor(row: object) -> str:
    """The key of a row of the list; empty where there is none that can be asked for."""
    key = row.get("auditor") if isinstance(row, dict) else None
    return key if isinstance(key, str) and key.strip() and len(key) <= LONGEST_AUDITOR else ""


def _claimed(value: object) -> str | None:
    """The hash in `sha256:<hex>`, quoted or not; None when there is no such claim."""
    if not isinstance(value, str):
        return None
    bare = value.removeprefix("W/").strip().strip('"')
    return bare.removeprefix("sha256:").lower() if bare.startswith("sha256:") else None


def _yanked(name: str, version: str, reason: object, replacement: object) -> EnactError:
    newer = shown(replacement)
    return EnactError(
        "VERSION_YANKED",
        f"{name}@{version} was withdrawn" + (f": {shown(reason)}" if shown(reason) else ""),
        f"use {name}@{newer} instead" if newer else FIND_ANOTHER,
        tool=name,
        version=version,
        replacement=newer or None,
    )


@contextmanager
def _missing(what: Callable[[], EnactError]) -> Iterator[None]:
    """Let a 404 leave the block as the error that says what is missing."""
    try:
        yield
    except RegistryRefusal as error:
        if error.status != 404:
            raise
        raise what() from error
