"""A session keyring of its own for what a thread starts, so that the user's keys stay out of it."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING, _GET_KEYRING_ID, _SESSION = 1, 0, -3


def is_supported() -> bool:
    """Whether this machine's kernel has keyrings, and we know how to ask for one."""
    return sys.platform == "linux" and _keyctl(_GET_KEYRING_ID, _SESSION, 0) >= 0


def join_new() -> None:
    """Give this thread, and what it starts, a new and empty session keyring, if there are any."""
    if sys.platform == "linux":
        _keyctl(_JOIN_SESSION_KEYRING, 0, 0)


def _keyctl(*given: int) -> int:
    number = _KEYCTL.get(platform.machine())
    if number is None:
        return -1
    return int(_libc().syscall(ctypes.c_long(number), *map(ctypes.c_long, given)))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
