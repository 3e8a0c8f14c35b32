"""What to do next, for an agent and for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.errors import AppError, Problem

COMMANDS = {
    "enact__search": "tool search {query}",
    "enact__install": "tool install {tool}",
    "plugin_info": "forge info {plugin}",
    "deploy_apply": "deploy --apply",
}


@pytest.mark.parametrize(
    ("action", "agent", "person"),
    [
        (
            Action("enact__search", text="call {} for a name", person="use `{}` for a name"),
            "call enact__search for a name",
            "use `fleet-agentpack tool search QUERY` for a name",
        ),
        (
            Action("enact__install", {"tool": "acme/a b"}, "Get it: {}"),
            'Get it: enact__install with tool: "acme/a b"',
            "Get it: fleet-agentpack tool install 'acme/a b'",
        ),
        (
            Action("plugin_info", {"remote": True, "fork": False}, "Ask the registries: {}"),
            "Ask the registries: plugin_info with remote: true, fork: false",
            "Ask the registries: fleet-agentpack forge info PLUGIN --remote",
        ),
        (
            Action("deploy_apply", {"dry_run": "x y", "limit": 0, "repo": None}),
            'deploy_apply with dry_run: "x y", limit: 0, repo: null',
            "fleet-agentpack deploy --apply --dry-run 'x y' --limit 0",
        ),
        (Action("unlisted"), "unlisted", "unlisted"),
        (
            Action.command("tool", "uninstall", "a;b", text="ask the user to run: {}", person="{}"),
            "ask the user to run: fleet-agentpack tool uninstall 'a;b'",
            "fleet-agentpack tool uninstall 'a;b'",
        ),
        (Action.instruction("wait a minute"), "wait a minute", "wait a minute"),
        (Action.instruction("call {} again", "run it again"), "call {} again", "run it again"),
    ],
)
def test_an_action_is_a_call_for_an_agent_and_a_command_line_for_a_person(
    action: Action, agent: str, person: str
) -> None:
    assert (action.for_agent(), action.for_person(COMMANDS)) == (agent, person)


def test_a_name_with_braces_is_left_as_it_is() -> None:
    action = Action("enact__install", {"tool": "{0}"}, "Get it: {}")
    assert action.for_person(COMMANDS) == "Get it: fleet-agentpack tool install '{0}'"


class RoomError(AppError):
    commands = COMMANDS

    def payload(self) -> dict[str, Any]:
        return {"error": str(self), "next_actions": [each.for_agent() for each in self.actions]}

    @classmethod
    def invalid_arguments(cls, tool: str, problems: Sequence[Problem]) -> RoomError:
        return cls("; ".join(map(str, problems)))

    @classmethod
    def unexpected(cls, tool: str) -> RoomError:
        return cls(tool)


def test_an_error_advises_people_from_its_actions() -> None:
    error = RoomError("no such tool", actions=[Action("enact__search", text="Try {}"), "or wait"])
    assert error.payload()["next_actions"] == ["Try enact__search", "or wait"]
    assert error.advice() == ["Try fleet-agentpack tool search QUERY", "or wait"]
    assert RoomError("nothing to add").advice() == []
