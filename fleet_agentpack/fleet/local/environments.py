"""What an agent of a project starts with: its set-up, its ports, and how many there may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import LocalAgent
from fleet_agentpack.fleet.local.kept import named
from fleet_agentpack.kit.process import ProcessTimeoutError, run, without_colours

DEPTH_VARIABLE = "FLEET_AGENTPACK_DEPTH"  # how far down a program is: agents of agents of a person
PORTS_VARIABLE = "FLEET_AGENTPACK_PORTS"
PORTS_EACH = 10
LOG_SHOWN = 2000  # characters of a set-up's log in the error
_INTO_LOG = 'exec >"$1" 2>&1; shift; exec "$@"'


@dataclass(frozen=True)
class Environment:
    """A project on this machine, as it is configured."""

    path: Path
    base: str | None = None
    setup: str | None = None
    setup_minutes: float = 15.0
    copy: tuple[str, ...] = ()
    submodules: bool = False
    with_changes: bool = False
    ports: range = field(default=range(0))
    max_running: int | None = None


@dataclass(frozen=True)
class Limits:
    """How many agents there may be, and how far down from a person."""

    max_agents: int
    max_depth: int
    depth: int = 0  # of this process

    def check(self, agents: Sequence[LocalAgent]) -> None:
        """Check that another agent may be created. Raises 503."""
        if self.depth >= self.max_depth:
            raise FleetError.unavailable(
                "This is an agent's own program, and agents may not create agents here"
                f" ([fleet] max_depth = {self.max_depth}).",
                limit=self.max_depth,
            )
        if len(agents) >= self.max_agents:
            raise FleetError.unavailable(
                f"There are {len(agents)} agents, and [fleet] max_agents is {self.max_agents}."
                " Delete some of them first.",
                limit=self.max_agents,
            )


def free_ports(environment: Environment, agents: Sequence[LocalAgent]) -> tuple[int, int] | None:
    """Ports for another agent, if its project has any. Raises 503 when all are taken."""
    if not environment.ports:
        return None
    taken = {
        port for each in agents if each.ports for port in range(each.ports[0], each.ports[1] + 1)
    }
    size = min(PORTS_EACH, len(environment.ports))
    for first in environment.ports[::size]:
        block = range(first, first + size)
        if block[-1] in environment.ports and taken.isdisjoint(block):
            return block[0], block[-1]
    holders = [each.name for each in agents if each.ports]
    text = f"{environment.ports[0]}-{environment.ports[-1]}"
    raise FleetError.unavailable(
        f"No ports are left of {text}: an agent gets {size}, and they are taken by"
        f" {named(holders)}. Delete an agent, or give the project more ports.",
        ports=text,
    )


def variables_of(agent: LocalAgent) -> dict[str, str]:
    """What the programs of an agent are told about its ports."""
    if agent.ports is None:
        return {}
    first, last = agent.ports
    return {"PORT": str(first), PORTS_VARIABLE: f"{first}-{last}"}


def about_ports(ports: tuple[int, int] | None) -> str:
    """The same in words."""
    if ports is None:
        return ""
    return f"\n\nServers that you start may use the ports {ports[0]} to {ports[1]}, no others."


def set_up(
    agent: LocalAgent,
    environment: Environment,
    inside: Sequence[str],
    env: Mapping[str, str],
    log: Path,
) -> None:
    """Run a project's set-up for a new agent, in its sandbox. Raises 503 with the log's end."""
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    into_log = ["/bin/sh", "-c", _INTO_LOG, "sh", str(log)]
    command = ["/bin/sh", "-c", str(environment.setup)]
    try:
        done = run(
            [*into_log, *inside, *command],
            cwd=Path(agent.directory),
            env=env,
            timeout_s=environment.setup_minutes * 60,
        )
        how = f"failed with status {done.status}" if done.status else ""
    except ProcessTimeoutError:
        limit = f"{environment.setup_minutes:g} minutes, its setup_minutes"
        how = f"was ended after {limit}"
    if how:
        said = without_colours(log.read_text("utf-8", "replace")).strip()
        cut = f"…{said[-LOG_SHOWN:]}" if len(said) > LOG_SHOWN else said
        raise FleetError.unavailable(
            f"The setup of project '{agent.project}' {how}, and the agent was not created."
            f"{f' It said:{chr(10)}{cut}' if said else ''}",
            log=str(log),
        )
