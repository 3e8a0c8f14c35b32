"""What the deploy commands have in common."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from fleet_agentpack.console.command import Console
from fleet_agentpack.deploy.actions import command_line
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.kit.program import located

if TYPE_CHECKING:
    from fleet_agentpack.deploy.service import DeployService


def open_deploy(console: Console, *, again_and_again: bool = False) -> DeployService:
    """The service for this command's environment; one that listens, if it is asked often."""
    from fleet_agentpack.deploy.service import open_service
    from fleet_agentpack.deploy.unchanged import Unchanged

    return open_service(console.settings, Unchanged() if again_and_again else None)


def require_yes(console: Console, command: str) -> None:
    """With `--json`, a command that writes needs `--yes`."""
    if console.as_json and not console.arguments.yes:
        raise DeployError.confirm_required(command)


def line(request: Request, *words: str) -> str:
    """A command as a person can type it next, for the same repo."""
    return located(shlex.join(command_line(request, *words)))
