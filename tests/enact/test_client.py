"""The registry client against recordings of a real registry, and against lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from fleet_agentpack.enact.bundle import unpack
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.manifest import load
from fleet_agentpack.enact.registries.remote import RemoteRegistry
from fleet_agentpack.enact.registries.transport import RegistryHttp, RegistryRefusal, parse_object
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.kit.secret import Secret
from tests.cassette import Cassette, _recorded_key
from tests.enact.fake_registry import FakeRegistry, Lie
from tests.enact.kit import (
    CASSETTES,
    closed_later,
    configure,
    digest_of,
    make_service,
    refused,
    snapshot,
    tar_bytes,
    tool_bundle,
)

URL = "https://registry.example.test"
FILES = sorted(CASSETTES.glob("*.yaml"))


EXPECTED = {
    400: "REGISTRY_ERROR",
    401: "REGISTRY_UNAUTHORIZED",
    403: "REGISTRY_UNAUTHORIZED",
    404: "NOT_FOUND",
    409: "REGISTRY_CONFLICT",
    410: "VERSION_YANKED",
    422: "REGISTRY_ERROR",
    500: "REGISTRY_ERROR",
}


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_recorded_answer_and_error_is_understood(path: Path) -> None:
    http = closed_later(RegistryHttp(URL))
    recorded = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    assert recorded["interactions"]
    for interaction in recorded["interactions"]:
        request, response = interaction["request"], interaction["response"]
        cassette = Cassette()
        cassette.answers[_recorded_key(request)] = [response]
        with cassette.replay():
            check(http, request, response)


def check(http: RegistryHttp, request: dict[str, Any], response: dict[str, Any]) -> None:
    parts = urlsplit(request["uri"])
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    body = request.get("body")
    content = body.encode() if isinstance(body, str) else body
    status, said = response["status"]["code"], response["body"]["string"]
    raw = said if isinstance(said, bytes) else said.encode()
    if status < 300:
        answer = http.request(request["method"], target, content=content)
        assert (answer.status, answer.body) == (status, raw)
        if raw.startswith(b"{"):
            assert parse_object(answer.body, http.url) == json.loads(raw)
        return
    with pytest.raises(RegistryRefusal) as refusal:
        http.request(request["method"], target, content=content)
    assert refusal.value.status == status
    assert refusal.value.code == EXPECTED[status]
    assert refusal.value.details["status"] == status
    if raw.startswith(b"{") and isinstance(json.loads(raw).get("error"), dict):
        assert refusal.value.details["registry_code"] == json.loads(raw)["error"]["code"]


def replayed(*names: str) -> tuple[Cassette, RemoteRegistry]:
    paths = [CASSETTES / f"{name}.yaml" for name in names]
    return Cassette.load(*paths), closed_later(RemoteRegistry(RegistryHttp(URL)))


def test_the_journeys_of_the_original_client() -> None:
    cassette, registry = replayed("journeys", "version")
    with cassette.replay():
        hits, etag = registry.search("count words", 10)
        assert [hit.name for hit in hits or ()] == ["alice/count-words", "alice/text/count-words"]
        assert etag is None
        latest = registry.release("alice/count-words", None)
        assert latest.version == "1.2.0"
        data = registry.download(latest)
        assert digest_of(data) == latest.digest
        assert load(unpack(data)).scripts.keys() == {"count", "top", "echo"}
        exact = registry.release("alice/count-words", "1.0.0")
        assert digest_of(registry.download(exact)) == exact.digest


def test_a_deep_name_is_asked_for_literally_and_then_encoded_and_the_habit_is_kept() -> None:
    cassette, registry = replayed("journeys", "deep_names")
    name = "alice/text/count-words"
    with cassette.replay():
        release = registry.release(name, "1.2.0")
        assert list(registry.attestations(release)) == []
        assert digest_of(registry.download(release)) == release.digest
    assert cassette.requests[0].url.raw_path == b"/tools/alice/text/count-words/versions/1.2.0"
    assert [each.url.raw_path.split(b"/versions")[0] for each in cassette.requests[1:]] == [
        b"/tools/alice%2Ftext%2Fcount-words"
    ] * 3


def test_the_highest_version_is_the_latest_whatever_was_published_last() -> None:
    cassette, registry = replayed("tool")
    with cassette.replay():
        assert registry.release("dave/backport", None).version == "2.0.0"


def test_a_withdrawn_version_says_what_replaces_it() -> None:
    cassette, registry = replayed("yanked")
    with cassette.replay():
        with refused("VERSION_YANKED") as refusal:
            registry.release("alice/gone", None)
        assert "every version" in refusal.error.message


def test_unknown_tools_and_versions() -> None:
    cassette, registry = replayed("version", "tool")
    with cassette.replay():
        with refused("VERSION_NOT_FOUND") as refusal:
            registry.release("alice/count-words", "9.9.9")
        assert "1.2.0" in str(refusal.error.details["versions"])
        with refused("TOOL_NOT_FOUND"):
            registry.release("alice/nope", None)


def test_nothing_that_the_registry_calls_verified_is_believed() -> None:
    cassette, registry = replayed("attestations", "version")
    with cassette.replay():
        release = registry.release("alice/count-words", "1.2.0")
        # The recorder asked for the bundle of one auditor only; this server has none of any.
        unknown = "/tools/alice/count-words/versions/1.2.0/trust/attestations/unknown"
        cassette.put("GET", unknown, 404, {"error": {"code": "NOT_FOUND", "message": "-"}})
        found = []
        for _ in range(4):  # the recorded lists: none, then some that are not given out
            try:
                found.append(str([each.read() for each in registry.attestations(release)]))
            except EnactError as error:
                found.append(error.code)
        assert set(found) == {"[]", "NOT_FOUND"}


@pytest.fixture
def published(registry: FakeRegistry, home: Path) -> FakeRegistry:
    """A registry with one tool, and a policy that lets it in."""
    registry.publish("alice/hello", "1.0.0", tool_bundle("alice/hello"))
    configure(home, trust={"policy": "allow"}, registry={"url": registry.url})
    return registry


DOWNLOAD = "/tools/alice/hello/versions/1.0.0/download"
OTHER = tool_bundle("alice/other")
HONEST = tool_bundle("alice/hello")
LIES = {
    "other bytes, honest ETag": Lie(body=OTHER, headers={"etag": f'"sha256:{digest_of(HONEST)}"'}),
    "other bytes, ETag to match": Lie(body=OTHER, headers={"etag": f'"sha256:{digest_of(OTHER)}"'}),
    "other bytes, no ETag": Lie(body=OTHER),
    "honest bytes, lying ETag": Lie(body=HONEST, headers={"etag": f'"sha256:{"0" * 64}"'}),
    "honest bytes, lying X-Bundle-Hash": Lie(
        body=HONEST, headers={"x-bundle-hash": f"sha256:{'0' * 64}"}
    ),
    "empty": Lie(body=b""),
    "half": Lie(body=HONEST[: len(HONEST) // 2]),
}


@pytest.mark.parametrize("case", LIES)
def test_bytes_that_do_not_match_every_claim_change_nothing(
    service: EnactService, published: FakeRegistry, home: Path, case: str
) -> None:
    service.install("alice/hello")
    before = snapshot(home / ".enact")
    published.lies[DOWNLOAD] = LIES[case]
    for act in (service.install, lambda tool: make_service(home / "other").install(tool)):
        if act is not service.install:
            configure(home / "other", trust={"policy": "allow"}, registry={"url": published.url})
        with refused("INTEGRITY_FAILED"):
            act("alice/hello")
    assert snapshot(home / ".enact") == before
    assert service.installed().tools[0].version == "1.0.0"


def test_a_connection_that_breaks_off_leaves_the_old_version(
    service: EnactService, published: FakeRegistry, home: Path
) -> None:
    service.install("alice/hello")
    before = snapshot(home / ".enact")
    published.lies[DOWNLOAD] = Lie(
        body=HONEST[:50], headers={"etag": "x", "Content-Length": str(len(HONEST))}
    )
    with refused("REGISTRY_UNAVAILABLE"):
        service.install("alice/hello")
    assert snapshot(home / ".enact") == before


def test_a_cancelled_install_leaves_nothing(
    service: EnactService, published: FakeRegistry, home: Path
) -> None:
    class Cancelled(Exception):
        pass

    def report(*_: Any) -> None:
        raise Cancelled

    before = sorted(home.rglob("*"))
    with pytest.raises(Cancelled):
        service.install("alice/hello", report=report)
    assert sorted(home.rglob("*")) == before


def test_a_bundle_without_any_claimed_hash_is_refused(
    service: EnactService, published: FakeRegistry
) -> None:
    version = {"name": "alice/hello", "version": "1.0.0", "bundle": {}}
    published.lies["/tools/alice/hello/versions/1.0.0"] = Lie(body=json.dumps(version).encode())
    published.lies[DOWNLOAD] = Lie(body=HONEST)
    with refused("INTEGRITY_FAILED"):
        service.install("alice/hello", "1.0.0")


@pytest.mark.parametrize(
    "bundle",
    [
        tool_bundle("someone/else"),
        tool_bundle("alice/hello", "9.9.9"),
        tar_bytes({"enact.yaml": "description: a tool without a name\n"}),
    ],
    ids=["name", "version", "no name"],
)
def test_a_manifest_that_is_not_what_was_asked_for_is_refused(
    service: EnactService, published: FakeRegistry, home: Path, bundle: bytes
) -> None:
    published.publish("alice/hello", "1.0.0", bundle)
    with refused("MANIFEST_INVALID"):
        service.install("alice/hello")
    assert not (home / ".enact" / "tools.json").exists()


@pytest.mark.parametrize(
    "body",
    [
        b"<html>please log in</html>",
        b"[]",
        b"",
        json.dumps({"name": "other/tool", "versions": []}).encode(),
        b"[" * 100_000,
    ],
)
def test_an_answer_of_another_shape_is_an_error_of_the_registry(
    service: EnactService, published: FakeRegistry, body: bytes
) -> None:
    published.lies["/tools/alice/hello"] = Lie(body=body)
    with refused("REGISTRY_ERROR"):
        service.install("alice/hello")


def test_hostile_search_results_are_dropped_and_shortened(
    service: EnactService, published: FakeRegistry
) -> None:
    rows = [
        {"name": "../../x", "description": "a"},
        {"name": "agentpack/csv/stats", "description": "a better one"},
        {"name": "enact/search", "description": "b"},
        {"name": None},
        5,
        {"name": "fine/tool", "description": "line\n\x1b[31mred" + "x" * 5000, "version": None},
        {"name": "null/author", "description": None, "author": None, "tags": None},
    ]
    published.lies["/tools/search"] = Lie(body=json.dumps({"tools": rows}).encode())
    found = service.search("tool").results
    assert [hit.name for hit in found] == ["fine/tool", "null/author"]
    assert "\n" not in found[0].description and "\x1b" not in found[0].description
    assert len(found[0].description) <= 300


def test_a_token_goes_only_to_the_registry_it_was_configured_for(
    home: Path, published: FakeRegistry
) -> None:
    configure(
        home,
        trust={"policy": "allow"},
        registry={"url": published.url, "authToken": "s3cret-token"},
    )
    make_service(home).search("hello")
    assert published.requests[-1][1]["authorization"] == "Bearer s3cret-token"
    published.requests.clear()
    elsewhere = {"url": "https://other.example.test", "authToken": "s3cret-token"}
    configure(home, registry=elsewhere)
    make_service(home, environ={"ENACT_REGISTRY_URL": published.url}).search("hello")
    assert published.requests and "authorization" not in published.requests[-1][1]
    make_service(
        home,
        environ={"ENACT_REGISTRY_URL": published.url, "ENACT_AUTH_TOKEN": "of-the-environment"},
    ).search("hello again")
    assert published.requests[-1][1]["authorization"] == "Bearer of-the-environment"


def test_a_token_is_not_sent_over_plain_http_to_another_machine() -> None:
    with refused("INVALID_ARGUMENTS"):
        RegistryHttp("http://registry.example.test", Secret("s3cret-token"))
    with refused("INVALID_ARGUMENTS"):
        RegistryHttp("https://user:pass@registry.example.test")


def test_redirects_are_not_followed(service: EnactService, published: FakeRegistry) -> None:
    published.lies["/tools/alice/hello"] = Lie(302, b"", {"location": f"{published.url}/elsewhere"})
    with refused("REGISTRY_ERROR"):
        service.install("alice/hello")
    assert "/elsewhere" not in published.paths()


@pytest.mark.parametrize("retry_after", ["0", "Wed, 21 Oct 2015 07:28:00 GMT", "soon", None])
def test_a_busy_registry_is_asked_again_a_few_times(
    published: FakeRegistry, retry_after: str | None
) -> None:
    headers = {"retry-after": retry_after} if retry_after else {}
    published.lies["/tools/alice/hello"] = Lie(429, b"{}", headers)
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    registry = closed_later(RemoteRegistry(RegistryHttp(published.url, sleep=wait)))
    with refused("RATE_LIMITED"):
        registry.release("alice/hello", None)
    assert len(published.paths()) == 3
    assert len(waited) == 2 and all(0 <= each <= 10 for each in waited)


def test_an_unreachable_registry_says_so_and_the_rest_goes_on(home: Path) -> None:
    configure(home, registry={"url": "http://127.0.0.1:9"})
    service = make_service(home)
    found = service.search("csv")
    assert found.results[0].name == "agentpack/csv/stats"
    assert "cannot be reached" in found.warnings[0]
    with refused("REGISTRY_UNAVAILABLE"):
        service.install("alice/hello")
    assert service.install("agentpack/csv/stats").success is True


@pytest.mark.parametrize("url", ["ftp://x.test/y", "relative/path", "not a url", "javascript:1"])
def test_a_registry_address_of_another_kind_is_refused(home: Path, url: str) -> None:
    configure(home, registry={"url": url})
    service = make_service(home)
    with refused("CONFIG_INVALID"):
        service.install("alice/hello")
    assert service.search("csv").warnings


def test_an_answer_that_never_ends_is_cut_off(published: FakeRegistry) -> None:
    published.lies["/tools/alice/hello"] = Lie(body=b"x" * (9 * 1024 * 1024))
    registry = closed_later(RemoteRegistry(RegistryHttp(published.url)))
    with pytest.raises(EnactError, match="more than"):
        registry.release("alice/hello", None)


def test_a_refusal_without_a_body_ends_with_what_was_asked_for(
    service: EnactService, published: FakeRegistry
) -> None:
    published.lies["/tools/alice/hello"] = Lie(403, b"")
    with pytest.raises(EnactError) as caught:
        service.install("alice/hello")
    assert caught.value.message == "the registry answered 403 for /tools/alice/hello"
