"""Finds values that look like secrets; they are named by their place and never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

# The forms in which well-known services give out their tokens.
_SHAPES = re.compile(
    r"\bsk-[A-Za-z0-9_-]{20,}|\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|\bwhsec_[A-Za-z0-9+/]{24,}"
    r"|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}|\bxapp-[0-9]-[A-Za-z0-9-]{20,}"
    r"|\bA[KS]IA[0-9A-Z]{16}\b|AIza[0-9A-Za-z_-]{35}|\bya29\.[0-9A-Za-z_-]{20,}"
    r"|\bnpm_[A-Za-z0-9]{36}|\bpypi-[A-Za-z0-9_-]{50,}|\bhf_[A-Za-z0-9]{30,}|\bgsk_[A-Za-z0-9]{30,}"
    r"|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|\blin_api_[A-Za-z0-9]{30,}|\bxai-[A-Za-z0-9]{30,}"
    r"|\bdop_v1_[0-9a-f]{60,}|\bntn_[A-Za-z0-9]{30,}|\bsbp_[0-9a-f]{36,}|\bATATT3[A-Za-z0-9_=-]{50,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_NAME = r"(?:token|secret|passw(?:or)?d|passwd|passphrase|api[_-]?key|access[_-]?key|credential)"
# `name = value` in a text; the value must look made up by a machine, or by a careful person.
_ASSIGNED = re.compile(
    rf"""(?i:\b[\w.-]*{_NAME}[\w-]*)["']?[ \t]*[:=][ \t]*(?P<quote>["']?)"""
    r"""(?P<value>[A-Za-z0-9+/=_.!@%^&*~-]{12,})(?P=quote)(?=[\s,;]|\Z)"""
)
_BEARER = re.compile(r"(?i:\bbearer\s+)(?P<value>[A-Za-z0-9+/=_.~-]{12,})")
_IN_URL = re.compile(
    rf"""://[^\s/:@"']+:(?P<password>[^\s/@"']+)@|[?&](?i:{_NAME}|key)=(?P<value>[^\s&"'#]+)"""
)
_TELLING = re.compile(rf"{_NAME}|authorization|\bpass\b|\bkey\b|_key\Z|_pass\Z", re.IGNORECASE)
_REFERENCE = re.compile(
    r"\$\{?[A-Za-z_]|\$\(|\{\{|%[A-Za-z_]+%|<[^>]*>|\*{3}|x{4}|\.\.\.|your|example|placeholder"
    r"|change-?me|redacted|dummy|sample",
    re.IGNORECASE,
)
# Keys whose values are the names of variables, as Codex has them.
_OF_VARIABLES = re.compile(r"(?:\A|_)env_(?:keys?|vars?|http_headers)\Z", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# What a server is given; long values that look random are named, whatever their key.
_HANDED_ON = frozenset({"env", "headers", "http_headers"})
_RANDOM = re.compile(
    r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9][A-Za-z0-9_+/=.-]{19,}\Z|[0-9a-f]{32,}\Z"
)
_PLAIN_WORDS = re.compile(r"[A-Za-z]+(?:[._-][A-Za-z]+)*[0-9]{0,4}\Z|[a-z]+(?:_[a-z0-9]+)+\Z")
_PATH = re.compile(r"(?:~|\.{1,2})?/")
_FLAG = re.compile(r"--?[A-Za-z][\w-]*\Z")
_SECRET_FILES = (
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".netrc",
    ".pgpass",
    "credentials.json",
    "*[._-]credentials.json",
    "*oauth[_-]creds.json",
    "*oauth-tokens.json",
)
_TEMPLATES = (".example", ".sample", ".template", ".dist", ".tpl")


def is_secret_file(name: str) -> bool:
    """Whether a file of this name is there to hold secrets."""
    templates = name.endswith(_TEMPLATES)
    return not templates and any(fnmatchcase(name, pattern) for pattern in _SECRET_FILES)


def secret_lines(text: str) -> list[int]:
    """The lines of a text that contain what looks like a secret."""
    found = {text.count("\n", 0, start) + 1 for start, _ in _secrets_in(text)}
    return sorted(found)


def adds_secret(before: bytes, after: bytes) -> bool:
    """Whether a new text contains what looks like a secret and was not in the old one."""
    old, new = (each.decode("utf-8", "replace") for each in (before, after))
    return any(value not in old for _, value in _secrets_in(new))


def secret_keys(data: object, place: tuple[str, ...] = ()) -> Iterator[str]:
    """The dotted places in a configuration whose values look like secrets."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from secret_keys(value, (*place, str(key)))
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes):
        before = ""
        for number, value in enumerate(data):
            if isinstance(value, str) and _FLAG.match(before) and _is_secret(before, value):
                yield ".".join((*place, str(number)))
            else:
                yield from secret_keys(value, (*place, str(number)))
            before = value if isinstance(value, str) else ""
    elif isinstance(data, str) and place and _is_secret_at(place, data):
        yield ".".join(place)


def _is_secret_at(place: tuple[str, ...], value: str) -> bool:
    names_a_variable = any(map(_OF_VARIABLES.search, place[-2:])) and _VARIABLE.match(value)
    if names_a_variable:
        return _is_secret("", value)
    is_handed_on = not _HANDED_ON.isdisjoint(place[-2:-1])
    return _is_secret(place[-1], value) or (is_handed_on and bool(_RANDOM.match(value)))


def _secrets_in(text: str) -> Iterator[tuple[int, str]]:
    """What looks like a secret in a text, and where it starts."""
    for match in _SHAPES.finditer(text):
        yield match.start(), match[0]
    for pattern in (_ASSIGNED, _BEARER):
        for match in pattern.finditer(text):
            if _is_made_up(match["value"]):
                yield match.start("value"), match["value"]
    for match in _IN_URL.finditer(text):
        value = match["password"] or match["value"]
        if _is_made_up(value):
            yield match.start(), value


def _is_made_up(value: str) -> bool:
    """Whether a value is neither words, nor a name in a program, nor a place for a value."""
    mixed = re.search(r"[0-9]", value) and re.search(r"[A-Za-z]", value)
    named = _REFERENCE.search(value) or _PLAIN_WORDS.match(value) or _PATH.match(value)
    return bool(mixed) and not named


def _is_secret(key: str, value: str) -> bool:
    if any(True for _ in _secrets_in(value)):
        return True
    stated = _REFERENCE.search(value) or _PATH.match(value)
    literal = len(value) >= 8 and not stated and " " not in value.strip()
    bearer = value.lower().startswith("bearer ") and not _REFERENCE.search(value[7:])
    return bearer or (literal and _TELLING.search(key) is not None)
