"""The usual start of a server, without reading settings: plain options, no configuration file.

Everything else goes the long way, through `cli.py`; both end at the same front.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from fleet_agentpack.kit.options import (
    ASK,
    VARIABLES,
    is_on,
    split_names,
    tool_prefix,
    variables_named,
)
from fleet_agentpack.kit.project import FoundProject, find_project
from fleet_agentpack.wire.installed_state import may_exist
from fleet_agentpack.wire.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

APP = "fleet-agentpack"
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
_SWITCHES = ("read_only", "no_extras")
FRONT_SWITCH = "FLEET_AGENTPACK_FRONT"  # "off" for tests that compare


class QuickStart(NamedTuple):
    """What the front needs to begin."""

    selection: Selection
    project: FoundProject
    home: str
    cache: str


def quick_start(
    argv: Sequence[str], environ: Mapping[str, str], domain: str = ""
) -> QuickStart | None:
    """How to begin at once; None when the settings have to be read first."""
    options = _options(argv, environ)
    selection = None if options is None else _selection(options, domain)
    home = environ.get("HOME", "")
    if options is None or selection is None or not can_have_front(environ):
        return None
    if not os.path.isabs(home):  # noqa: PTH117
        return None
    if "FLEET_AGENTPACK_CONFIG" in environ or os.isatty(0):
        return None
    config = os.path.join(_directory(environ, "config", home), "config.toml")  # noqa: PTH118
    if may_exist(config) or not _in_a_directory():
        return None
    project = find_project(options["project"], home)
    return QuickStart(selection, project, home, _directory(environ, "cache", home))


def _in_a_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:  # it was removed; the long way says so
        return False
    return True


def can_have_front(environ: Mapping[str, str]) -> bool:
    """Whether the front works here: it needs `select` on pipes."""
    return os.name == "posix" and environ.get(FRONT_SWITCH) != "off"


def _options(argv: Sequence[str], environ: Mapping[str, str]) -> dict[str, str] | None:
    """The options and what variables say instead; None for any that the front does not know."""
    given: dict[str, str] = {}
    words = [part for word in argv for part in (word.split("=", 1) if word[:2] == "--" else [word])]
    rest = iter(words)
    for word in rest:
        name = word[2:].replace("-", "_") if word[:2] == "--" and "_" not in word else ""
        if name in _SWITCHES:
            given[name] = "1"
        elif name in VARIABLES:
            given[name] = next(rest, "-")
            if given[name].startswith("-"):
                return None
        elif name != "log_level" or next(rest, "") not in LOG_LEVELS:
            return None
    return {**variables_named(environ), **{name: value for name, value in given.items() if value}}


def _selection(options: Mapping[str, str], domain: str) -> Selection | None:
    prefix, without_extras = tool_prefix(options["prefix"]), is_on(options["no_extras"])
    if prefix is None or without_extras is None or options["ask"] not in ("", *ASK):
        return None
    return Selection(
        (domain,) if domain else split_names(options["only"]),
        "read_only" in options,
        split_names(options["tools"]),
        split_names(options["without"]),
        prefix,
        extras=not (domain or without_extras),
    )


def _directory(environ: Mapping[str, str], kind: str, home: str) -> str:
    """The user's directory for our files, as platformdirs has it."""
    chosen = environ.get(f"XDG_{kind.upper()}_HOME", "")
    if not os.path.isabs(chosen):  # noqa: PTH117
        mac = {"config": "Library/Application Support", "cache": "Library/Caches"}
        below = mac[kind] if sys.platform == "darwin" else f".{kind}"
        chosen = os.path.join(home, below)  # noqa: PTH118
    return os.path.join(chosen, APP)  # noqa: PTH118
