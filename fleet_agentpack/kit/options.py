"""What the server's options may be: judged alike by the front, the settings and `connect`.

The front imports this module, so it uses the standard library's smallest parts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Mapping

# Options of a server → the variables that say the same.
VARIABLES = {
    "only": "FLEET_AGENTPACK_ONLY",
    "tools": "FLEET_AGENTPACK_TOOLS",
    "without": "FLEET_AGENTPACK_WITHOUT",
    "no_extras": "FLEET_AGENTPACK_NO_EXTRAS",
    "prefix": "FLEET_AGENTPACK_PREFIX",
    "project": "FLEET_AGENTPACK_PROJECT",
    "ask": "FLEET_AGENTPACK_ASK",
}
ASK = ("never", "risky", "always", "require")
LONGEST_PREFIX = 24  # the longest name of a tool stays below the 64 that clients take
_PREFIX = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{LONGEST_PREFIX - 1}}}")


def add_choice(parser: ArgumentParser) -> None:
    """Add the options that choose what a server serves."""
    parser.add_argument(
        "--only", metavar="DOMAIN[,DOMAIN]", default="", help="serve only these domains"
    )
    parser.add_argument("--read-only", action="store_true", help="leave out every tool that writes")
    parser.add_argument("--tools", metavar="NAME[,NAME]", default="", help="serve only these tools")
    parser.add_argument(
        "--without", metavar="NAME[,NAME]", default="", help="leave these tools out"
    )
    parser.add_argument(
        "--no-extras",
        action="store_const",
        const="1",
        default="",
        help="leave out the tools beyond the contracts",
    )
    parser.add_argument("--prefix", default="", help="put PREFIX_ before every tool's name")


def variables_named(environ: Mapping[str, str]) -> dict[str, str]:
    """What the variables say, by the names of the options."""
    return {name: environ.get(variable, "") for name, variable in VARIABLES.items()}


def split_names(text: str) -> tuple[str, ...]:
    """The names in a list with commas between them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def tool_prefix(text: str) -> str | None:
    """What goes before the names of tools, `agentpack_` for `agentpack`; None if it cannot be."""
    if text and not _PREFIX.fullmatch(text):
        return None
    return text if not text or text.endswith(("_", "-")) else f"{text}_"


def is_on(text: str) -> bool | None:
    """Whether a variable switches something on; None where that is not clear."""
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    return False if text.lower() in ("", "0", "false", "no", "off") else None
