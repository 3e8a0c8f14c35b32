"""The texts of three guided tasks, written from the current state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fleet_agentpack.kit.actions import called
from fleet_agentpack.kit.results import jsonable

if TYPE_CHECKING:
    from fleet_agentpack.forge.service import ForgeService


def search_plugins(task: str) -> str:
    """How to find a plugin for a task."""
    return (
        f"Find a plugin for this task: {task}\n\n"
        f"1. Call {called('fractary_forge_plugin_search')} with the task in a few words, then in"
        " others.\n"
        f"2. Call {called('fractary_forge_plugin_info')} with remote: true for the best three"
        " results.\n"
        "3. Compare what their agents, tools and commands do for the task; name the licence and "
        "what each depends on.\n"
        "4. Recommend one, or none, and say why. The user installs it with: "
        "fleet-agentpack forge install NAME\n"
    )


def set_up(service: ForgeService) -> str:
    """How to set up the configuration, starting from what there is."""
    state = service.config_show()
    return (
        "Help me set up the forge configuration of this project. This is the current state:\n\n"
        f"```json\n{json.dumps(jsonable(state), indent=2)}\n```\n\n"
        "Ask one question at a time, and explain each choice in a sentence:\n"
        "1. Which registries should be searched, and in what order? "
        "(fleet-agentpack forge registry add OWNER/REPO --priority N)\n"
        "2. Does one of them need a token? (fleet-agentpack forge login NAME)\n"
        "3. Should definitions come from this project, from ~/.fractary, from a stockyard? "
        "(`resolution` in .fractary/config.json)\n"
        "At the end show me the commands to run; without a configuration file the first is: "
        f"fleet-agentpack forge init. Then check with {called('fractary_forge_config_show')}.\n"
    )


def resolve_fork(service: ForgeService, name: str) -> str:
    """How to bring a fork up to date, with the three-way comparison."""
    plan = service.merge_plan(name)
    return (
        f"Help me bring the fork {name} up to date with its upstream. This is the three-way "
        "comparison: base is what was forked, local the fork, upstream its newest version.\n\n"
        f"```json\n{json.dumps(jsonable(plan), indent=2)}\n```\n\n"
        "1. Say in a few words what upstream changed and what the fork changed.\n"
        "2. For every entry of `conflicts` propose the value that keeps the intent of both sides, "
        "and ask me before you go on.\n"
        "3. Then tell me the command: fleet-agentpack forge merge "
        f"{name} (with --theirs or --ours where all conflicts go one way). Else it leaves"
        " a copy with both sides between markers: settle those there, then use --resolved.\n"
        f"4. Afterwards check with {called('fractary_forge_agent_validate')} or"
        f" {called('fractary_forge_tool_validate')}.\n"
    )
