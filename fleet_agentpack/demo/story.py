"""The story: five chapters, one per domain, each told through the tools an agent would call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fleet_agentpack.demo import readable
from fleet_agentpack.demo.stage import Stage

TASK_LIMIT_S = 20.0


async def deploy(stage: Stage) -> None:
    """Deploy a starter pack to four tools, find drift, roll back."""
    stage.shell("init")
    await stage.call("plan", readable.changes)
    await stage.call("diff", readable.diff)
    applied = await stage.call("deploy_apply", readable.applied, yes=True)
    snapshot = applied["data"]["snapshot_id"]
    edited = _first_deployed_text(applied)
    edited.write_text(edited.read_text(encoding="utf-8") + "\nedited by hand\n", encoding="utf-8")
    stage.say(f"somebody edits {edited.name} by hand")
    drifted = await stage.call("status", readable.drift)
    stage.expect(bool(drifted["data"]["drift"]), "status did not notice the edit")
    await stage.call("rollback", readable.rolled_back, to=snapshot, yes=True)
    clean = await stage.call("status", readable.drift)
    stage.expect(not clean["data"]["drift"], "something still differs after the rollback")


async def fleet(stage: Stage) -> None:
    """Create two agents, give each a task, read the history."""
    projects = await stage.call("list_agent_projects", readable.projects)
    project = projects["projects"][0]["name"]
    work = {
        "ada": "write notes.md: Reviewed by Ada.",
        "bob": "write todo.md: Ask Ada for a review.",
    }
    for name in work:
        spec = f"{name.title()} keeps the project's notes."
        await stage.call("create_agent", readable.agent, name=name, project=project, spec=spec)
    for name, task in work.items():
        await stage.call(
            "start_agent_task", readable.message, agent_name=name, task_description=task
        )
    await _until_idle(stage, set(work))
    await stage.call("list_agents", readable.agents)
    for name in work:
        history = await stage.call("show_agent_task_history", readable.tasks, agent_name=name)
        stage.expect(history["total_count"] == 1, f"{name}'s task is not in the history")


async def enact(stage: Stage) -> None:
    """Find, learn, install and call a tool."""
    await stage.call("enact__search", readable.tools, query="csv")
    await stage.call("enact__learn", readable.documentation, tool="agentpack/csv/stats")
    await stage.call("enact__install", readable.message, tool="agentpack/csv/stats")
    stage.expect("agentpack__csv__stats" in await stage.tool_names(), "the tool is not listed")
    stage.say("the installed tool is an MCP tool now, with a schema of its own")
    await stage.call("agentpack__csv__stats", readable.columns, file="sales.csv")


async def forge(stage: Stage) -> None:
    """List and validate definitions."""
    stage.shell("forge init")
    description = "Writes release notes from commits"
    stage.shell(f"forge agent-create release-notes --description '{description}'")
    await stage.call("fractary_forge_agent_list", readable.definitions)
    await stage.call(
        "fractary_forge_agent_validate", readable.verdict, name="release-notes", strict=True
    )
    await stage.call("fractary_forge_config_show", readable.forge_configuration)


async def climpt(stage: Stage) -> None:
    """Find and render a prompt."""
    stage.shell("climpt init")
    found = await stage.call("search", readable.commands, query="group changes and commit")
    best = found["results"][0]
    address = {key: best[key] for key in ("c1", "c2", "c3")}
    await stage.call("describe", readable.usage, **address)
    prompt = await stage.call("execute", readable.prompt, agent="climpt", **address)
    stage.expect(bool(prompt.strip()), "the prompt is empty")


CHAPTERS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "agentpack: one pack for four tools, drift, rollback": deploy,
    "fleet: two agents, a task each": fleet,
    "enact: a tool found, installed and called": enact,
    "forge: an agent's definition, checked": forge,
    "climpt: a prompt for the job": climpt,
}


async def _until_idle(stage: Stage, names: set[str]) -> None:
    deadline = time.monotonic() + TASK_LIMIT_S
    while busy := names - await _idle(stage):
        stage.expect(time.monotonic() < deadline, f"{', '.join(sorted(busy))} did not finish")
        await asyncio.sleep(0.2)


async def _idle(stage: Stage) -> set[str]:
    answer = await stage.call("list_agents")
    return {agent["name"] for agent in answer["agents"] if agent["status"] == "idle"}


def _first_deployed_text(applied: Any) -> Path:
    return Path(next(c["path"] for c in applied["data"]["changes"] if c["path"].endswith(".md")))
