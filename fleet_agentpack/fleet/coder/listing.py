"""Pages of Coder's list of workspaces, read only as far as a list of agents needs.

Coder repeats everything it knows about each workspace in them, with all that its apps ever
reported. What a list of agents does not show is skipped; a page is read in full only when it has
news for the ledger.
"""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter

from msgspec import Raw, Struct
from msgspec.json import Decoder

from fleet_agentpack.fleet.coder import models

NULL = Raw(b"null")
_AGENTS = attrgetter("agents")


class ListedWorkspaceAgent(models.AgentState, frozen=True, kw_only=True, gc=False):
    """The process that Coder runs inside a workspace, its apps unread."""

    apps: Raw = NULL


class ListedResource(Struct, frozen=True, gc=False):
    """Something that a build made."""

    agents: list[ListedWorkspaceAgent] | None = None


class ListedBuild(Struct, frozen=True, gc=False):
    """The latest build of a workspace."""

    id: str
    status: str = ""
    resources: list[ListedResource] | None = None


class ListedWorkspace(Struct, frozen=True, gc=False):
    """A workspace as far as a list of agents needs it."""

    id: str
    name: str
    latest_build: ListedBuild
    latest_app_status: Raw = NULL

    @property
    def agent(self) -> ListedWorkspaceAgent | None:
        """The first agent that is not a sub-agent."""
        return models.first_agent(map(_AGENTS, self.latest_build.resources or ()))


class _Rows(Struct, frozen=True, gc=False):
    workspaces: list[ListedWorkspace] | None
    count: int = 0


_ROWS = Decoder(_Rows)


class ListPage:
    """One page: its rows, and the total over all pages. Raises `ValueError` for anything else."""

    def __init__(self, body: bytes) -> None:
        found = _ROWS.decode(body)
        self._body = body
        self.rows = found.workspaces or []
        self.total = found.count

    @cached_property
    def in_full(self) -> dict[str, models.Workspace]:
        """The workspaces with everything that we know how to read, by id."""
        page = models.WORKSPACE_PAGE.decode(self._body)
        return {workspace.id: workspace for workspace in page.workspaces or []}
