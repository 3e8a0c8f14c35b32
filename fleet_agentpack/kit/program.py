"""How a person calls this program: by its name where the PATH has it, else by where it is.

Messages call it by its name. Who prints one, or sends it to a client, passes it through `located`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

NAME = "fleet-agentpack"
COMMANDS = (
    *("demo", "tools", "connect", "init", "import", "add", "remove", "plan", "diff"),
    *("deploy", "status", "explain", "keep", "rollback", "undo", "uninstall", "snapshots"),
    *("doctor", "lock", "fetch", "update", "outdated", "overlay", "watch", "fleet", "tool"),
    *("mcp", "forge", "climpt", "help", "completion"),
)
_CALLED = re.compile(rf"(?<![\w./-]){NAME}(?= (?:--[a-z]|(?:{'|'.join(COMMANDS)})\b))")


def program() -> str:
    """This program as a person can call it from anywhere."""
    import shlex  # here, since every start of the server imports this module
    import shutil

    if shutil.which(NAME):
        return NAME
    for path in (Path(sys.argv[0]), Path(sys.executable).with_name(NAME)):
        if path.name == NAME and path.is_file():
            return shlex.quote(str(path.absolute()))
    return f"{shlex.quote(sys.executable)} -m fleet_agentpack"


def located(text: str) -> str:
    """A message whose commands can be called as they stand there."""
    return _CALLED.sub(lambda _: program(), text) if NAME in text else text


def located_throughout(data: object) -> object:
    """The same for every text in JSON data."""
    if isinstance(data, str):
        return located(data)
    if isinstance(data, Mapping):
        return {key: located_throughout(item) for key, item in data.items()}
    return [located_throughout(item) for item in data] if isinstance(data, list) else data
