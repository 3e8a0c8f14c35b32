"""The usual start of a server, without reading settings: plain options, no configuration file.

Everything else goes the long way, through `cli.py`; both end at the same front.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from fleet_agentpack.wire.installed_state import may_exist
from fleet_agentpack.wire.recorded import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

APP = "fleet-agentpack"
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
_LONG_WAY = ("CONFIG", "PROJECT", "TOOLS", "WITHOUT", "PREFIX", "NO_EXTRAS", "ASK")
FRONT_SWITCH = "FLEET_AGENTPACK_FRONT"  # "off" for tests that compare


class QuickStart(NamedTuple):
    """What the front needs to begin."""

    selection: Selection
    home: str
    cache: str


def quick_start(
    argv: Sequence[str], environ: Mapping[str, str], domain: str = ""
) -> QuickStart | None:
    """How to begin at once; None when the settings have to be read first."""
    selection = _selection(argv, environ, domain)
    home = environ.get("HOME", "")
    if selection is None or not can_have_front(environ) or not os.path.isabs(home):  # noqa: PTH117
        return None
    if any(f"FLEET_AGENTPACK_{name}" in environ for name in _LONG_WAY) or os.isatty(0):
        return None
    config = os.path.join(_directory(environ, "config", home), "config.toml")  # noqa: PTH118
    if may_exist(config) or not _in_a_directory():
        return None
    return QuickStart(selection, home, _directory(environ, "cache", home))


def _in_a_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:  # it was removed; the long way says so
        return False
    return True


def can_have_front(environ: Mapping[str, str]) -> bool:
    """Whether the front works here: it needs `select` on pipes."""
    return os.name == "posix" and environ.get(FRONT_SWITCH) != "off"


def _selection(argv: Sequence[str], environ: Mapping[str, str], domain: str) -> Selection | None:
    only, read_only = "", False
    words = [part for word in argv for part in word.split("=", 1)]
    rest = iter(words)
    for word in rest:
        if word == "--read-only":
            read_only = True
        elif word == "--only":
            only = next(rest, "-")
        elif word != "--log-level" or next(rest, "") not in LOG_LEVELS:
            return None
    if only.startswith("-"):
        return None
    chosen = domain or only or environ.get("FLEET_AGENTPACK_ONLY", "")
    names = tuple(name.strip() for name in chosen.split(",") if name.strip())
    return Selection(names, read_only)


def _directory(environ: Mapping[str, str], kind: str, home: str) -> str:
    """The user's directory for our files, as platformdirs has it."""
    chosen = environ.get(f"XDG_{kind.upper()}_HOME", "")
    if not os.path.isabs(chosen):  # noqa: PTH117
        mac = {"config": "Library/Application Support", "cache": "Library/Caches"}
        below = mac[kind] if sys.platform == "darwin" else f".{kind}"
        chosen = os.path.join(home, below)  # noqa: PTH118
    return os.path.join(chosen, APP)  # noqa: PTH118
