"""The trust gate: what counts, what does not, and that everything else is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.registries.registry import MOST_ATTESTATIONS
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.enact.trust.attestations import (
    AttestationRefused,
    AttestationVerifier,
    Signed,
    Subject,
    verdict,
)
from fleet_agentpack.enact.trust.identity import GITLAB
from tests.enact.fake_registry import FakeRegistry, Lie
from tests.enact.kit import configure, manifest, refused, tool_bundle
from tests.enact.private_sigstore import (
    ACTIONS,
    AUDIT,
    GITHUB,
    GOOGLE,
    PrivateSigstore,
    instance,
    signed_form,
    statement,
)

NAME, VERSION = "alice/tools/hello", "1.0.0"
ALICE = "12345+alice@users.noreply.github.com"
BUNDLE = tool_bundle(NAME)
WORKFLOW = "https://github.com/alice/tools/.github/workflows/audit.yml@refs/heads/main"


@pytest.fixture
def digest(registry: FakeRegistry) -> str:
    """The hash of the published tool."""
    return registry.publish(NAME, VERSION, BUNDLE)


@pytest.fixture
def trust(home: Path, registry: FakeRegistry) -> Callable[..., None]:
    """Write the trust policy."""

    def write(*auditors: str, **more: Any) -> None:
        (home / ".enact").mkdir(exist_ok=True)
        root = instance().write_trusted_root(home / ".enact" / "root.json")
        section = {"policy": "require_attestation", "trusted_auditors": list(auditors)}
        configure(
            home,
            trust={**section, "trusted_root": str(root), **more},
            registry={"url": registry.url},
            execution={"default": "local"},
        )

    return write


def endorse(
    registry: FakeRegistry, digest: str, *, auditor: str = "alice", **identity: Any
) -> None:
    payload = statement(NAME, VERSION, signed_form(digest))
    registry.attest(NAME, VERSION, auditor, instance().sign(payload, **identity))


def assert_refused_everywhere(
    service: EnactService, home: Path, code: str = "TRUST_REFUSED"
) -> None:
    """Learn, install and run are all refused, and nothing is left on disk."""
    with refused(code) as learning:
        service.learn(NAME)
    assert "hello from" not in str(learning.error.payload())
    with refused(code):
        service.install(NAME)
    with refused(code):
        service.run(NAME)
    assert not (home / ".enact" / "tools").exists()
    assert not (home / ".enact" / "tools.json").exists()
    assert service.installed().tools == ()


def assert_let_in(service: EnactService) -> None:
    assert "Calling alice/tools/hello" in service.learn(NAME).documentation
    assert service.run(NAME).output == f"hello from {NAME}\n"
    assert service.install(NAME).success is True
    tool = service.projection().callables["alice__tools__hello"]
    assert service.call(tool, {}).output == f"hello from {NAME}\n"


@pytest.mark.parametrize("policy", ["prompt", "require_attestation", "require_audit"])
def test_a_policy_that_asks_refuses_where_nobody_can_be_asked(
    service: EnactService, home: Path, trust: Callable[..., None], digest: str, policy: str
) -> None:
    trust("github:alice", policy=policy)
    assert_refused_everywhere(service, home)


def test_nothing_remote_is_trusted_by_default(
    service: EnactService, registry: FakeRegistry, home: Path, digest: str
) -> None:
    configure(home, registry={"url": registry.url})
    assert_refused_everywhere(service, home)
    assert service.install("agentpack/csv/stats").success is True


@pytest.mark.parametrize(
    ("trusted", "identity"),
    [
        ("github:alice", {"email": ALICE}),
        ("github:Alice", {"email": "alice@users.noreply.github.com"}),
        ("github:alice@corp.test", {"email": "alice@corp.test"}),
        ("alice@corp.test", {"email": "alice@corp.test"}),
        ("alice@corp.test", {"email": "alice@corp.test", "issuer": GOOGLE}),
        ("google:*@corp.test", {"email": "alice@corp.test", "issuer": GOOGLE}),
        ("github:alice/*", {"uri": WORKFLOW, "issuer": ACTIONS}),
        ("github:alice/tools", {"uri": WORKFLOW, "issuer": ACTIONS}),
    ],
)
def test_a_real_signature_of_a_trusted_auditor_opens_the_gate(
    service: EnactService,
    registry: FakeRegistry,
    trust: Callable[..., None],
    digest: str,
    trusted: str,
    identity: dict[str, str],
) -> None:
    trust(trusted)
    endorse(registry, digest, **identity)
    assert_let_in(service)
    receipt = service.store.receipt(NAME, VERSION)
    assert receipt is not None
    assert receipt.digest == digest
    assert receipt.trust["policy"] == "require_attestation"
    assert receipt.trust["signers"][0]["identity"] == identity.get("email", identity.get("uri"))


@pytest.mark.parametrize(
    ("trusted", "identity"),
    [
        ("github:alice", {"email": "alice@evil.test"}),
        ("github:alice", {"email": "mallory@users.noreply.github.com"}),
        ("github:alice", {"email": ALICE, "issuer": GOOGLE}),
        ("github:alice", {"email": ALICE, "issuer": "https://issuer.evil.test"}),
        ("github:alice", {"email": ALICE, "issuer": "https://github.com/login/oauth2"}),
        ("github:alice", {"email": "alice@users.noreply.github.com.evil.test"}),
        ("github:alice", {"uri": WORKFLOW, "issuer": ACTIONS}),
        ("alice@corp.test", {"uri": "mailto:alice@corp.test", "issuer": ACTIONS}),
        ("alice@corp.test", {"email": "alice@corp.test", "issuer": ACTIONS}),
        ("google:*@corp.test", {"email": "alice@corp.test", "issuer": GITHUB}),
        ("google:*@corp.test", {"email": "alice@evil.corp.test", "issuer": GOOGLE}),
        ("google:*@corp.test", {"email": "alice@corp.test.evil.test", "issuer": GOOGLE}),
        ("github:alice/*", {"uri": WORKFLOW.replace("alice", "alicia"), "issuer": ACTIONS}),
        ("github:alice/tools", {"uri": WORKFLOW.replace("/tools", "/toolsx"), "issuer": ACTIONS}),
        ("github:alice/*", {"uri": WORKFLOW, "issuer": GITHUB}),
        ("github:alice/*", {"uri": WORKFLOW.replace("https", "http"), "issuer": ACTIONS}),
        # Whoever runs a tenant says which addresses its accounts have.
        (
            "alice@corp.test",
            {
                "email": "alice@corp.test",
                "issuer": f"https://login.microsoftonline.com/{'0' * 8}-{'0' * 27}/v2.0",
            },
        ),
    ],
)
def test_another_identity_or_issuer_does_not_count(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
    trusted: str,
    identity: dict[str, str],
) -> None:
    trust(trusted)
    endorse(registry, digest, auditor="alice@corp.test", **identity)
    assert_refused_everywhere(service, home)


@pytest.mark.parametrize("auditor", ["", "   ", "unknown", "gitlab:unknown", "someone@else.test"])
def test_what_the_registry_says_about_the_auditor_changes_nothing(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
    auditor: str,
) -> None:
    trust("github:alice")
    payload = statement(NAME, VERSION, signed_form(digest))
    registry.attest(NAME, VERSION, auditor, instance().sign(payload, uri=WORKFLOW, issuer=ACTIONS))
    registry.attest(NAME, VERSION, "github:alice", b'{"verified": true}')
    assert_refused_everywhere(service, home)


def test_an_expired_certificate_does_not_count(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
) -> None:
    trust("github:alice")
    endorse(registry, digest, email=ALICE, expired=True)
    assert_refused_everywhere(service, home)


def test_another_instances_signature_does_not_count(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
) -> None:
    trust("github:alice")
    payload = statement(NAME, VERSION, signed_form(digest))
    registry.attest(NAME, VERSION, "alice", PrivateSigstore().sign(payload, email=ALICE))
    assert_refused_everywhere(service, home)


def test_a_changed_payload_does_not_count(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
) -> None:
    trust("github:alice")
    import base64

    bundle = json.loads(instance().sign(statement("other/tool", VERSION, digest), email=ALICE))
    payload = statement(NAME, VERSION, signed_form(digest))
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    registry.attest(NAME, VERSION, "alice", json.dumps(bundle).encode())
    assert_refused_everywhere(service, home)


FOREIGN = {
    "another bundle": lambda d: statement(NAME, VERSION, signed_form("0" * 64)),
    "another tool": lambda d: statement("alice/tools/other", VERSION, signed_form(d)),
    "another version": lambda d: statement(NAME, "2.0.0", signed_form(d)),
    "another tool outside": lambda d: statement(
        NAME,
        VERSION,
        d,
        subjects=[{"name": f"alice/tools/other@{VERSION}", "digest": {"sha256": d}}],
    ),
    "another tool inside": lambda d: statement(
        NAME, VERSION, signed_form(d), tool={"name": "x/y", "version": VERSION}
    ),
    "two subjects": lambda d: statement(
        NAME,
        VERSION,
        d,
        subjects=[{"name": f"{NAME}@{VERSION}", "digest": {"sha256": d}}] * 2,
    ),
    "no subject": lambda d: statement(NAME, VERSION, d, subjects=[]),
    "another predicate": lambda d: statement(
        NAME, VERSION, signed_form(d), predicate_type="https://slsa.dev/provenance/v1"
    ),
    "another statement": lambda d: statement(NAME, VERSION, signed_form(d), type_="x"),
    "not JSON": lambda d: b"\xff\x00",
    "a list": lambda d: b"[]",
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_replayed_attestation_does_not_count(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
    case: str,
) -> None:
    trust("github:alice")
    registry.attest(NAME, VERSION, "alice", instance().sign(FOREIGN[case](digest), email=ALICE))
    assert_refused_everywhere(service, home)


def test_another_payload_type_does_not_count(digest: str) -> None:
    signed = Signed(None, "text/plain", statement(NAME, VERSION, digest))  # type: ignore[arg-type]
    with pytest.raises(AttestationRefused):
        verdict(signed, Subject(NAME, VERSION, digest))


def test_one_auditor_twice_is_one_auditor(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
) -> None:
    trust("github:alice", "github:bob", minimum_attestations=2)
    endorse(registry, digest, auditor="alice", email=ALICE)
    endorse(registry, digest, auditor="alice-again", email=ALICE)
    endorse(registry, digest, auditor="alice-once-more", email=ALICE)
    assert_refused_everywhere(service, home)
    endorse(registry, digest, auditor="bob", email="bob@users.noreply.github.com")
    assert_let_in(service)


SAME_PARTY = {
    "a login's two noreply addresses": (
        ["github:alice"],
        [{"email": ALICE}, {"email": "alice@users.noreply.github.com"}],
    ),
    "a login in other letters": (
        ["github:alice"],
        [{"email": ALICE}, {"email": ALICE.replace("alice", "Alice")}],
    ),
    "an address by two providers": (
        ["alice@corp.test"],
        [{"email": "alice@corp.test"}, {"email": "alice@corp.test", "issuer": GOOGLE}],
    ),
    "an address in other letters": (
        ["google:*@corp.test"],
        [{"email": f"{name}@corp.test", "issuer": GOOGLE} for name in ("alice", "Alice")],
    ),
    "a project's two branches": (
        ["github:alice/tools"],
        [{"uri": WORKFLOW, "issuer": ACTIONS}, {"uri": f"{WORKFLOW}2", "issuer": ACTIONS}],
    ),
    "a project's two workflows": (
        ["github:alice/*"],
        [
            {"uri": WORKFLOW, "issuer": ACTIONS},
            {"uri": WORKFLOW.replace("audit", "other"), "issuer": ACTIONS},
        ],
    ),
    "a GitLab project's two branches": (
        ["gitlab:group/area/tools"],
        [
            {"uri": f"https://gitlab.com/group/area/tools//ci.yml@{ref}", "issuer": GITLAB}
            for ref in ("main", "next")
        ],
    ),
}


@pytest.mark.parametrize("case", SAME_PARTY)
def test_one_auditor_under_two_identities_is_one_auditor(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
    case: str,
) -> None:
    trusted, identities = SAME_PARTY[case]
    trust(*trusted, "github:bob", minimum_attestations=2)
    for number, identity in enumerate(identities):
        endorse(registry, digest, auditor=f"row-{number}", **identity)
    assert_refused_everywhere(service, home)
    endorse(registry, digest, auditor="bob", email="bob@users.noreply.github.com")
    assert_let_in(service)


def test_a_receipt_that_names_one_auditor_twice_has_one(
    service: EnactService, registry: FakeRegistry, trust: Callable[..., None], digest: str
) -> None:
    trust("alice@corp.test")
    endorse(registry, digest, email="alice@corp.test")
    service.install(NAME)
    receipt = service.store._receipt_path(NAME, VERSION)
    text = receipt.read_text()
    row = json.loads(text)["trust"]["signers"][0]
    data = json.loads(text)
    data["trust"]["signers"] = [row, {**row, "issuer": GOOGLE}]
    receipt.write_text(json.dumps(data))
    assert service.run(NAME).exit_code == 0
    trust("alice@corp.test", minimum_attestations=2)
    with refused("TRUST_REFUSED"):
        service.run(NAME)


def test_rows_of_others_cannot_push_a_veto_out_of_sight(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
) -> None:
    trust("github:alice", "github:bob")
    endorse(registry, digest, auditor="alice", email=ALICE)
    for number in range(MOST_ATTESTATIONS):
        registry.attest(NAME, VERSION, f"junk-{number}", b"{}")
    report = statement(NAME, VERSION, "0" * 64, predicate_type=AUDIT, result="failed")
    bob = instance().sign(report, email="bob@users.noreply.github.com")
    registry.attest(NAME, VERSION, "bob", bob)
    assert_refused_everywhere(service, home)


VETOES: dict[str, dict[str, Any]] = {
    "two subjects": {"result": "failed", "subjects": [{"name": "x"}, {"name": "y"}]},
    "no subject": {"result": "failed", "subjects": []},
    "another subject": {"result": "failed", "subjects": [{"name": "x", "digest": {}}]},
    "a result nobody knows": {"result": "FAILED"},
    "no result": {},
}


@pytest.mark.parametrize("case", VETOES)
def test_an_audit_that_did_not_pass_is_a_veto_however_it_is_written(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
    case: str,
) -> None:
    trust("github:alice", "github:bob")
    endorse(registry, digest, auditor="alice", email=ALICE)
    report = statement(NAME, VERSION, signed_form(digest), predicate_type=AUDIT, **VETOES[case])
    bob = instance().sign(report, email="bob@users.noreply.github.com")
    registry.attest(NAME, VERSION, "bob", bob)
    assert_refused_everywhere(service, home, "TRUST_VETO")


@pytest.mark.parametrize("reported_digest", ["placeholder", "signed"])
@pytest.mark.parametrize("policy", ["require_attestation", "prompt", "allow"])
def test_a_failed_audit_beats_every_endorsement(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
    policy: str,
    reported_digest: str,
) -> None:
    trust("github:alice", "github:bob", policy=policy)
    endorse(registry, digest, auditor="alice", email=ALICE)
    about = signed_form(digest) if reported_digest == "signed" else "0" * 64
    report = statement(NAME, VERSION, about, predicate_type=AUDIT, result="failed")
    bob = instance().sign(report, email="bob@users.noreply.github.com")
    registry.attest(NAME, VERSION, "bob", bob)
    assert_refused_everywhere(service, home, "TRUST_VETO")


def test_a_failed_audit_by_a_stranger_is_no_veto(
    service: EnactService, registry: FakeRegistry, trust: Callable[..., None], digest: str
) -> None:
    trust("github:alice")
    endorse(registry, digest, auditor="alice", email=ALICE)
    report = statement(NAME, VERSION, "0" * 64, predicate_type=AUDIT, result="failed")
    registry.attest(NAME, VERSION, "m", instance().sign(report, email="m@evil.test"))
    assert_let_in(service)


@pytest.mark.parametrize("result", ["passed", "passed-with-warnings"])
def test_a_passed_audit_counts(
    service: EnactService,
    registry: FakeRegistry,
    trust: Callable[..., None],
    digest: str,
    result: str,
) -> None:
    trust("github:alice")
    audit = statement(NAME, VERSION, digest, predicate_type=AUDIT, result=result)
    registry.attest(NAME, VERSION, "alice", instance().sign(audit, email=ALICE))
    assert_let_in(service)


@pytest.mark.parametrize("where", ["attestations", "trust/attestations/alice"])
def test_attestations_that_cannot_be_had_are_not_taken_for_given(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
    where: str,
) -> None:
    trust("github:alice")
    endorse(registry, digest, email=ALICE)
    registry.lies[f"/tools/{NAME}/versions/{VERSION}/{where}"] = Lie(500, b"boom")
    assert_refused_everywhere(service, home)


@pytest.mark.parametrize(
    "policy", ["enforce", "", "REQUIRE_ATTESTATION", "none", 5, ["allow"], True]
)
def test_an_unknown_policy_is_never_read_as_allow(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
    policy: Any,
) -> None:
    trust("github:alice", policy=policy)
    endorse(registry, digest, email=ALICE)
    with refused("CONFIG_INVALID") as refusal:
        service.install(NAME)
    assert "policy" in refusal.error.message
    assert_refused_everywhere(service, home, "CONFIG_INVALID")
    assert service.search("csv").results


@pytest.mark.parametrize(
    "more",
    [
        {"minimum_attestations": "none"},
        {"minimum_attestations": -1},
        {"minimum_attestations": True},
        {"trusted_auditors": ["*"]},
        {"trusted_auditors": ["*@corp.test"]},
        {"trusted_auditors": ["github:*"]},
        {"trusted_auditors": ["myspace:alice"]},
        {"trusted_auditors": "github:alice"},
        {"trusted_root": "/nowhere/root.json"},
    ],
)
def test_a_trust_section_that_makes_no_sense_refuses_everything(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
    more: dict[str, Any],
) -> None:
    trust("github:alice", **more)
    endorse(registry, digest, email=ALICE)
    assert_refused_everywhere(service, home, "CONFIG_INVALID")


def test_broken_yaml_refuses_what_needs_it_and_nothing_else(
    service: EnactService, home: Path, work: Path
) -> None:
    path = configure(home)
    path.write_text("trust: [\n", encoding="utf-8")
    with refused("CONFIG_INVALID"):
        service.install("agentpack/csv/stats")
    found = service.search("csv")
    assert found.results[0].name == "agentpack/csv/stats"
    assert any("config.yaml" in warning for warning in found.warnings)
    assert path.read_text(encoding="utf-8") == "trust: [\n"


def test_allow_lets_unattested_tools_in_and_says_so(
    service: EnactService, registry: FakeRegistry, trust: Callable[..., None], digest: str
) -> None:
    trust(policy="allow")
    assert any("not attested" in warning for warning in service.install(NAME).warnings)


def test_a_tool_installed_under_allow_is_refused_once_the_policy_is_tightened(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
) -> None:
    trust(policy="allow")
    service.install(NAME)
    tool = service.projection().callables["alice__tools__hello"]
    assert service.call(tool, {}).exit_code == 0
    trust("github:alice")
    for act in (
        lambda: service.call(tool, {}),
        lambda: service.run(NAME),
        lambda: service.learn(NAME),
    ):
        with refused("TRUST_REFUSED"):
            act()


def test_a_hostile_repository_lowers_nothing(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
) -> None:
    trust("github:alice")
    project = home / "work" / ".enact"
    (project / "tools" / NAME / VERSION).mkdir(parents=True)
    (project / "tools" / NAME / VERSION / "enact.yaml").write_text(manifest(NAME))
    pins = {"tools": {NAME: VERSION, "agentpack/evil": "1.0.0", "../../x": "1.0.0"}}
    (project / "tools.json").write_text(json.dumps(pins))
    (project / "mcp.json").write_text(json.dumps({**pins, "activeToolset": None}))
    configure(home / "work", trust={"policy": "allow"}, execution={"default": "local"})
    assert_refused_everywhere(service, home)
    for pinned in service.upkeep.project_tools().tools:
        with pytest.raises(EnactError) as refusal:
            service.install(f"{pinned.name}@{pinned.version}", project=True)
        assert refusal.value.code in ("TRUST_REFUSED", "TOOL_NOT_FOUND", "INVALID_ARGUMENTS")
    assert service.projection().callables == {}
    assert json.loads((project / "tools.json").read_text()) == pins


def test_the_old_names_of_the_auditors_key_are_read_too(
    service: EnactService, registry: FakeRegistry, trust: Callable[..., None], digest: str
) -> None:
    trust(auditors=["github:alice"])
    endorse(registry, digest, email=ALICE)
    assert_let_in(service)


real = pytest.mark.skipif(
    not os.environ.get("SIGSTORE_BUNDLES"), reason="SIGSTORE_BUNDLES names no folder"
)
REAL = Path(os.environ.get("SIGSTORE_BUNDLES", "."))


def staging_root() -> Path:
    import sigstore

    return next(Path(sigstore.__file__).parent.glob("_store/*sigstage*/trusted_root.json"))


@real
def test_a_real_bundle_verifies_and_is_refused_for_another_artifact() -> None:
    raw = (REAL / "a.dsse.staging-rekor-v2.txt.sigstore.json").read_bytes()
    signed = AttestationVerifier(staging_root()).verify(raw)
    assert signed.signer.issuer == ACTIONS
    with pytest.raises(AttestationRefused):
        verdict(signed, Subject("a.txt", "1.0.0", "0" * 64))
    with pytest.raises(AttestationRefused):
        AttestationVerifier().verify(raw)


@real
def test_a_real_bundle_replayed_for_our_tool_opens_nothing(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    trust: Callable[..., None],
    digest: str,
) -> None:
    trust("github:sigstore-conformance/*", trusted_root=str(staging_root()))
    raw = (REAL / "a.dsse.staging-rekor-v2.txt.sigstore.json").read_bytes()
    registry.attest(NAME, VERSION, "x", raw)
    assert_refused_everywhere(service, home)


@real
@pytest.mark.parametrize("root", ["staging", "production"])
def test_no_other_real_bundle_is_an_attestation(root: str) -> None:
    verifier = AttestationVerifier(staging_root() if root == "staging" else None)
    others = [path for path in REAL.glob("*.sigstore*") if not path.name.startswith("a.dsse")]
    assert others
    for path in others:
        with pytest.raises(AttestationRefused):
            verifier.verify(path.read_bytes())
