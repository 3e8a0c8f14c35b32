"""Program profiles: how a task becomes a command, and what the program may do by itself."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

from msgspec import Struct, field

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.stream import Reading
from fleet_agentpack.kit.shapes import Rule, ShapeError, convert

DEFAULT_PROGRAM = "claude"
Arguments = Annotated[tuple[str, ...], Rule("a list of arguments, each of them text")]


def is_pattern(text: str) -> bool:
    """Whether a text is a regular expression."""
    try:
        re.compile(text)
    except re.error:
        return False
    return True


Command = Annotated[tuple[str, ...], Rule("a list: the program and its arguments", bool)]
GATE = Path(__file__).with_name("gate.py")  # judges commands for programs that have hooks
_SLOT = re.compile(r"\{(session|instructions|prompt|directory|model|command|max_cost_usd|gate)\}")


class ProgramHome(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a program keeps its settings and its login: `[fleet.programs.NAME.home]`."""

    path: str  # below the user's home
    variable: str | None = None  # the variable that names another place
    shared: Arguments = ()  # files in it that are the user's own, and may be written
    readable: Arguments = ()  # files in it that may be read


@dataclass(frozen=True)
class Order:
    """One task for a program, with what its role allows."""

    task: str
    instructions: str
    session: str
    continues: bool
    directory: str
    sandboxed: bool
    commands: Sequence[str] = ()  # the only commands that may be run; none: any
    model: str | None = None
    max_cost_usd: float | None = None


class Program(Struct, frozen=True, forbid_unknown_fields=True):
    """How to run one kind of coding agent unattended: `[fleet.programs.NAME]`."""

    command: Command
    first: Arguments = ()
    next: Arguments = ()  # none: each task starts a new conversation
    instructions: Arguments = ()
    prompt: Arguments = ()
    model: Arguments = ()
    budget: Arguments = ()
    sandboxed: Arguments = ()  # its own approvals off, inside our sandbox
    alone: Arguments = ()  # its own means, where there is no sandbox
    restricted: Arguments = ()  # only some commands may be run
    allowed: Arguments = ()  # once for each of these commands
    gated: Arguments = ()  # instead of both, inside our sandbox: our gate as a hook of its
    denied_in_errors: Annotated[str, Rule("a regular expression", is_pattern)] = ""
    unset: Arguments = ()
    set: dict[str, str] = {}  # variables inside our sandbox
    home: ProgramHome | None = None
    readings: tuple[Reading, ...] = field(default_factory=tuple)

    def launch(self, order: Order) -> tuple[list[str], str]:
        """The command and the standard input for a task. Raises 400 for what it cannot do."""
        if order.max_cost_usd and not any(each.field == "cost" for each in self.readings):
            raise FleetError.bad_request(
                f"{self.command[0]} reports no cost, and the role has a max_cost_usd. Choose"
                " another program for the role, or take max_cost_usd out of it.",
                field="role",
            )
        prompt = order.task
        if not self.instructions and not order.continues:
            prompt = f"{order.instructions}\n\nYour task:\n{order.task}"
        values = {
            "session": order.session,
            "instructions": order.instructions,
            "prompt": prompt,
            "directory": order.directory,
            "model": order.model or "",
            "max_cost_usd": f"{order.max_cost_usd or 0:g}",
        }
        arguments = (
            *self.command,
            *self._permissions(order),
            *(self.model if order.model else ()),
            *(self.budget if order.max_cost_usd else ()),
            *self.instructions,
            *(self.next if order.continues else self.first),
            *self.prompt,
        )
        return _filled(arguments, values), "" if self.prompt else prompt

    def _permissions(self, order: Order) -> list[str]:
        if not order.commands:
            return [*(self.sandboxed if order.sandboxed else self.alone)]
        if self.gated and order.sandboxed:
            return [*self.sandboxed, *_filled(self.gated, {"gate": _gate(order.commands)})]
        if not self.allowed:
            raise FleetError.bad_request(
                f"{self.command[0]} cannot be held to some commands, and the role allows only"
                f" {', '.join(order.commands)}. Choose another program for the role, or take the"
                " commands out of its 'allow'.",
                field="role",
            )
        each = [
            word
            for command in order.commands
            for word in _filled(self.allowed, {"command": command})
        ]
        return [*self.restricted, *each]


def _gate(commands: Sequence[str]) -> str:
    """The command of the gate for a role's commands, as a string of TOML and JSON."""
    words = [sys.executable, "-I", str(GATE), json.dumps(commands)]
    return json.dumps(shlex.join(words), ensure_ascii=False)


def load_programs(configured: Mapping[str, object]) -> dict[str, Program]:
    """The programs that ship with the package and those of the configuration file. Raises 503."""
    shipped = tomllib.loads(
        resources.files(__package__).joinpath("programs.toml").read_text(encoding="utf-8")
    )
    # The demo's program needs no account: a first session can be tried with it.
    demo = Path(__file__).parents[2] / "demo" / "scripted_agent.py"
    shipped["scripted"]["command"] = [sys.executable, str(demo)]
    try:
        return convert(dict[str, Program], {**shipped, **configured}, ("fleet", "programs"))
    except ShapeError as error:
        raise FleetError.unavailable(f"{error}.") from error


def _filled(arguments: Sequence[str], values: Mapping[str, str]) -> list[str]:
    return [_SLOT.sub(lambda match: values.get(match[1], match[0]), part) for part in arguments]
