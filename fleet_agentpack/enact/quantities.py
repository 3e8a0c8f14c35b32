"""Durations and sizes as manifests and configurations write them."""

from __future__ import annotations

import json
import re

_TIMEOUT = re.compile(r"(\d{1,9})(ns|us|µs|ms|s|m|h)\Z")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(\d{1,9})([KMGT]?)(i?)B?\Z")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def seconds(text: str) -> float:
    """A duration such as `30s` or `100ms`. Raises `ValueError`."""
    match = _TIMEOUT.match(text)
    if not match:
        raise ValueError(f"timeout {text[:40]!r} is not a number with one unit, such as 30s")
    return int(match[1]) * _SECONDS[match[2]]


def size(text: str) -> int:
    """A size in bytes such as `512Mi`, `512MiB` or `2GB`. Raises `ValueError`."""
    match = _SIZE.match(text)
    if not match or not int(match[1]):
        raise ValueError(f"{text[:40]!r} is not a size such as 512MiB")
    return int(int(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2]])


def json_bytes(value: object) -> int:
    """How long something is as JSON. Raises `ValueError` for numbers that JSON does not have."""
    return len(json.dumps(value, default=str, allow_nan=False).encode())
