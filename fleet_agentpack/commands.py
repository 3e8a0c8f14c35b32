"""The commands as rows: which room declares each, and the two that are about the others."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from fleet_agentpack.console.parser import Parser

PROG = "fleet-agentpack"

# Command → the room whose `commands` declare it, and one line of help.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "see all of it work in a scratch home"),
    "tools": ("wire", "list every tool: domain, reads or writes, purpose"),
    "connect": ("connect", "tell an MCP client about this server, and check that it starts"),
    "init": ("deploy", "start a config repo with an example pack"),
    "import": ("deploy", "bring what your tools already have into the pack"),
    "add": ("deploy", "add a module to the pack"),
    "remove": ("deploy", "take a module out of the pack"),
    "plan": ("deploy", "show what a deploy would change"),
    "diff": ("deploy", "show the changes as a diff"),
    "deploy": ("deploy", "write the pack to the tools (--apply)"),
    "status": ("deploy", "find drift in what was deployed"),
    "explain": ("deploy", "say which module and layer a deployed file comes from"),
    "keep": ("deploy", "take hand edits of deployed files back into the pack"),
    "rollback": ("deploy", "go back to a snapshot (--to ID)"),
    "undo": ("deploy", "take back the last deploy"),
    "uninstall": ("deploy", "give back everything as it was before the first deploy"),
    "snapshots": ("deploy", "list the snapshots; prune removes old ones"),
    "doctor": ("doctor", "check roots and configuration; --all looks at every domain"),
    "lock": ("deploy", "pin git modules in the lockfile"),
    "fetch": ("deploy", "fetch locked git modules"),
    "update": ("deploy", "lock and fetch; with module ids, move these to their refs"),
    "outdated": ("deploy", "list git modules whose ref has moved"),
    "overlay": ("deploy", "change a module without editing it: list, path, edit, rebase"),
    "watch": ("deploy", "deploy what changes in the pack, and report drift, until Ctrl-C"),
    "fleet": ("fleet", "run coding agents: list, create, start, stop …"),
    "tool": ("enact", "find, install and run tools from a registry"),
    "mcp": ("enact", "choose which installed tools MCP clients see"),
    "forge": ("forge", "query and edit agents, tools, plugins"),
    "climpt": ("climpt", "find and render prompt commands"),
    "help": ("", "show the help of a command"),
    "completion": ("", "print a script that completes commands in bash, zsh or fish"),
}


def parser_of(command: str) -> Parser:
    """The parser of one command, its room imported."""
    room, help_line = COMMANDS[command]
    parser = Parser(prog=f"{PROG} {command}", description=help_line)
    if room:
        importlib.import_module(f"fleet_agentpack.{room}.commands").add(parser, command)
    else:
        _ADD[command](parser)
    return parser


def completion_of(shell: str, main: Parser) -> str:
    """A shell's completion script for every command and its options."""
    from fleet_agentpack.console.completion import places, script

    lines = {name: line for name, (_, line) in COMMANDS.items()}
    found = [*places(main, lines, ())]
    for name in COMMANDS:
        below = lines if name == "help" else {}
        found += places(parser_of(name), below, (name,))
    return script(shell, PROG, found)


def _add_help(parser: Parser) -> None:
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="such as: fleet create")
    parser.example = "fleet create"


def _add_completion(parser: Parser) -> None:
    from fleet_agentpack.console.completion import SHELLS

    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell to print it for")
    parser.example = "bash"


# Those that are about the other commands, which only the command line itself knows.
_ADD: dict[str, Callable[[Parser], None]] = {"help": _add_help, "completion": _add_completion}
