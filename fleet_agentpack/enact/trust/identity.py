"""Auditors as users write them (`github:alice`), matched against verified certificates only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

GITHUB_LOGIN = "https://github.com/login/oauth"
GITHUB_ACTIONS = "https://token.actions.githubusercontent.com"
GITLAB = "https://gitlab.com"
GOOGLE = "https://accounts.google.com"
MICROSOFT = "https://login.microsoftonline.com"

# Which issuers vouch for an e-mail address, and which for a workflow, per provider.
_MAIL_ISSUERS = {"github": GITHUB_LOGIN, "google": GOOGLE, "microsoft": MICROSOFT}
_WORKFLOWS = {
    "github": (GITHUB_ACTIONS, "https://github.com/"),
    "gitlab": (GITLAB, "https://gitlab.com/"),
}
NOBODY = "nobody"  # as a signer to accept: no trusted auditor has signed
PROVIDERS = tuple(dict.fromkeys([*_MAIL_ISSUERS, *_WORKFLOWS]))

_MAIL = re.compile(r"[^@\s*:/]+@[^@\s*:/]+\Z")
_MAIL_DOMAIN = re.compile(r"\*@([^@\s*:/]+)\Z")
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})\Z")
_PROJECT = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*\Z")
_NAMED_MAIL = re.compile(r"([A-Za-z0-9-]{1,39}) <([^@\s*:/<>]+@[^@\s*:/<>]+)>\Z")
_ACCOUNT = re.compile(r"(\d+)\+[A-Za-z0-9-]+@users\.noreply\.github\.com\Z")
_NOREPLY = re.compile(r"(?:\d+\+)?([A-Za-z0-9-]+)@users\.noreply\.github\.com\Z")


class AuditorError(ValueError):
    """An entry of trusted_auditors that cannot be used."""


@dataclass(frozen=True)
class Signer:
    """Who signed, as a verified certificate says."""

    issuer: str
    identity: str
    kind: str  # `email` or `uri`

    @classmethod
    def from_json(cls, row: Mapping[str, object]) -> Signer:
        """A signer as a receipt has it."""
        return cls(str(row.get("issuer")), str(row.get("identity")), str(row.get("kind")))

    def __str__(self) -> str:
        return f"{self.identity} (by {self.issuer})"

    @property
    def account(self) -> str:
        """The number of a GitHub account, where a noreply address has it."""
        found = _ACCOUNT.match(self.identity) if self.issuer == GITHUB_LOGIN else None
        return found[1] if found else ""

    @property
    def party(self) -> str:
        """Who counts as one auditor: a person or a project, however it signs.

        A login has several noreply addresses, an address several providers, and a project a
        workflow for every file and branch; none of them may count twice.
        """
        if self.kind == "email":
            login = _NOREPLY.match(self.identity)
            return f"github:{login[1]}".lower() if login else self.identity.lower()
        place = self.identity.partition("://")[2].partition("//")[0]
        return "/".join(place.split("/")[:3]).lower() if self.issuer == GITHUB_ACTIONS else place


@dataclass(frozen=True)
class Auditor:
    """One entry of `trusted_auditors`; matched without regard to what a registry says."""

    text: str
    provider: str | None  # None: any provider that vouches for e-mail addresses
    pattern: str

    @classmethod
    def parse(cls, text: str) -> Auditor:
        """Read an entry. Raises `AuditorError`."""
        provider, colon, pattern = text.strip().partition(":")
        if provider == "github" and (named := _NAMED_MAIL.match(pattern)):
            return cls(text, provider, named[2])
        known = ", ".join(PROVIDERS)
        if not colon:
            if _MAIL.match(text.strip()):
                return cls(text, None, text.strip())
            form = f"an e-mail address nor provider:name (providers: {known})"
            problem = f"is neither {form}; wildcards need their provider"
        elif provider not in PROVIDERS:
            problem = f"has an unknown provider; choose one of {known}"
        elif not _acceptable(provider, pattern):
            problem = "is not a name, an e-mail address, *@domain or owner/* of that provider"
        else:
            return cls(text, provider, pattern)
        raise AuditorError(f"trusted_auditors: {text!r} {problem}")

    def matches(self, signer: Signer) -> bool:
        """Whether this entry names a verified signer."""
        if signer.kind == "email":
            return self._matches_mail(signer)
        return signer.kind == "uri" and self._matches_workflow(signer)

    def _matches_mail(self, signer: Signer) -> bool:
        provider = _mail_provider(signer.issuer)
        if provider is None or self.provider not in (None, provider):
            return False
        domain = _MAIL_DOMAIN.match(self.pattern)
        if domain:
            return signer.identity.rpartition("@")[2].lower() == domain[1].lower()
        if "@" in self.pattern:
            return signer.identity == self.pattern
        login = _NOREPLY.match(signer.identity)
        return provider == "github" and bool(login and login[1].lower() == self.pattern.lower())

    def _matches_workflow(self, signer: Signer) -> bool:
        issuer, prefix = _WORKFLOWS.get(self.provider or "", ("", ""))
        if not issuer or signer.issuer != issuer or "/" not in self.pattern:
            return False
        if not signer.identity.startswith(prefix):
            return False
        project = signer.identity.removeprefix(prefix)
        if self.pattern.endswith("/*"):
            return project.startswith(self.pattern[:-1])
        return project == self.pattern or project.startswith(self.pattern + "/")


def _acceptable(provider: str, pattern: str) -> bool:
    if _MAIL.match(pattern) or _MAIL_DOMAIN.match(pattern):
        return provider in _MAIL_ISSUERS
    if provider == "github" and _LOGIN.match(pattern):
        return True
    project = pattern[:-2] if pattern.endswith("/*") else pattern
    if provider not in _WORKFLOWS or not _PROJECT.match(project) or ".." in project:
        return False
    return pattern.endswith("/*") or "/" in pattern


def _mail_provider(issuer: str) -> str | None:
    return next((name for name, known in _MAIL_ISSUERS.items() if known == issuer), None)
