"""The trust decision: the user's policy and verified attestations, never a registry's claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.enact.config import TrustConfig
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.trust import attestations
from fleet_agentpack.enact.trust.attestations import AttestationVerifier, Subject
from fleet_agentpack.enact.trust.identity import Signer


@dataclass(frozen=True)
class Trusted:
    """Why a tool was accepted; recorded in its receipt."""

    policy: str  # the policy that accepted it, or `builtin`
    signers: tuple[Signer, ...] = ()
    warnings: tuple[str, ...] = ()


class TrustPolicy:
    """Accepts a tool, or refuses it with a reason."""

    def __init__(self, config_path: Path) -> None:
        self._config_path = config_path
        self._verifiers: dict[Path | None, AttestationVerifier] = {}

    def decide(
        self, subject: Subject, config: TrustConfig, fetch: Callable[[], Iterable[bytes]]
    ) -> Trusted:
        """Judge a bundle by its attestations. Raises `EnactError` when it is not trusted."""
        if not config.auditors:
            return self._conclude(subject, config, (), [])
        try:
            bundles = list(fetch())
        except EnactError as error:
            if config.requires_attestations and config.minimum > 0:
                why = f"its attestations could not be fetched ({error.message})"
                raise self._refused(subject, config, why, 0) from error
            return Trusted(config.policy, (), (f"attestations were not checked: {error.message}",))
        signers, notes = self._weigh(subject, config, bundles)
        return self._conclude(subject, config, signers, notes)

    def recheck(self, name: str, version: str, record: object, config: TrustConfig) -> None:
        """Check an installed tool's receipt against today's policy. Raises `EnactError`."""
        if not config.requires_attestations or config.minimum == 0:
            return
        trusted = {each.party for each in _signers(record) if _trusts(config, each)}
        if len(trusted) < config.minimum:
            why = "it was installed under a different trust policy"
            raise self._refused(Subject(name, version, ""), config, why, len(trusted))

    def _weigh(
        self, subject: Subject, config: TrustConfig, bundles: list[bytes]
    ) -> tuple[tuple[Signer, ...], list[str]]:
        verifier = self._verifier(config.trusted_root)
        endorsing: dict[str, Signer] = {}
        notes: list[str] = []
        for raw in bundles:
            try:
                signed = verifier.verify(raw)
                if not _trusts(config, signed.signer):
                    notes.append(f"signed by {signed.signer}, who is not in trusted_auditors")
                    continue
                result = attestations.verdict(signed, subject)
            except attestations.AttestationRefused as refused:
                notes.append(str(refused))
                continue
            if result == "failed":
                raise EnactError.vetoed(f"{subject.name}@{subject.version}", signed.signer.identity)
            endorsing.setdefault(signed.signer.party, signed.signer)
        return tuple(endorsing.values()), notes

    def _conclude(
        self, subject: Subject, config: TrustConfig, signers: tuple[Signer, ...], notes: list[str]
    ) -> Trusted:
        if len(signers) >= config.minimum:
            return Trusted(config.policy, signers)
        if config.requires_attestations:
            none_counts = "none of its attestations is accepted"
            why = none_counts if notes else "it has no attestation by anyone you trust"
            raise self._refused(subject, config, why, len(signers), notes)
        warning = f"{subject.name}@{subject.version} is not attested by anyone you trust"
        return Trusted(config.policy, signers, (warning,))

    def _refused(
        self,
        subject: Subject,
        config: TrustConfig,
        reason: str,
        found: int,
        notes: Iterable[str] = (),
    ) -> EnactError:
        return EnactError.trust_refused(
            f"{subject.name}@{subject.version}",
            f"{reason}; {config.policy} requires {config.minimum}, found {found}",
            self._config_path,
            policy=config.policy,
            minimum_attestations=config.minimum,
            found=found,
            attestations=[note[:300] for note in notes][:20],
        )

    def _verifier(self, root: Path | None) -> AttestationVerifier:
        if root not in self._verifiers:
            try:
                self._verifiers[root] = AttestationVerifier(root)
            except (OSError, ValueError) as error:
                why = f"trust.trusted_root cannot be used: {error}"
                raise EnactError.config_invalid(self._config_path, why) from error
            except ImportError as error:
                why = "the sigstore library is missing: pip install sigstore"
                raise EnactError.config_invalid(self._config_path, why) from error
        return self._verifiers[root]


def _trusts(config: TrustConfig, signer: Signer) -> bool:
    return any(auditor.matches(signer) for auditor in config.auditors)


def _signers(record: object) -> list[Signer]:
    """The signers that a receipt names; a receipt that cannot be read names nobody."""
    rows = record.get("signers") if isinstance(record, dict) else None
    return [
        Signer(str(row.get("issuer")), str(row.get("identity")), str(row.get("kind")))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict)
    ]
