"""The trust decision: the user's policy and verified attestations, never a registry's claims."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleet_agentpack.enact.config import TrustConfig
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.receipt import Receipt
from fleet_agentpack.enact.registries.registry import Listed
from fleet_agentpack.enact.trust import attestations
from fleet_agentpack.enact.trust.accounts import KnownAccounts
from fleet_agentpack.enact.trust.attestations import AttestationVerifier, Subject
from fleet_agentpack.enact.trust.findings import Finding
from fleet_agentpack.enact.trust.identity import Signer
from fleet_agentpack.enact.trust.vetoes import KnownVetoes

Fetch = Callable[[], Sequence[Listed]]
PASSING = ("REGISTRY_UNAVAILABLE", "RATE_LIMITED")


class _UnreadError(Exception):
    """What is listed has to be read, whatever else is signed: it may be a veto."""

    def __init__(self, auditor: str, reason: str, trouble: EnactError | None = None) -> None:
        super().__init__(reason)
        self._auditor = auditor
        self.trouble = trouble  # of a registry that may answer another time

    def refusal(self, subject: Subject) -> EnactError:
        """The error for whoever wanted the tool."""
        return EnactError.attestation_unreadable(subject.label, self._auditor, str(self))


@dataclass(frozen=True)
class Trusted:
    """Why a tool was accepted; recorded in its receipt."""

    policy: str  # the policy that accepted it, or `builtin`
    signers: tuple[Signer, ...] = ()
    warnings: tuple[str, ...] = ()


class TrustPolicy:
    """Accepts a tool, or refuses it with a reason."""

    def __init__(self, config_path: Path, accounts: KnownAccounts, vetoes: KnownVetoes) -> None:
        self._config_path = config_path
        self._accounts = accounts
        self._vetoes = vetoes
        self._verifiers: dict[Path | None, AttestationVerifier] = {}

    def decide(self, subject: Subject, config: TrustConfig, fetch: Fetch) -> Trusted:
        """Judge a bundle by its attestations. Raises `EnactError` when it is not trusted."""
        self._check_vetoes(subject.label, config)
        if not config.auditors:
            return self._conclude(subject, config, (), [])
        try:
            listed = fetch()
        except EnactError as error:
            if config.requires_attestations and config.minimum > 0:
                why = f"its attestations could not be fetched ({error.message})"
                raise self._refused(subject, config, why, 0) from error
            return Trusted(config.policy, (), (f"attestations were not checked: {error.message}",))
        try:
            signers, notes = self._weigh(subject, config, listed)
        except _UnreadError as unread:
            raise unread.refusal(subject) from unread
        return self._conclude(subject, config, signers, notes)

    def look_again(self, subject: Subject, config: TrustConfig, fetch: Fetch) -> Finding:
        """What the attestations of an installed bundle say now; a veto is remembered.

        Raises `EnactError` when the registry does not tell.
        """
        found = Finding(subject.digest, time.time(), _texts(config))
        try:
            signers, _ = self._weigh(subject, config, fetch() if config.auditors else ())
        except _UnreadError as unread:
            if unread.trouble:
                raise unread.trouble from unread
            return replace(found, unreadable=unread.refusal(subject).message)
        except EnactError as error:
            if error.code != "TRUST_VETO":
                raise
            return found
        return replace(found, signers=signers)

    def recheck(self, receipt: Receipt, finding: Finding | None, config: TrustConfig) -> None:
        """Check an installed tool against today's policy and what was last heard of it.

        Raises `EnactError`.
        """
        subject = Subject(receipt.name, receipt.version, receipt.digest)
        self._check_vetoes(subject.label, config)
        signers, why = receipt.signers, "it was installed under a different trust policy"
        if finding:
            if finding.withdrawn:
                raise EnactError.withdrawn_since(subject.name, subject.version, finding.withdrawn)
            if finding.auditors == _texts(config) and config.auditors:
                signers, why = finding.signers, "its attestations were withdrawn"
                if finding.unreadable:
                    raise EnactError.untrusted_since(subject.label, finding.unreadable)
        if not config.requires_attestations or config.minimum == 0:
            return
        trusted = {each.party for each in signers if _trusts(config, each)}
        if len(trusted) < config.minimum:
            raise self._refused(subject, config, why, len(trusted))

    def check_image(self, name: str, image: str | None, config: TrustConfig) -> None:
        """Refuse an image that no audit can have covered. Raises `EnactError`."""
        audited = config.requires_attestations and config.minimum > 0
        if audited and image and "@sha256:" not in image:
            reason = f"its image {image} is named by a tag, which can be moved after an audit"
            raise EnactError.image_unpinned(name, reason)

    def _check_vetoes(self, label: str, config: TrustConfig) -> None:
        """Refuse what a trusted auditor was once seen to report. Raises `EnactError`."""
        for signer in self._vetoes.of(label) if config.auditors else ():
            if _trusts(config, signer):
                raise EnactError.vetoed(label, signer.identity)

    def _weigh(
        self, subject: Subject, config: TrustConfig, listed: Sequence[Listed]
    ) -> tuple[tuple[Signer, ...], list[str]]:
        """Who endorses it, and what else there is.

        Raises `EnactError` for a veto, `_UnreadError` when nobody can tell.
        """
        verifier = self._verifier(config.trusted_root)
        endorsing: dict[str, Signer] = {}
        accounts: dict[str, set[str]] = {}
        notes: list[str] = []
        for each in listed:
            try:
                signed = verifier.verify(_content(each))
                if not _trusts(config, signed.signer):
                    notes.append(f"signed by {signed.signer}, who is not in trusted_auditors")
                    continue
                if (known := self._accounts.other(signed.signer)) is not None:
                    notes.append(f"signed by {signed.signer}, whose login was account {known}")
                    continue
                result = attestations.verdict(signed, subject)
            except attestations.AttestationUnreadable as error:
                raise _UnreadError(each.auditor, str(error)) from error
            except attestations.AttestationRefused as refused:
                notes.append(str(refused))
                continue
            if result == "failed":
                self._vetoes.remember(subject.label, signed.signer)
                raise EnactError.vetoed(subject.label, signed.signer.identity)
            endorsing.setdefault(signed.signer.party, signed.signer)
            accounts.setdefault(signed.signer.party, set()).add(signed.signer.account)
        for party in [party for party, found in accounts.items() if len(found - {""}) > 1]:
            # Nobody can tell which of them is meant: a login can be given away.
            del endorsing[party]
            notes.append(f"signed by two accounts called {party}; trust one by its address")
        return tuple(endorsing.values()), notes

    def _conclude(
        self, subject: Subject, config: TrustConfig, signers: tuple[Signer, ...], notes: list[str]
    ) -> Trusted:
        if len(signers) >= config.minimum:
            self._accounts.remember(signers)
            return Trusted(config.policy, signers)
        if config.requires_attestations:
            none_counts = "none of its attestations is accepted"
            why = none_counts if notes else "it has no attestation by anyone you trust"
            raise self._refused(subject, config, why, len(signers), notes)
        warning = f"{subject.label} is not attested by anyone you trust"
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
            subject.label,
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


def _content(listed: Listed) -> bytes:
    try:
        return listed.read()
    except EnactError as error:
        passing = error.code in PASSING or error.details.get("status", 0) >= 500
        raise _UnreadError(listed.auditor, error.message, error if passing else None) from error


def _texts(config: TrustConfig) -> tuple[str, ...]:
    return tuple(auditor.text for auditor in config.auditors)


def _trusts(config: TrustConfig, signer: Signer) -> bool:
    return any(auditor.matches(signer) for auditor in config.auditors)
