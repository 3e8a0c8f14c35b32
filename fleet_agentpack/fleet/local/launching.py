"""How an agent's task is launched: its room, its command, and what happens with its work."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import AgentFolders, LocalAgent
from fleet_agentpack.fleet.local.copies import WorkingCopies
from fleet_agentpack.fleet.local.environments import (
    DEPTH_VARIABLE,
    Environment,
    set_up,
    variables_of,
)
from fleet_agentpack.fleet.local.git import NOTHING_OF_ITS_OWN, Repository
from fleet_agentpack.fleet.local.mount_points import clear_mount_points
from fleet_agentpack.fleet.local.programs import GATE, Order, Program
from fleet_agentpack.fleet.local.repository import lenders, objects_of
from fleet_agentpack.fleet.local.sandbox import Room, Sandbox
from fleet_agentpack.fleet.local.tasks import Collection, Launch
from fleet_agentpack.fleet.models import shorten
from fleet_agentpack.fleet.roles import Persona
from fleet_agentpack.kit.paths import expand_home

COMMIT_S = 20.0  # an agent's repository may be made to hang
SUBJECT = 72  # characters of a commit's first line


@dataclass(frozen=True)
class Launcher:
    """Knows the sandbox of this machine, and where everything of an agent is."""

    sandbox: Sandbox | None
    home: Path
    environ: Mapping[str, str]
    folders: AgentFolders
    copies: WorkingCopies
    commit: bool  # whether files that a task leaves uncommitted are committed
    depth: int = 0  # how far down from a person this process is

    def path_of(self, program: Program) -> str | None:
        """Where a program is installed."""
        return shutil.which(program.command[0], path=self.environ.get("PATH"))

    def launch(
        self, agent: LocalAgent, role: Persona | None, program: Program, order: Order
    ) -> tuple[Launch, str]:
        """What is started for a task, and the standard input that it gets."""
        argv, prompt = program.launch(order)
        argv[0] = self.path_of(program) or argv[0]
        room = self.sandbox and self._room(agent, role, program)
        message = self.message(order.task, agent)
        inside = self.sandbox.command(room) if self.sandbox and room else []
        launch = Launch(
            argv,
            agent.directory,
            inside,
            self._commit(agent, message) if inside and message and agent.base else [],
            COMMIT_S,
            role.max_minutes if role else None,
            role.max_cost_usd if role else None,
            self.collection(agent, message),
            room.owned if room else [],
            ledger=str(self.folders.streams.ledger.path),
        )
        return launch, prompt

    def inside(self, agent: LocalAgent, role: Persona | None) -> list[str]:
        """The command that runs another one in an agent's sandbox. Raises 503 without one.

        An agent of version 0.1 has no repository that git would have to be protected from.
        """
        if self.sandbox is None and agent.base is None:
            return []
        if self.sandbox is None:
            raise FleetError.unavailable(
                "There is no sandbox here to work in the agent's repository. Give the agent the"
                " task instead."
            )
        room = self._room(agent, role, None)
        command = self.sandbox.command(room)
        clear_mount_points(command, room.owned)
        return command

    def message(self, task: str, agent: LocalAgent) -> str | None:
        """What the commit of a task says: its first line, and the whole task if that is longer."""
        if not self.commit:
            return None
        subject = shorten(task, SUBJECT)
        body = "" if subject == task else f"\n\n{task}"
        return f"{subject}{body}\n\nAgent: {agent.name}"

    def set_up(self, agent: LocalAgent, role: Persona, environment: Environment) -> None:
        """Run the set-up of a new agent's directory. Raises 503."""
        inside = [] if self.sandbox is None else self.inside(agent, role)
        env = {**self.environ, **variables_of(agent)}
        set_up(agent, environment, inside, env, self.folders.setup_log(agent))

    def variables(self, program: Program, agent: LocalAgent) -> dict[str, str]:
        """The environment of an agent's program."""
        inherited = {k: v for k, v in self.environ.items() if k not in program.unset}
        own = {**variables_of(agent), DEPTH_VARIABLE: str(self.depth + 1)}
        return {**inherited, **own, **(program.set if self.sandbox else {})}

    def collection(self, agent: LocalAgent, message: str | None) -> Collection | None:
        """How the work of a task gets to the agent's branch; a plain copy has none."""
        if agent.branch is None:
            return None
        return Collection(
            str(self.folders.root),
            agent.name,
            str(self.copies.root),
            str(self.copies.kept.root),
            str(self.copies.locks),
            self.copies.author,
            message,
        )

    def _commit(self, agent: LocalAgent, message: str) -> list[list[str]]:
        """The commands, run inside the sandbox, that commit what a task left."""
        root = self.copies.root / agent.key
        inside = Repository(root / ".git", root)
        who = self.copies.git.identity(self.copies.origin_of(agent), self.copies.author)
        names = [f"{name}={value}" for name, value in who.variables.items()]
        git = ["env", *names, "git", "--no-pager", *inside.arguments, *NOTHING_OF_ITS_OWN]
        # A program that was killed may have left them.
        left = [str(inside.git_dir / name) for name in ("index.lock", "HEAD.lock")]
        return [
            ["rm", "-f", *left],
            [*git, "add", "--all"],
            [*git, "commit", "--quiet", "--no-verify", "--message", message],
        ]

    def _room(self, agent: LocalAgent, role: Persona | None, program: Program | None) -> Room:
        allowed = [_permitted(each, self.home) for each in (role.paths if role else ())]
        home, readable, writable = self._program_home(agent, program)
        readable += self._runtime(program)
        readable += self._borrowed(agent)
        return Room(
            Path(agent.directory),
            self.copies.root / agent.key,
            self.folders.home(agent),
            (*readable, *(path for path, may_write in allowed if not may_write)),
            (*writable, *(path for path, may_write in allowed if may_write)),
            home,
            role.network if role else True,
        )

    def _runtime(self, program: Program | None) -> list[Path]:
        """The program itself, and the files that its command names."""
        if program is None:
            return []
        path = self.path_of(program)
        found = self.sandbox.runtime_of(Path(path)) if path and self.sandbox else []
        named = [Path(word) for word in program.command[1:] if word.startswith("/")]
        if program.gated and self.sandbox:
            found += [GATE, *self.sandbox.runtime_of(Path(sys.executable))]
        return [*found, *(each for each in named if each.exists())]

    def _borrowed(self, agent: LocalAgent) -> list[Path]:
        """The user's objects; a worktree of version 0.1 needs the whole git directory."""
        if agent.branch is None:
            return []
        objects = objects_of(self.copies.git, self.copies.origin_of(agent))
        return [*lenders(objects), *([] if agent.base else [objects.parent])]

    def _program_home(
        self, agent: LocalAgent, program: Program | None
    ) -> tuple[tuple[Path, Path] | None, list[Path], list[Path]]:
        """The program's own home: a place of the agent's, with a few files of the user's."""
        if program is None or program.home is None:
            return None, [], []
        given = program.home.variable and self.environ.get(program.home.variable)
        place = Path(given) if given else self.home / program.home.path
        apart = None
        if not place.is_relative_to(self.home):
            ours = self.folders.home(agent) / program.home.path
            ours.mkdir(parents=True, exist_ok=True, mode=0o700)
            apart = (ours, place)
        readable = [place / name for name in program.home.readable]
        return apart, readable, [place / name for name in program.home.shared]


def _permitted(given: str, home: Path) -> tuple[Path, bool]:
    """A path that a role lists, and whether it may be written."""
    name = given.removesuffix(":rw")
    return expand_home(name, home), name != given
