"""What the server's options may be: judged alike by the front, the settings and `connect`.

The front imports this module, so it uses the standard library's smallest parts.
"""

from __future__ import annotations

import re

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
