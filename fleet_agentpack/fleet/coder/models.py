"""Coder's objects, read leniently: unknown fields are ignored, null lists empty, enums open.

States stay plain text here; `snapshot.py` maps the known ones and takes the safe one for the rest.
A workspace is 5 kB of JSON, of which a tenth is needed: msgspec skips the rest unread. None of
these objects can be part of a cycle, so the garbage collector need not track them (`gc=False`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, TypeVar

from msgspec import Meta, Struct, field
from msgspec.json import Decoder

Moment = Annotated[datetime, Meta(tz=True)]
START_ERROR = "start_error"
GONE = (START_ERROR, "shutting_down", "shutdown_timeout", "shutdown_error", "off")


class AppStatus(Struct, frozen=True, kw_only=True, gc=False):
    """A report of an app about itself."""

    id: str
    created_at: Moment
    app_id: str = ""
    state: str = ""
    message: str = ""
    uri: str = ""
    needs_user_attention: bool = False


class App(Struct, frozen=True, kw_only=True, gc=False):
    """An app of a workspace's agent."""

    id: str = ""
    slug: str = ""
    statuses: list[AppStatus] | None = None


class AgentState(Struct, frozen=True, kw_only=True, gc=False):
    """The state of the process that Coder runs inside a workspace."""

    parent_id: str | None = None
    status: str = ""
    lifecycle_state: str = ""
    last_connected_at: Moment | None = None  # not older than a heartbeat while it is connected

    @property
    def connected(self) -> bool:
        """Whether Coder is in touch with it, and it has come up."""
        return self.status == "connected" and self.lifecycle_state not in GONE


class WorkspaceAgent(AgentState, frozen=True, kw_only=True, gc=False):
    """The process that Coder runs inside a workspace."""

    id: str
    name: str
    apps: list[App] | None = None


class Resource(Struct, frozen=True, kw_only=True, gc=False):
    """Something that a build made."""

    agents: list[WorkspaceAgent] | None = None


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """The provisioner's job of a build."""

    status: str = ""
    error: str | None = None

    @property
    def active(self) -> bool:
        """Whether it has not ended yet."""
        return self.status in ("pending", "running", "canceling")


class MatchedProvisioners(Struct, frozen=True, kw_only=True, gc=False):
    """The provisioners that could run a build."""

    count: int = 0


class Build(Struct, frozen=True, kw_only=True, gc=False):
    """One transition of a workspace."""

    id: str
    created_at: Moment
    updated_at: Moment
    transition: str = ""
    status: str = ""
    job: Job
    resources: list[Resource] | None = None
    matched_provisioners: MatchedProvisioners | None = None


class Workspace(Struct, frozen=True, kw_only=True, gc=False):
    """A workspace with its latest build."""

    id: str
    name: str
    owner_name: str = ""
    created_at: Moment
    updated_at: Moment
    template_name: str = ""
    latest_build: Build
    latest_app_status: AppStatus | None = None

    def agent(self) -> WorkspaceAgent | None:
        """The first agent that is not a sub-agent."""
        return first_agent(one.agents for one in self.latest_build.resources or ())

    @property
    def is_coming_up(self) -> bool:
        """Whether it was started and is not there yet."""
        build, agent = self.latest_build, self.agent()
        is_connecting = agent is not None and agent.status == "connecting"
        return build.transition == "start" and (build.job.active or is_connecting)


class WorkspacePage(Struct, frozen=True, kw_only=True, gc=False):
    """A page of a list of workspaces."""

    workspaces: list[Workspace] | None


class Template(Struct, frozen=True, kw_only=True, gc=False):
    """What workspaces are made from."""

    id: str
    name: str
    display_name: str = ""
    description: str = ""
    organization_name: str = ""
    active_version_id: str = ""
    deprecated: bool = False

    @property
    def full_name(self) -> str:
        """The name that is unique among all organizations."""
        return f"{self.organization_name}/{self.name}".lower()


class ParameterOption(Struct, frozen=True, kw_only=True, gc=False):
    """A value that a parameter may have."""

    name: str = ""
    description: str = ""
    value: str


class Parameter(Struct, frozen=True, kw_only=True, gc=False):
    """A parameter that a template asks for."""

    name: str
    options: list[ParameterOption] | None = None
    required: bool = False


class PresetValue(Struct, frozen=True, kw_only=True, gc=False, rename="pascal"):
    """A parameter that a preset sets."""

    name: str
    value: str = ""


class Preset(Struct, frozen=True, kw_only=True, gc=False, rename="pascal"):
    """Values for a template's parameters that go together; Coder writes it in capitals."""

    id: str = field(name="ID")
    name: str
    parameters: list[PresetValue] | None = None
    description: str = ""

    @property
    def values(self) -> dict[str, str]:
        """Its values by parameter."""
        return {one.name: one.value for one in self.parameters or ()}


class ParameterValue(Struct, frozen=True, kw_only=True, gc=False):
    """A parameter that a build was given."""

    name: str
    value: str = ""


class BuildLog(Struct, frozen=True, kw_only=True, gc=False):
    """A line of a build's log."""

    id: int
    stage: str = ""
    output: str = ""

    @property
    def text(self) -> str:
        """The line, or the stage that it begins."""
        return self.output or self.stage


class MetadataResult(Struct, frozen=True, kw_only=True, gc=False):
    """A value that an agent collected."""

    collected_at: Moment
    value: str = ""

    @property
    def collected(self) -> bool:
        """Whether there is a value yet; until then Coder gives the year 1."""
        return bool(self.value) and self.collected_at.year > 1


class MetadataDescription(Struct, frozen=True, kw_only=True, gc=False):
    """Which value it is."""

    key: str


class Metadata(Struct, frozen=True, kw_only=True, gc=False):
    """A piece of agent metadata."""

    result: MetadataResult
    description: MetadataDescription


class AgentApiStatus(Struct, frozen=True, kw_only=True, gc=False):
    """Whether the program inside is working."""

    status: str = ""


class AgentApiMessage(Struct, frozen=True, kw_only=True, gc=False):
    """A message of the conversation inside."""

    id: int = 0
    role: str = ""
    content: str = ""
    time: Moment | None = None


class AgentApiMessages(Struct, frozen=True, kw_only=True, gc=False):
    """The conversation inside."""

    messages: list[AgentApiMessage] | None


A = TypeVar("A", bound=AgentState)


def first_agent(resources: Iterable[list[A] | None]) -> A | None:
    """The first agent that is not a sub-agent, of the agents that each resource has."""
    for agents in resources:
        for agent in agents or ():
            if agent.parent_id is None:
                return agent
    return None


WORKSPACE = Decoder(Workspace)
WORKSPACE_PAGE = Decoder(WorkspacePage)
BUILD = Decoder(Build)
TEMPLATES = Decoder(list[Template] | None)
PARAMETERS = Decoder(list[Parameter] | None)
PRESETS = Decoder(list[Preset] | None)
VALUES = Decoder(list[ParameterValue] | None)
LOGS = Decoder(list[BuildLog] | None)
METADATA = Decoder(list[Metadata] | None)
STATUS = Decoder(AgentApiStatus)
MESSAGES = Decoder(AgentApiMessages)
