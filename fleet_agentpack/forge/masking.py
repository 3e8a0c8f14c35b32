"""Keeps secrets out of what is shown of a configuration."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

MASK = "***"

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_KEY = re.compile(
    r"(?:.*_)?(?:token|secret|password|passwd|passphrase|api_?key|private_?key|authorization"
    r"|credentials?|cookie)\Z"
)
_SHORTEST_SECRET = 4  # shorter values would blank out ordinary words


def is_secret_name(name: str) -> bool:
    """Whether a key or a variable is named like a secret; `token_env` only names a variable."""
    plain = _WORD_START.sub("_", name).lower().replace("-", "_")
    return bool(_SECRET_KEY.match(plain))


def masked(value: Any, secrets: Collection[str] = (), key: str = "") -> Any:
    """A copy without secrets: by the key's name, by known value, and inside URLs."""
    if isinstance(value, Mapping):
        return {name: masked(item, secrets, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [masked(item, secrets, key) for item in value]
    if value is not None and value != "" and is_secret_name(key):
        return MASK
    return _masked_text(value, secrets) if isinstance(value, str) else value


def masked_url(url: str) -> str:
    """A URL without its user, password, query and fragment values."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    if not parts.scheme or ("@" not in parts.netloc and not parts.query):
        return url
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{MASK}@{host}" if "@" in parts.netloc else host
    query = re.sub(r"=[^&]*", f"={MASK}", parts.query)
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))


def _masked_text(text: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return masked_url(text) if "://" in text else text
