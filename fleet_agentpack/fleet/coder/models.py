"""Coder's objects, leniently read: unknown fields ignored, null lists empty, no closed enums.

States stay plain text here; `backend.py` maps those it knows and takes the safe one for the rest.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, TypeAdapter


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class AppStatus(_Lenient):
    """A report of an app about itself."""

    id: str
    created_at: datetime
    app_id: str = ""
    state: str = ""
    message: str = ""


class App(_Lenient):
    """An app of a workspace's agent."""

    id: str = ""
    slug: str = ""
    statuses: list[AppStatus] | None = None


class WorkspaceAgent(_Lenient):
    """The process that Coder runs inside a workspace."""

    id: str
    name: str
    parent_id: str | None = None
    status: str = ""
    lifecycle_state: str = ""
    apps: list[App] | None = None


class Resource(_Lenient):
    """Something that a build made."""

    agents: list[WorkspaceAgent] | None = None


class Job(_Lenient):
    """The provisioner's job of a build."""

    status: str = ""
    error: str | None = None

    @property
    def active(self) -> bool:
        """Whether it is still to end."""
        return self.status in ("pending", "running", "canceling")


class MatchedProvisioners(_Lenient):
    """Who could run a build."""

    count: int = 0
    available: int = 0


class Build(_Lenient):
    """One transition of a workspace."""

    id: str
    created_at: datetime
    updated_at: datetime
    build_number: int = 0
    transition: str = ""
    status: str = ""
    job: Job
    resources: list[Resource] | None = None
    matched_provisioners: MatchedProvisioners | None = None


class Workspace(_Lenient):
    """A workspace with its latest build."""

    id: str
    name: str
    owner_name: str = ""
    created_at: datetime
    updated_at: datetime
    template_id: str = ""
    template_name: str = ""
    latest_build: Build
    latest_app_status: AppStatus | None = None

    def agent(self) -> WorkspaceAgent | None:
        """The first agent that is not another one's child."""
        for resource in self.latest_build.resources or []:
            for agent in resource.agents or []:
                if agent.parent_id is None:
                    return agent
        return None


class WorkspacePage(_Lenient):
    """A page of a list of workspaces."""

    workspaces: list[Workspace] | None
    count: int = 0


class Template(_Lenient):
    """What workspaces are made from."""

    id: str
    name: str
    display_name: str = ""
    description: str = ""
    organization_name: str = ""
    active_version_id: str = ""
    deprecated: bool = False


class ParameterOption(_Lenient):
    """A value that a parameter may have."""

    name: str = ""
    description: str = ""
    value: str


class Parameter(_Lenient):
    """A parameter that a template asks for."""

    name: str
    options: list[ParameterOption] | None = None
    required: bool = False


class ParameterValue(_Lenient):
    """A parameter that a build was given."""

    name: str
    value: str = ""


class BuildLog(_Lenient):
    """A line of a build's log."""

    id: int
    log_level: str = ""
    stage: str = ""
    output: str = ""

    @property
    def text(self) -> str:
        """The line, or the stage that it begins."""
        return self.output or self.stage


class MetadataResult(_Lenient):
    """A value that an agent collected."""

    collected_at: datetime
    value: str = ""


class MetadataDescription(_Lenient):
    """What the value is; its script is nobody's business."""

    key: str


class Metadata(_Lenient):
    """A piece of agent metadata."""

    result: MetadataResult
    description: MetadataDescription


class AgentApiStatus(_Lenient):
    """Whether the program inside is at work."""

    status: str = ""


class AgentApiMessage(_Lenient):
    """A message of the conversation inside."""

    role: str = ""
    content: str = ""
    time: datetime | None = None


class AgentApiMessages(_Lenient):
    """The conversation inside."""

    messages: list[AgentApiMessage] | None


TEMPLATES = TypeAdapter(list[Template] | None)
PARAMETERS = TypeAdapter(list[Parameter] | None)
VALUES = TypeAdapter(list[ParameterValue] | None)
LOGS = TypeAdapter(list[BuildLog] | None)
METADATA = TypeAdapter(list[Metadata] | None)
