"""Keeps secrets out of what is shown of a configuration."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

MASK = "***"

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_KEY = re.compile(
    r"(?:.*_)?(?:token|secret|password|passwd|passphrase|pwd|(?:api|access|private|signing)_?key"
    r"|authorization|credentials?|cookie)\Z"
)
_SHORTEST_SECRET = 4  # shorter values would blank out ordinary words
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_SCHEME = re.compile(r"(\bBearer|^\s*(?:bearer|Basic|basic))\s+\S+")
_HEADER = re.compile(r"\s*-{0,2}([A-Za-z][\w-]*)\s*[:=]\s*(?=\S)")  # also `--token=…`


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
    """A URL without its user and password and without the values in its query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    if not parts.scheme or not ("@" in parts.netloc or parts.query or parts.fragment):
        return url
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{MASK}@{host}" if "@" in parts.netloc else host
    query, fragment = (re.sub(r"=[^&]*", f"={MASK}", each) for each in parts[3:])
    return urlunsplit((parts.scheme, netloc, parts.path, query, fragment))


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
