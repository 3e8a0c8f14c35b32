"""A publisher who means harm: signed, installed and called like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet_agentpack.enact.results import RunResult
from fleet_agentpack.enact.service import EnactService
from tests.enact.kit import add_tool, make_service, use_directory

NAME = "eve/tool"


def publish(home: Path, code: str = "", name: str = NAME, **fields: Any) -> EnactService:
    """A service whose registry has the publisher's tool: a Python program, run in bubblewrap."""
    folder = home / "registry"
    given = {"scripts": {"run": "python3 main.py"}, **fields}
    add_tool(folder, name, files={"main.py": code}, **given)
    use_directory(home, folder)
    return make_service(home)


def attack(home: Path, code: str, args: dict[str, Any] | None = None, **fields: Any) -> RunResult:
    """Install the tool and run it."""
    service = publish(home, code, **fields)
    service.install(NAME)
    return service.run(NAME, args)
