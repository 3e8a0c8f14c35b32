"""A private Sigstore instance: a CA, a certificate log and a transparency log, all in memory.

It signs what the tests need and the public instance never would: expired certificates, foreign
subjects, failed audits. The bundles are whole: `sigstore` verifies them like any other.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

GITHUB = "https://github.com/login/oauth"
ACTIONS = "https://token.actions.githubusercontent.com"
GOOGLE = "https://accounts.google.com"
TOOL = "https://enact.tools/attestation/tool/v1"
AUDIT = "https://enact.tools/attestation/audit/v1"
SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
ISSUER = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
ISSUER_V2 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")


def statement(
    name: str,
    version: str,
    digest: str,
    *,
    predicate_type: str = TOOL,
    result: str | None = None,
    subjects: list[dict[str, Any]] | None = None,
    tool: dict[str, Any] | None = None,
    type_: str = "https://in-toto.io/Statement/v1",
) -> bytes:
    """An in-toto statement about a tool, as the original's signer writes it."""
    predicate: dict[str, Any] = {"type": predicate_type}
    predicate["tool"] = tool or {"name": name, "version": version, "publisher": "p"}
    if result:
        predicate["audit"] = {"auditor": "unknown", "timestamp": "t", "result": result}
    subject = {"name": f"{name}@{version}", "digest": {"sha256": digest}}
    return json.dumps(
        {
            "_type": type_,
            "subject": [subject] if subjects is None else subjects,
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    ).encode()


def signed_form(digest: str) -> str:
    """The digest that the original's signer puts into a statement."""
    return hashlib.sha256(f"sha256:{digest}".encode()).hexdigest()


class PrivateSigstore:
    """One instance with keys of its own."""

    def __init__(self) -> None:
        self._ca, self._ct, self._log = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        self._root = self._make_root()

    def write_trusted_root(self, path: Path) -> Path:
        """The trust root in the form that `sigstore` reads."""
        path.write_text(json.dumps(self._trusted_root()), encoding="utf-8")
        return path

    def sign(
        self,
        payload: bytes,
        *,
        email: str | None = None,
        uri: str | None = None,
        issuer: str = GITHUB,
        payload_type: str = "application/vnd.in-toto+json",
        expired: bool = False,
    ) -> bytes:
        """A bundle over a payload; an expired one was signed after its certificate had ended."""
        now = datetime.now(UTC).replace(microsecond=0)
        valid_from = now - timedelta(hours=2) if expired else now - timedelta(minutes=5)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(key, email, uri, issuer, valid_from)
        pae = b"DSSEv1 %d %s %d %s" % (
            len(payload_type),
            payload_type.encode(),
            len(payload),
            payload,
        )
        signature = key.sign(pae, ec.ECDSA(hashes.SHA256()))
        body = _log_body(payload, signature, certificate)
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
                "verificationMaterial": {
                    "certificate": {"rawBytes": _b64(certificate.public_bytes(Encoding.DER))},
                    "tlogEntries": [self._log_entry(body, int(now.timestamp()))],
                },
                "dsseEnvelope": {
                    "payload": _b64(payload),
                    "payloadType": payload_type,
                    "signatures": [{"sig": _b64(signature)}],
                },
            }
        ).encode()

    def _make_root(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "private")])
        now = datetime.now(UTC)
        public = self._ca.public_key()
        usage = _usage(key_cert_sign=True, crl_sign=True)
        return (
            x509.CertificateBuilder(name, name, public, x509.random_serial_number())
            .not_valid_before(now - timedelta(days=365))
            .not_valid_after(now + timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._ca, hashes.SHA256())
        )

    def _certificate(
        self,
        key: ec.EllipticCurvePrivateKey,
        email: str | None,
        uri: str | None,
        issuer: str,
        valid_from: datetime,
    ) -> x509.Certificate:
        name = x509.UniformResourceIdentifier(uri) if uri else x509.RFC822Name(email or "")
        encoded = issuer.encode()
        builder = (
            x509.CertificateBuilder(
                self._root.subject, x509.Name([]), key.public_key(), x509.random_serial_number()
            )
            .not_valid_before(valid_from)
            .not_valid_after(valid_from + timedelta(minutes=10))
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.UnrecognizedExtension(ISSUER, encoded), critical=False)
            .add_extension(
                x509.UnrecognizedExtension(ISSUER_V2, bytes([0x0C, len(encoded)]) + encoded),
                critical=False,
            )
        )
        before = builder.sign(self._ca, hashes.SHA256())
        listed = self._sct_list(before, valid_from)
        extension = x509.UnrecognizedExtension(SCT_LIST, _octets(listed))
        return builder.add_extension(extension, critical=False).sign(self._ca, hashes.SHA256())

    def _sct_list(self, certificate: x509.Certificate, at: datetime) -> bytes:
        stamp = int(at.timestamp() * 1000)
        tbs = certificate.tbs_certificate_bytes
        entry = _key_id(self._ca) + len(tbs).to_bytes(3, "big") + tbs
        signed = struct.pack("!BBQH", 0, 0, stamp, 1) + entry + struct.pack("!H", 0)
        signature = self._ct.sign(signed, ec.ECDSA(hashes.SHA256()))
        sct = b"\0" + _key_id(self._ct) + struct.pack("!QH", stamp, 0)
        sct += bytes([4, 3]) + struct.pack("!H", len(signature)) + signature
        one = struct.pack("!H", len(sct)) + sct
        return struct.pack("!H", len(one)) + one

    def _log_entry(self, body: bytes, at: int) -> dict[str, Any]:
        log_id = _key_id(self._log)
        root = hashlib.sha256(b"\0" + body).digest()
        note = f"log.private - 1\n1\n{_b64(root)}\n"
        signature = self._log.sign(note.encode(), ec.ECDSA(hashes.SHA256()))
        checkpoint = f"{note}\n— log.private {_b64(log_id[:4] + signature)}\n"
        promise = rfc8785.dumps(
            {"body": _b64(body), "integratedTime": at, "logID": log_id.hex(), "logIndex": 0}
        )
        return {
            "logIndex": "0",
            "logId": {"keyId": _b64(log_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(at),
            "inclusionPromise": {
                "signedEntryTimestamp": _b64(self._log.sign(promise, ec.ECDSA(hashes.SHA256())))
            },
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": _b64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": checkpoint},
            },
            "canonicalizedBody": _b64(body),
        }

    def _trusted_root(self) -> dict[str, Any]:
        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            return {
                "baseUrl": "https://log.private.test",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": _b64(_spki(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": "2020-01-01T00:00:00Z"},
                },
                "logId": {"keyId": _b64(_key_id(key))},
            }

        authority = {
            "subject": {"organization": "private", "commonName": "private"},
            "uri": "https://ca.private.test",
            "certChain": {
                "certificates": [{"rawBytes": _b64(self._root.public_bytes(Encoding.DER))}]
            },
            "validFor": {"start": "2020-01-01T00:00:00Z"},
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self._log)],
            "certificateAuthorities": [authority],
            "ctlogs": [log(self._ct)],
            "timestampAuthorities": [],
        }


@cache
def instance() -> PrivateSigstore:
    """The instance that the tests share."""
    return PrivateSigstore()


def _log_body(payload: bytes, signature: bytes, certificate: x509.Certificate) -> bytes:
    pem = certificate.public_bytes(Encoding.PEM)
    return rfc8785.dumps(
        {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": "0" * 64},
                "payloadHash": {
                    "algorithm": "sha256",
                    "value": hashlib.sha256(payload).hexdigest(),
                },
                "signatures": [{"signature": _b64(signature), "verifier": _b64(pem)}],
            },
        }
    )


def _usage(**wanted: bool) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment")
    more = ("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{name: wanted.get(name, False) for name in (*names, *more)})


def _octets(content: bytes) -> bytes:
    size = len(content)
    head = bytes([size]) if size < 128 else bytes([0x81, size])
    return b"\x04" + head + content


def _spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_spki(key)).digest()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
