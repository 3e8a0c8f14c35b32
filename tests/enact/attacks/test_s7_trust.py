"""S7 and M7: a veto that is withheld, a version that is withheld, a login that was given away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleet_agentpack.enact.service import EnactService
from tests.enact.fake_registry import FakeRegistry, Lie
from tests.enact.kit import add_tool, refused, tool_bundle, use_directory
from tests.enact.private_sigstore import AUDIT, GITHUB, instance, signed_form, statement
from tests.enact.test_trust import NAME, VERSION, digest, endorse, trust

__all__ = ["digest", "trust"]  # fixtures


def test_a_listed_attestation_that_is_withheld_refuses(
    service: EnactService, registry: FakeRegistry, trust: Callable[..., None], digest: str
) -> None:
    trust("github:alice", "github:bob")
    endorse(registry, digest, email="1+alice@users.noreply.github.com", issuer=GITHUB)
    failed = statement(NAME, VERSION, signed_form(digest), predicate_type=AUDIT, result="failed")
    veto = instance().sign(failed, email="2+bob@users.noreply.github.com", issuer=GITHUB)
    registry.attest(NAME, VERSION, "bob", veto)
    path = f"/tools/{NAME}/versions/{VERSION}/trust/attestations/bob"
    for lie in (path, path.replace(NAME, NAME.replace("/", "%2F"))):
        registry.lies[lie] = Lie(status=404)
    for policy in ("require_attestation", "allow"):
        trust("github:alice", "github:bob", policy=policy)
        with refused("TRUST_REFUSED") as refusal:
            service.install(NAME)
        assert "bob" in refusal.error.message


def test_a_withheld_version_does_not_downgrade(home: Path, service: EnactService) -> None:
    newer = add_tool(home / "registry", "eve/tool", "1.2.0")
    add_tool(home / "registry", "eve/tool", "1.1.0")
    use_directory(home, home / "registry")
    service.install("eve/tool")
    newer.rename(home / "withheld")
    for version in (None, "1.1.0"):
        with refused("DOWNGRADE_REFUSED") as refusal:
            service.install("eve/tool", version)
        assert "--allow-downgrade" in refusal.error.next_actions[0]
    assert "1.2.0" in str(service.installed())
    service.install("eve/tool", allow_downgrade=True)
    assert "1.1.0" in str(service.installed())


def test_a_login_that_was_given_away_is_another_auditor(
    service: EnactService, registry: FakeRegistry, trust: Callable[..., None], digest: str
) -> None:
    trust("github:alice")
    endorse(registry, digest, email="12345+alice@users.noreply.github.com", issuer=GITHUB)
    service.install(NAME)
    bundle = tool_bundle(NAME, "2.0.0")
    second = registry.publish(NAME, "2.0.0", bundle)
    payload = statement(NAME, "2.0.0", signed_form(second))
    stranger = instance().sign(payload, email="99999+alice@users.noreply.github.com", issuer=GITHUB)
    registry.attest(NAME, "2.0.0", "alice", stranger)
    with refused("TRUST_REFUSED") as refusal:
        service.install(NAME)
    assert "account 12345" in str(refusal.error.details["attestations"])
    assert service.run(NAME).exit_code == 0  # what was installed before


@pytest.mark.parametrize(
    ("email", "fine"),
    [("alice@example.com", True), ("12345+alice@users.noreply.github.com", False)],
)
def test_a_login_can_be_written_with_its_address(
    service: EnactService,
    registry: FakeRegistry,
    trust: Callable[..., None],
    digest: str,
    email: str,
    fine: bool,
) -> None:
    trust("github:alice <alice@example.com>")
    endorse(registry, digest, email=email, issuer=GITHUB)
    if fine:
        assert service.install(NAME).success
    else:
        with refused("TRUST_REFUSED"):
            service.install(NAME)
