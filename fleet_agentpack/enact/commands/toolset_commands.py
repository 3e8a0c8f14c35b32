"""`fleet-agentpack mcp …`: which of the installed tools MCP clients see."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from fleet_agentpack.console.command import Commands, Console, Line
from fleet_agentpack.console.progress import progress
from fleet_agentpack.console.table import Table
from fleet_agentpack.enact import results
from fleet_agentpack.enact.commands.parts import EXAMPLE, Work, message, open_service, runs


def add(commands: Commands) -> None:
    """Declare the subcommands of `mcp`."""
    listing = runs(lambda s, _: s.toolsets.list(), _toolsets)
    commands.add("toolsets", "list the toolsets", listing, "")
    used = runs(lambda s, o: s.toolsets.use(None if o.all else o.name), message)
    use = commands.add("use", "show clients one toolset, or everything", used, "daily")
    chosen = use.add_mutually_exclusive_group(required=True)
    chosen.add_argument("name", nargs="?", help="the toolset")
    chosen.add_argument("--all", action="store_true", help="every installed tool")

    changes: dict[str, tuple[str, Work[results.ToolsetChange]]] = {
        "create": ("create one of all installed tools", lambda s, o: s.toolsets.create(o.name)),
        "delete": ("delete a toolset; the tools stay", lambda s, o: s.toolsets.delete(o.name)),
        "add": ("add a tool to a toolset", lambda s, o: s.toolsets.add(o.name, o.tool)),
        "remove": ("remove a tool from one", lambda s, o: s.toolsets.remove(o.name, o.tool)),
    }
    for action, (text, work) in changes.items():
        with_tool = action in ("add", "remove")
        example = f"daily {EXAMPLE}" if with_tool else "daily"
        leaf = commands.add(f"toolset {action}", text, runs(work, message), example)
        leaf.add_argument("name")
        if with_tool:
            leaf.add_argument("tool")
    _add_exchange(commands)


def _add_exchange(commands: Commands) -> None:
    give = commands.add("toolset export", "write a toolset for somebody else", _export, "daily")
    give.add_argument("name")
    give.add_argument("file", nargs="?", help="the file to write (default: standard output)")
    take = commands.add(
        "toolset import", "make a toolset of an exported one", _import, "daily.json"
    )
    take.add_argument("file", help="what toolset export wrote; missing tools are installed")
    take.add_argument("--name", help="how to call it here (default: as it was)")


def _export(console: Console) -> None:
    given = console.arguments
    with open_service(console) as service:
        exported = service.upkeep.export_toolset(given.name)
        if given.file is None:
            sys.stdout.write(exported.content().decode())
            return
        changed = service.upkeep.write_export(exported, given.file)
        console.answer(changed, message(changed, console))


def _import(console: Console) -> None:
    given = console.arguments
    with open_service(console) as service, progress(lines=False) as told:
        changed = service.upkeep.import_toolset(given.file, given.name, told)
        told.hide()
        console.answer(changed, message(changed, console))


def _toolsets(toolsets: Sequence[results.Toolset], _: Console) -> Iterable[Line]:
    rows = [
        [f"→ {each.name}" if each.isActive else each.name, ", ".join(each.tools)]
        for each in toolsets
    ]
    yield Table(["toolset", "tools"], rows) if rows else "There are no toolsets."
