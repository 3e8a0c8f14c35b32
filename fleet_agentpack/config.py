"""The shape of config.toml, table by table; imported when there is something in that file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fleet_agentpack.kit.shapes import Rule, Seconds, Text

Names = Annotated[tuple[str, ...], Rule("a list of names")]
Arguments = Annotated[tuple[str, ...], Rule("a list of arguments, each of them text")]

LEAST_BYTES, MOST_BYTES = 4_096, 10_000_000
ResultBytes = Annotated[
    int,
    Rule(
        f"a number of bytes from {LEAST_BYTES:,} to {MOST_BYTES:,}",
        lambda count: LEAST_BYTES <= count <= MOST_BYTES,
    ),
]


Positive = Annotated[float, Rule("a number above 0", lambda number: number > 0)]
AtLeastOne = Annotated[int, Rule("a whole number above 0", lambda count: count > 0)]
PORTS = re.compile(r"(\d{1,5})-(\d{1,5})")


def _is_range_of_ports(text: str) -> bool:
    found = PORTS.fullmatch(text)
    return found is not None and 0 < int(found[1]) <= int(found[2]) < 65_536


Ports = Annotated[str, Rule("a range of ports, such as 4000-4099", _is_range_of_ports)]


@dataclass(frozen=True)
class HttpTable:
    """`[http]`: how the server listens."""

    token_file: Annotated[str, Rule("a path")] | None = None
    allowed_hosts: Names = ()
    projects: Annotated[tuple[str, ...], Rule("a list of directories")] = ()


@dataclass(frozen=True)
class ApprovalTable:
    """`[approval]`: when a person is asked, besides the `yes` of a call."""

    ask: Literal["never", "risky", "always", "require"] = "never"


@dataclass(frozen=True)
class LimitsTable:
    """`[limits]`: how large an answer may be."""

    result_bytes: ResultBytes = 32_768


@dataclass(frozen=True)
class TemplateTable:
    """`[fleet.coder.templates.NAME]`: how a template that knows no roles is used for agents."""

    role_parameter: Text | None = None
    spec_parameter: Text | None = None
    preset: Text | None = None  # for every role
    presets: Mapping[str, Text] = field(default_factory=dict)  # role → preset
    parameters: Mapping[str, str] = field(default_factory=dict)  # whatever else it asks for


@dataclass(frozen=True)
class CoderTable:
    """`[fleet.coder]`: the names that a deployment of Coder uses."""

    role_parameter: Text | None = None
    spec_parameter: Text | None = None
    app_slug: Text | None = None
    projects: Mapping[str, Text] = field(default_factory=dict)  # our name → template
    templates: Mapping[str, TemplateTable] = field(default_factory=dict)
    start_stopped: bool = False  # a task for an agent in a stopped workspace starts it


@dataclass(frozen=True)
class ProjectTable:
    """`[fleet.projects.NAME]`: a git repository on this machine, and what its agents need."""

    path: Text
    base: Text | None = None  # the branch that new agents start from
    setup: Text | None = None  # run once in a new agent's directory
    setup_minutes: Positive = 15.0
    copy: Annotated[tuple[str, ...], Rule("a list of files and patterns")] = ()
    submodules: bool = False
    with_changes: bool = False  # new agents get the project's uncommitted changes
    ports: Ports | None = None
    max_running: AtLeastOne | None = None


@dataclass(frozen=True)
class RoleTable:
    """`[fleet.roles.NAME]`: what an agent is told about its work."""

    display_name: Text | None = None
    description: Text | None = None
    prompt: Text | None = None
    allow: Annotated[tuple[str, ...], Rule("a list of commands and paths")] = ()
    network: bool = True
    program: Text | None = None
    model: Text | None = None
    max_minutes: Positive | None = None
    max_cost_usd: Positive | None = None


@dataclass(frozen=True)
class FleetTable:
    """`[fleet]`: where agents run, and as what."""

    engine: Text | None = None
    program: Text | None = None
    create_timeout_s: Seconds = 240.0  # some clients end every call at 300
    sandbox: Literal["auto", "off"] = "auto"
    max_agents: AtLeastOne = 100
    max_depth: AtLeastOne = 1  # 1: agents create no agents
    commit: bool = True  # commit what an agent leaves uncommitted when its task ends
    author: Annotated[str, Rule("an author: Name <email>", lambda text: "<" in text)] | None = None
    coder: CoderTable = field(default_factory=CoderTable)
    projects: Mapping[str, ProjectTable] = field(default_factory=dict)
    roles: Mapping[str, RoleTable] = field(default_factory=dict)
    programs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ContainerTable:
    """`[enact.container]`: how the container program is called on this machine."""

    program: Annotated[Text, Rule("the name of a program")] | None = None
    global_args: Arguments = ()
    run_args: Arguments = ()
    relabel: bool = False


@dataclass(frozen=True)
class EnactTable:
    """`[enact]`."""

    container: ContainerTable = field(default_factory=ContainerTable)


@dataclass(frozen=True)
class ClimptTable:
    """`[climpt]`: `execute` is "render" or "cli"."""

    execute: str | None = None


@dataclass(frozen=True)
class ConfigFile:
    """The whole file."""

    http: HttpTable = field(default_factory=HttpTable)
    approval: ApprovalTable = field(default_factory=ApprovalTable)
    limits: LimitsTable = field(default_factory=LimitsTable)
    fleet: FleetTable = field(default_factory=FleetTable)
    enact: EnactTable = field(default_factory=EnactTable)
    climpt: ClimptTable = field(default_factory=ClimptTable)
