"""Sigstore bundles: who signed what, verified offline; does not decide whom to trust."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fleet_agentpack.enact.trust.identity import Signer
from fleet_agentpack.kit.private import sigstore_trust_root

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

IN_TOTO = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
TOOL_PREDICATE = "https://enact.tools/attestation/tool/v1"
AUDIT_PREDICATE = "https://enact.tools/attestation/audit/v1"
PASSED = ("passed", "passed-with-warnings")
LARGEST_ATTESTATION = 1024 * 1024

_ISSUER_V2 = "1.3.6.1.4.1.57264.1.8"
_ISSUER = "1.3.6.1.4.1.57264.1.1"


class AttestationRefused(ValueError):
    """A bundle that proves nothing about the tool at hand; the message says why."""


class AttestationUnreadable(AttestationRefused):
    """Bytes that are no bundle at all: nobody can tell what they should have said."""


@dataclass(frozen=True)
class Subject:
    """What an attestation must be about."""

    name: str
    version: str
    digest: str  # sha256 of the bundle's bytes, in hex

    @property
    def label(self) -> str:
        """The tool and version, as errors name them."""
        return f"{self.name}@{self.version}"

    def digests(self) -> tuple[str, str]:
        """The digests that name this bundle: its own, and the original signer's form of it."""
        return self.digest, hashlib.sha256(f"sha256:{self.digest}".encode()).hexdigest()


@dataclass(frozen=True)
class Signed:
    """A payload whose signature, certificate and log entry have been verified."""

    signer: Signer
    payload_type: str
    payload: bytes


class AttestationVerifier:
    """Verifies bundles against one trust root; needs no network and writes nothing."""

    def __init__(self, trusted_root: Path | None = None) -> None:
        """Load the trust root. Raises `ValueError` or `OSError` when it cannot be used."""
        from sigstore.errors import Error
        from sigstore.models import TrustedRoot
        from sigstore.verify import Verifier

        path = trusted_root or sigstore_trust_root()
        if path is None:
            raise ValueError("the sigstore library has no trust root here; set trust.trusted_root")
        try:
            self._verifier = Verifier(trusted_root=TrustedRoot.from_file(str(path)))
        except Error as error:
            raise ValueError(str(error)) from error

    def verify(self, raw: bytes) -> Signed:
        """Check a bundle's signature, certificate chain and log entry.

        Raises `AttestationRefused`.
        """
        from sigstore.errors import Error
        from sigstore.models import Bundle

        capture = _SignerCapture()
        try:
            bundle = Bundle.from_json(raw)
        except Exception as error:  # hostile bytes reach parsers that raise anything
            raise AttestationUnreadable(f"not a Sigstore bundle: {error}") from error
        try:
            payload_type, payload = self._verifier.verify_dsse(bundle, capture)
        except Error as error:
            raise AttestationRefused(f"not a valid Sigstore bundle: {error}") from error
        except Exception as error:  # hostile bytes reach parsers that raise anything
            raise AttestationRefused(f"not a usable bundle ({type(error).__name__})") from error
        if capture.signer is None:
            raise AttestationRefused("the certificate names no signer")
        return Signed(capture.signer, payload_type, payload)


class _SignerCapture:
    """A Sigstore policy that reads the certificate's identity; the caller judges it."""

    signer: Signer | None = None

    def verify(self, cert: Certificate) -> None:
        from cryptography import x509
        from sigstore.errors import VerificationError

        try:
            names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound as error:
            raise VerificationError("the certificate has no subject alternative name") from error
        mails = names.get_values_for_type(x509.RFC822Name)
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        if len(names) != 1 or len(mails) + len(uris) != 1:
            raise VerificationError("the certificate must name exactly one e-mail or workflow")
        kind = "email" if mails else "uri"
        self.signer = Signer(_issuer_of(cert), (mails + uris)[0], kind)


def verdict(signed: Signed, subject: Subject) -> str:
    """What a verified statement says of this subject: `endorsed`, an audit's result, or `failed`.

    Raises `AttestationRefused` when it is about something else. A failed audit counts for every
    bundle of that version, since reports are filed under a placeholder subject; an audit whose
    result is unknown counts as failed.
    """
    statement = _statement(signed)
    predicate_type, predicate = statement.predicate_type, statement.predicate
    if predicate_type not in (TOOL_PREDICATE, AUDIT_PREDICATE):
        raise AttestationRefused("the statement has another predicate type")
    tool = predicate.get("tool") if isinstance(predicate, dict) else None
    if not isinstance(predicate, dict) or not isinstance(tool, dict):
        raise AttestationRefused("the statement names no tool")
    if (tool.get("name"), tool.get("version")) != (subject.name, subject.version):
        raise AttestationRefused("the statement is about another tool or version")
    result = "endorsed" if predicate_type == TOOL_PREDICATE else _audit_result(predicate)
    if result != "failed":
        _check_subject(statement.subject, subject)
    return result


def _check_subject(subjects: object, wanted: Subject) -> None:
    if not isinstance(subjects, list) or len(subjects) != 1 or not isinstance(subjects[0], dict):
        raise AttestationRefused("the statement must have exactly one subject")
    if subjects[0].get("name") != f"{wanted.name}@{wanted.version}":
        raise AttestationRefused("the statement is about another tool or version")
    digest = subjects[0].get("digest")
    found = digest.get("sha256") if isinstance(digest, dict) else None
    if found not in wanted.digests():
        raise AttestationRefused("the statement is about another bundle")


class _Statement(NamedTuple):
    predicate_type: object
    predicate: object
    subject: object


def _statement(signed: Signed) -> _Statement:
    if signed.payload_type != IN_TOTO:
        raise AttestationRefused("the payload is not an in-toto statement")
    try:
        statement = json.loads(signed.payload)
    except (ValueError, RecursionError) as error:
        raise AttestationRefused("the payload is not JSON") from error
    if not isinstance(statement, dict) or statement.get("_type") != STATEMENT:
        raise AttestationRefused("the payload is not an in-toto statement")
    return _Statement(*(statement.get(key) for key in ("predicateType", "predicate", "subject")))


def _audit_result(predicate: dict[str, Any]) -> str:
    audit = predicate.get("audit")
    result = audit.get("result") if isinstance(audit, dict) else None
    return str(result) if result in PASSED else "failed"


def _issuer_of(cert: Certificate) -> str:
    from cryptography import x509
    from sigstore.errors import VerificationError

    for oid, skip in ((_ISSUER_V2, 2), (_ISSUER, 0)):
        try:
            value = cert.extensions.get_extension_for_oid(x509.ObjectIdentifier(oid)).value
        except x509.ExtensionNotFound:
            continue
        raw = value.value if isinstance(value, x509.UnrecognizedExtension) else b""
        if skip and (len(raw) < skip or raw[0] != 0x0C or raw[1] != len(raw) - skip):
            raise VerificationError("the certificate's issuer is not a short UTF-8 string")
        return raw[skip:].decode()
    raise VerificationError("the certificate does not name the issuer of its identity")
