"""What FastMCP lists of the chosen tools: under their names here, and in words that fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from fastmcp.exceptions import NotFoundError
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.transforms import GetToolNext, Transform

from fleet_agentpack.wire.provider import WRITES_TAG, DomainTool, uri_of

if TYPE_CHECKING:
    from fastmcp.prompts.base import Prompt
    from fastmcp.tools.base import Tool
    from fastmcp.utilities.versions import VersionSpec

    from fleet_agentpack.wire.provider import DomainTools
    from fleet_agentpack.wire.selection import Choice

R = TypeVar("R", Resource, ResourceTemplate)


class LeftOutError(NotFoundError):
    """A tool that is there but was left out, and by which option."""

    def __init__(self, option: str) -> None:
        super().__init__(option)
        self.option = option


class Selected(Transform):
    """Lists tools under the names that clients see; `get_tool` takes our own.

    The middleware has made ours of a client's name, so that nothing else has to know of two.
    """

    def __init__(self, choice: Choice, domains: Sequence[DomainTools]) -> None:
        self._choice = choice
        self._needs: Mapping[str, Sequence[str]] = {
            prompt: tools for domain in domains for prompt, tools in domain.needs.items()
        }
        self._texts = {uri: text for domain in domains for uri, text in domain.texts.items()}
        self._made: dict[str, DomainTool] = {}

    async def list_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """The chosen tools, renamed and described anew."""
        return [self._renamed(tool) for tool in tools if not self._why_left_out(tool)]

    async def get_tool(
        self, name: str, call_next: GetToolNext, *, version: VersionSpec | None = None
    ) -> Tool | None:
        """A tool by our own name. Raises `LeftOutError` for one that was not chosen."""
        tool = await call_next(name, version=version)
        if tool is not None and (option := self._why_left_out(tool)):
            raise LeftOutError(option)
        return tool

    async def list_prompts(self, prompts: Sequence[Prompt]) -> Sequence[Prompt]:
        """The prompts whose tools are all there."""
        names = self._choice.names
        return [each for each in prompts if names.keys() >= set(self._needs.get(each.name, ()))]

    async def list_resources(self, resources: Sequence[Resource]) -> Sequence[Resource]:
        """The resources, described anew."""
        return [self._described(each) for each in resources]

    async def list_resource_templates(
        self, templates: Sequence[ResourceTemplate]
    ) -> Sequence[ResourceTemplate]:
        """The templates, described anew."""
        return [self._described(each) for each in templates]

    def _why_left_out(self, tool: Tool) -> str:
        return self._choice.why_left_out(tool.name, writes=WRITES_TAG in tool.tags)

    def _renamed(self, tool: Tool) -> Tool:
        name = self._choice.selection.renamed(tool.name)
        if not isinstance(tool, DomainTool):
            return tool.model_copy(update={"name": name})
        if name not in self._made:
            self._made[name] = tool.worded(name, self._choice.name)
        return self._made[name]

    def _described(self, resource: R) -> R:
        text = self._texts.get(uri_of(resource))
        if text is None:
            return resource
        return resource.model_copy(update={"description": self._choice.worded(text)})
