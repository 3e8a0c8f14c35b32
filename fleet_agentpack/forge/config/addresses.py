"""Addresses from outside: judged before anything goes there, and shown without their secrets."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from fleet_agentpack.kit.paths import EscapeError, check_relative
from fleet_agentpack.kit.proxies import is_loopback

MASK = "***"

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_KEY = re.compile(
    r"(?:.*_)?(?:token|secret|password|passwd|passphrase|pwd|(?:api|access|private|signing)_?key"
    r"|authorization|credentials?|cookie)\Z"
)
_SHORTEST_SECRET = 4  # shorter values would blank out ordinary words
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_PARAMETER = re.compile(r"([^&=]*)=([^&]*)")
_SECRET_PARAMETERS = ("sig", "signature", "key", "code", "auth", "jwt", "session", "state")
# A word, a number or a version; not letters and digits in a row as long as a key.
_PLAIN_VALUE = re.compile(r"(?:[A-Za-z]{0,40}|[0-9]{0,12}|[\w./-]{0,15})\Z", re.ASCII)
_SCHEME = re.compile(r"(\bBearer|^\s*(?:bearer|Basic|basic))\s+\S+")
_HEADER = re.compile(r"\s*-{0,2}([A-Za-z][\w-]*)\s*[:=]\s*(?=\S)")  # also `--token=…`

GITHUB = "https://github.com"
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]*\Z")
_OWNER_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.-]+\Z")
_SCP = re.compile(
    r"(?P<user>[A-Za-z0-9_.-]+)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^:-][^:]*)\Z"
)
_CHECKSUM = re.compile(r"sha256[:-]([0-9a-f]{64})\Z", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a key or a variable is named like a secret; `token_env` only names a variable."""
    plain = _WORD_START.sub("_", name).lower().replace("-", "_")
    return bool(_SECRET_KEY.match(plain))


def masked(value: object, secrets: Collection[str] = (), key: str = "") -> object:
    """A copy without secrets: by the key's name, by known value, and inside URLs and headers."""
    if isinstance(value, Mapping):
        pair = _named_by(value)
        return {
            name: masked(item, secrets, _closest(key, pair if name == "value" else str(name)))
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [masked(item, secrets, key) for item in value]
    if value is None or value == "":
        return value
    if is_secret_name(key):
        return MASK
    if not isinstance(value, str):
        return value
    # `max_tokens` is a number; `tokens` of text are what they are called
    return MASK if is_secret_name(key.removesuffix("s")) else _masked_text(value, secrets)


def masked_url(url: str) -> str:
    """A URL without its user and password and without the secrets in its query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    if not parts.scheme or not ("@" in parts.netloc or parts.query or parts.fragment):
        return url
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{MASK}@{host}" if "@" in parts.netloc else host
    query, fragment = (_PARAMETER.sub(_masked_parameter, each) for each in parts[3:])
    return urlunsplit((parts.scheme, netloc, parts.path, query, fragment))


def _masked_parameter(found: re.Match[str]) -> str:
    """`ref=main` is shown; what is called or looks like a secret is not."""
    name, value = unquote(found[1]), found[2]
    secret = is_secret_name(name) or name.lower() in _SECRET_PARAMETERS
    return f"{found[1]}={MASK}" if secret or not _PLAIN_VALUE.match(value) else found[0]


def _named_by(pair: Mapping[Any, Any]) -> str:
    """What `value` is the value of, in `{"name": "Authorization", "value": …}`."""
    return next((pair[each] for each in ("name", "key") if isinstance(pair.get(each), str)), "")


def _closest(outer: str, inner: str) -> str:
    """The name to judge a value by; all that is inside a secret is secret."""
    return outer if is_secret_name(outer) or is_secret_name(outer.removesuffix("s")) else inner


def _masked_text(text: str, secrets: Collection[str]) -> str:
    header = _HEADER.match(text)
    if "PRIVATE KEY-----" in text:
        return MASK
    if header and is_secret_name(header[1]):
        return f"{header[0]}{MASK}"
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    text = _SCHEME.sub(rf"\1 {MASK}", text)
    return _URL.sub(lambda match: masked_url(match[0]), text)


def is_commit(text: object) -> bool:
    """Whether a text is a whole commit id."""
    return isinstance(text, str) and bool(_COMMIT.match(text))


def is_ref(text: object) -> bool:
    """Whether a text can be the name of a branch or tag, and nothing else."""
    return isinstance(text, str) and bool(_REF.match(text)) and ".." not in text


def git_url(text: str) -> str | None:
    """A URL that git may fetch from: `owner/repo` is on GitHub, `git@host:path` is SSH."""
    if _OWNER_REPO.match(text):
        return f"{GITHUB}/{text.removesuffix('.git')}.git"
    if scp := _SCP.match(text):
        return f"ssh://{scp['user']}@{scp['host']}/{scp['path'].lstrip('/')}"
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return None
    if not text.isprintable() or " " in text or parts.query or parts.fragment:
        return None
    if parts.scheme == "file":
        return text if parts.netloc in ("", "localhost") and parts.path.startswith("/") else None
    if parts.scheme not in ("https", "ssh", "http") or not host or host.startswith("-"):
        return None
    return None if parts.scheme == "http" and not is_loopback(host) else text


def local_path(url: str) -> Path:
    """The path in a `file:` URL."""
    return Path(unquote(urlsplit(url).path))


def is_address(url: str) -> bool:
    """Whether a registry can be at this URL; git reads from SSH too."""
    return is_registry_url(url) or (url.startswith("ssh://") and url.isprintable())


def is_registry_url(url: str) -> bool:
    """Whether a registry can be read from this URL."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return False
    if not url.isprintable():
        return False
    if parts.scheme == "file":
        return parts.netloc in ("", "localhost") and parts.path.startswith("/")
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def plain_path(path: object) -> str | None:
    """A path inside a repository, empty for all of it; None for one that leads out."""
    if not isinstance(path, str) or path.startswith("/"):
        return None
    plain = posixpath.normpath(path or ".")
    if plain == ".":
        return ""
    try:
        return str(check_relative(plain))
    except EscapeError:
        return None


def path_in_market(market: Mapping[str, object], source: object) -> str | None:
    """The directory that an entry's relative source means; None outside the marketplace."""
    metadata = market.get("metadata")
    root = metadata.get("pluginRoot") if isinstance(metadata, Mapping) else None
    if isinstance(source, str) and isinstance(root, str) and not source.startswith("./"):
        source = f"{root}/{source}"
    return plain_path(source)


def checksum_of(value: object) -> str | None:
    """The hexadecimal digest in `sha256:…` or `sha256-…`, None for anything else."""
    match = _CHECKSUM.match(value) if isinstance(value, str) else None
    return match[1].lower() if match else None


def safe_url(base: str, url: object) -> str | None:
    """A URL that a manifest refers to; a remote one may not point into this machine's files."""
    if not isinstance(url, str) or not url:
        return None
    try:
        target = urljoin(base, url)
    except ValueError:
        return None
    if not is_registry_url(target) or (target.startswith("file:") and not base.startswith("file:")):
        return None
    return target


def scheme_of(url: str) -> str:
    """How git would reach an address."""
    if _SCP.match(url):
        return "ssh"
    return urlsplit(url).scheme or "file"
