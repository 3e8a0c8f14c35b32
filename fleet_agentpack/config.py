"""The shape of config.toml, table by table; imported when there is something in that file."""

from __future__ import annotations

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
class CoderTable:
    """`[fleet.coder]`: the names that a deployment of Coder uses."""

    role_parameter: Text | None = None
    spec_parameter: Text | None = None
    app_slug: Text | None = None
    projects: Mapping[str, Text] = field(default_factory=dict)  # our name → template


@dataclass(frozen=True)
class ProjectTable:
    """`[fleet.projects.NAME]`: a git repository on this machine."""

    path: Text


@dataclass(frozen=True)
class RoleTable:
    """`[fleet.roles.NAME]`: what an agent is told about its work."""

    display_name: Text | None = None
    description: Text | None = None
    prompt: Text | None = None


@dataclass(frozen=True)
class FleetTable:
    """`[fleet]`: where agents run, and as what."""

    engine: Text | None = None
    program: Text | None = None
    create_timeout_s: Seconds = 240.0  # some clients end every call at 300
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
