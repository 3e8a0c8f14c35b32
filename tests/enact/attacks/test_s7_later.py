"""S7: attestations made unreadable; a veto, a withdrawal or another signer after the install."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp_types import ElicitResult

from fleet_agentpack.cli import run
from fleet_agentpack.enact.registries.remote import LONGEST_AUDITOR
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.enact.trust.attestations import LARGEST_ATTESTATION
from fleet_agentpack.server import build_server
from fleet_agentpack.settings import Settings
from tests.console.streams import Terminal
from tests.enact.fake_registry import FakeRegistry, Lie
from tests.enact.kit import add_tool, configure, refused, tool_bundle
from tests.enact.private_sigstore import AUDIT, GITHUB, instance, signed_form, statement
from tests.enact.test_trust import NAME, VERSION, digest, endorse, trust
from tests.person import YES, Person

__all__ = ["digest", "trust"]  # fixtures

ALICE, BOB = "1+alice@users.noreply.github.com", "2+bob@users.noreply.github.com"


def veto(digest: str, email: str = BOB, version: str = VERSION) -> bytes:
    """A failed audit."""
    failed = statement(NAME, version, signed_form(digest), predicate_type=AUDIT, result="failed")
    return instance().sign(failed, email=email, issuer=GITHUB)


UNREADABLE = {
    "an error": Lie(status=500),
    "forbidden": Lie(status=403),
    "too large": Lie(body=b" " * (LARGEST_ATTESTATION + 1)),
    "no JSON": Lie(body=b"<html>"),
    "no bundle": Lie(body=b"{}"),
}


@pytest.mark.parametrize("how", UNREADABLE)
@pytest.mark.parametrize("policy", ["require_attestation", "allow"])
def test_a_listed_attestation_that_cannot_be_read_refuses(
    service: EnactService,
    registry: FakeRegistry,
    trust: Callable[..., None],
    digest: str,
    how: str,
    policy: str,
) -> None:
    trust("github:alice", "github:bob", policy=policy)
    endorse(registry, digest, email=ALICE, issuer=GITHUB)
    registry.attest(NAME, VERSION, "bob", veto(digest))
    registry.lies[f"/tools/{NAME}/versions/{VERSION}/trust/attestations/bob"] = UNREADABLE[how]
    with refused("TRUST_REFUSED") as refusal:
        service.install(NAME)
    assert "bob" in refusal.error.message


@pytest.mark.parametrize("auditor", ["b" * (LONGEST_AUDITOR + 1), "", None, 7])
def test_a_row_that_names_no_usable_auditor_cannot_hide_a_veto(
    service: EnactService,
    registry: FakeRegistry,
    trust: Callable[..., None],
    digest: str,
    auditor: Any,
) -> None:
    trust("github:alice", "github:bob")
    endorse(registry, digest, email=ALICE, issuer=GITHUB)
    registry.attest(NAME, VERSION, auditor, veto(digest))
    with refused("TRUST_REFUSED"):
        service.install(NAME)


@pytest.mark.parametrize("page_size", [1, 2, 3])
def test_a_veto_on_a_later_page_is_not_out_of_sight(
    service: EnactService,
    registry: FakeRegistry,
    trust: Callable[..., None],
    digest: str,
    page_size: int,
) -> None:
    trust("github:alice", "github:bob")
    endorse(registry, digest, email=ALICE, issuer=GITHUB)
    endorse(
        registry, digest, auditor="carol", email="3+carol@users.noreply.github.com", issuer=GITHUB
    )
    registry.attest(NAME, VERSION, "bob", veto(digest))
    registry.page_size = page_size
    with refused("TRUST_VETO"):
        service.install(NAME)


@pytest.mark.parametrize("page", [[], None])
def test_a_list_that_is_shorter_than_it_says_refuses(
    service: EnactService,
    registry: FakeRegistry,
    trust: Callable[..., None],
    digest: str,
    page: Any,
) -> None:
    trust("github:alice", "github:bob")
    endorse(registry, digest, email=ALICE, issuer=GITHUB)
    first = {"attestations": [{"auditor": "alice"}], "total": 2}
    path = f"/tools/{NAME}/versions/{VERSION}/attestations"
    registry.lies[path] = Lie(body=json.dumps(first).encode())
    second = json.dumps({"attestations": page, "total": 2})
    registry.lies[f"{path}?offset=1"] = Lie(body=second.encode())
    with refused("TRUST_REFUSED") as refusal:
        service.install(NAME)
    assert "1 of 2" in refusal.error.message


def test_a_padded_veto_in_a_directory_is_not_overlooked(home: Path, service: EnactService) -> None:
    folder = home / "registry"
    add_tool(folder, NAME)
    placed = folder / ".attestations" / NAME / VERSION
    placed.mkdir(parents=True)
    (placed / "bob.json").write_bytes(veto("0" * 64) + b" " * LARGEST_ATTESTATION)
    root = instance().write_trusted_root(home / ".enact-root.json")
    trusted = {"trusted_auditors": ["github:bob"], "trusted_root": str(root)}
    configure(home, trust={"policy": "allow", **trusted}, registry={"url": str(folder)})
    with refused("TRUST_REFUSED"):
        service.install(NAME)


@pytest.fixture
def installed(
    service: EnactService, registry: FakeRegistry, trust: Callable[..., None], digest: str
) -> EnactService:
    """A tool that alice has signed, installed."""
    trust("github:alice", "github:bob")
    endorse(registry, digest, email=ALICE, issuer=GITHUB)
    service.install(NAME)
    assert service.run(NAME).exit_code == 0
    return service


def sign(registry: FakeRegistry, version: str, email: str, key: str = "someone") -> None:
    """Publish another version, signed by somebody."""
    found = registry.publish(NAME, version, tool_bundle(NAME, version))
    payload = statement(NAME, version, signed_form(found))
    registry.attest(NAME, version, key, instance().sign(payload, email=email, issuer=GITHUB))


def test_another_signer_of_the_next_version_is_a_question(
    installed: EnactService, registry: FakeRegistry
) -> None:
    sign(registry, "2.0.0", BOB)
    with refused("SIGNER_CHANGED") as refusal:
        installed.install(NAME)
    assert "github:alice" in refusal.error.message and "github:bob" in refusal.error.message
    assert installed.installed().tools[0].version == VERSION


def test_another_signer_can_be_accepted_by_name(
    installed: EnactService, registry: FakeRegistry
) -> None:
    sign(registry, "2.0.0", BOB)
    with refused("SIGNER_CHANGED") as refusal:
        installed.install(NAME, accept_signers=["github:alice", "github:mallory"])
    assert "--accept-signer github:bob" in refusal.error.next_actions[0]
    installed.install(NAME, accept_signers=["github:bob"])
    sign(registry, "3.0.0", ALICE)
    with refused("SIGNER_CHANGED"):  # alice is now the other one
        installed.install(NAME)


def test_an_uninstall_does_not_make_the_signer_forgotten(
    installed: EnactService, registry: FakeRegistry
) -> None:
    """Else an agent that is refused would have a way around the question."""
    sign(registry, "2.0.0", BOB)
    installed.uninstall(NAME)
    with refused("SIGNER_CHANGED") as refusal:
        installed.install(NAME)
    assert "github:alice" in refusal.error.message and "github:bob" in refusal.error.message
    assert installed.installed().tools == ()
    installed.install(NAME, accept_signers=["github:bob"])
    installed.uninstall(NAME)
    assert installed.install(NAME).success, "whoever was accepted last"


def test_one_signer_who_stays_is_enough_and_the_same_bytes_are_no_question(
    installed: EnactService, registry: FakeRegistry, digest: str
) -> None:
    sign(registry, "2.0.0", BOB)
    sign(registry, "2.0.0", ALICE, "alice")
    assert "was 1.0.0" in installed.install(NAME).message
    assert installed.install(NAME).success


def test_a_signature_that_is_gone_is_a_question_where_none_is_needed(
    installed: EnactService, registry: FakeRegistry, trust: Callable[..., None]
) -> None:
    trust("github:alice", policy="allow")
    registry.publish(NAME, "2.0.0", tool_bundle(NAME, "2.0.0"))
    with refused("SIGNER_CHANGED") as refusal:
        installed.install(NAME)
    assert "--accept-signer nobody" in refusal.error.next_actions[0]
    assert installed.install(NAME, accept_signers=["nobody"]).success


def test_at_a_terminal_the_person_is_asked(
    installed: EnactService,
    registry: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sign(registry, "2.0.0", BOB)
    assert run(["tool", "install", NAME]) == 1
    assert "--accept-signer github:bob" in capsys.readouterr().err
    for answer, status in (("n", 1), ("y", 0)):
        monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
        assert run(["tool", "install", NAME]) == status
        assert "github:bob" in capsys.readouterr().err
    assert installed.installed().tools[0].version == "2.0.0"


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize(
    ("answer", "code"), [(YES, None), (ElicitResult(action="decline"), "NOT_APPROVED")]
)
async def test_the_person_at_the_client_is_asked(
    installed: EnactService, registry: FakeRegistry, era: Any, answer: Any, code: str | None
) -> None:
    sign(registry, "2.0.0", BOB)
    person = Person(answer)
    settings = dataclasses.replace(Settings.read(), ask="risky")
    async with Client(build_server(settings), mode=era, elicitation_handler=person) as client:
        result = await client.call_tool("enact__install", {"tool": NAME}, raise_on_error=False)
    assert len(person.seen) == 1 and "github:bob" in str(person.seen[0])
    assert result.structured_content.get("error", {}).get("code") == code
    assert installed.installed().tools[0].version == (VERSION if code else "2.0.0")


async def test_where_nobody_is_asked_the_agent_is_told_the_command(
    installed: EnactService, registry: FakeRegistry
) -> None:
    sign(registry, "2.0.0", BOB)
    async with Client(build_server(Settings.read())) as client:
        result = await client.call_tool("enact__install", {"tool": NAME}, raise_on_error=False)
    error = result.structured_content["error"]
    assert error["code"] == "SIGNER_CHANGED"
    assert error["details"]["command"].endswith(f"{NAME}@2.0.0 --accept-signer github:bob")
