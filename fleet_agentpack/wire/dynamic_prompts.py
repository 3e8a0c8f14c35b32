"""Prompts that come and go while clients are connected, described by data."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio.to_thread
from fastmcp.exceptions import PromptError, ValidationError
from fastmcp.prompts.base import Message, Prompt, PromptArgument, PromptResult
from fastmcp.server.providers.base import Provider
from mcp_types import ListPromptsResult
from mcp_types import Prompt as WirePrompt
from mcp_types.methods import serialize_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import PrivateAttr

from fleet_agentpack.kit.actions import steps
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.stamps import Stamp
from fleet_agentpack.settings import SettingsError
from fleet_agentpack.wire.installed_state import (
    InstalledState,
    ListedTool,
    prompts_state_path,
    read_state,
    stamps_of,
)
from fleet_agentpack.wire.known_shapes import MODERN

if TYPE_CHECKING:
    from fastmcp.utilities.components import FastMCPComponent
    from fastmcp.utilities.versions import VersionSpec

    from fleet_agentpack.wire.provider import DomainTools, Services


@dataclass(frozen=True)
class PromptText:
    """A prompt with its arguments filled in."""

    text: str
    meta: dict[str, Any] | None = None


@dataclass(frozen=True)
class DynamicPrompt:
    """A prompt described by data; every argument is text and may be left out."""

    name: str
    description: str
    arguments: Sequence[tuple[str, str]]  # name and description
    render: Callable[[Mapping[str, str]], Awaitable[PromptText]]


class PromptCatalogue(Protocol):
    """Where a domain's dynamic prompts come from."""

    def prompts(self) -> Sequence[DynamicPrompt]:
        """The prompts that there are now."""

    def sources(self) -> Mapping[str, Stamp | None]:
        """The files whose change may change the prompts, as they are now.

        While none of them exists there are no prompts.
        """


class ProjectedPrompt(Prompt):
    """A dynamic prompt as FastMCP sees it."""

    _prompt: DynamicPrompt = PrivateAttr()

    @classmethod
    def of(cls, prompt: DynamicPrompt) -> ProjectedPrompt:
        """The FastMCP prompt for a described one."""
        arguments = [
            PromptArgument(name=name, description=description, required=False)
            for name, description in prompt.arguments
        ]
        projected = cls(name=prompt.name, description=prompt.description, arguments=arguments)
        projected._prompt = prompt
        return projected

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """The prompt's one message; an error says what is wrong and what to do."""
        try:
            made = await self._prompt.render(arguments or {})
        except AppError as error:
            kind = ValidationError if error.is_about_arguments else PromptError
            message = ". ".join([str(error), *steps(error.actions)])
            raise kind(message, log_level=logging.DEBUG) from error
        return PromptResult([Message(made.text)], self.description, made.meta)

    def to_mcp_prompt(self, **overrides: Any) -> WirePrompt:
        """The prompt as listed, without FastMCP's bookkeeping."""
        return super().to_mcp_prompt(**{"_meta": None, **overrides})


class DynamicPrompts(Provider):
    """Serves a domain's prompts to FastMCP; nothing is registered, so nothing goes stale."""

    kind = "prompts"

    def __init__(self, domain: DomainTools, services: Services) -> None:
        super().__init__()
        self._domain, self._services = domain, services
        self._kept_stamps: Mapping[str, Stamp | None] | None = None

    def fingerprint(self) -> object:
        """A value that differs when the prompts may have changed.

        The files as they are now: two changes of a file that was just written differ, too.
        """
        return stamps_of(self.sources())

    def sources(self) -> Mapping[str, Stamp | None]:
        """See `PromptCatalogue.sources`."""
        try:
            return self._catalogue().sources()
        except (AppError, SettingsError):
            return {}

    async def get_tasks(self) -> Sequence[FastMCPComponent]:
        """None: a prompt never runs as a background task."""
        return []

    async def _list_prompts(self) -> Sequence[Prompt]:
        return await anyio.to_thread.run_sync(self._listed_now)

    async def _get_prompt(
        self,
        name: str,
        version: VersionSpec | None = None,  # noqa: ARG002
    ) -> Prompt | None:
        found = await anyio.to_thread.run_sync(self._prompts)
        return next((ProjectedPrompt.of(each) for each in found if each.name == name), None)

    def _prompts(self) -> Sequence[DynamicPrompt]:
        try:
            return self._catalogue().prompts()
        except (AppError, SettingsError):
            return []

    def _listed_now(self) -> list[ProjectedPrompt]:
        stamps = self.sources()
        prompts = [ProjectedPrompt.of(each) for each in self._prompts()]
        if stamps != self._kept_stamps:
            self._kept_stamps = stamps
            self._keep_for_the_front(stamps, prompts)
        return prompts

    def _keep_for_the_front(
        self, stamps: Mapping[str, Stamp | None], prompts: Sequence[ProjectedPrompt]
    ) -> None:
        """Write down how these prompts are listed, so that the next start can tell without us."""
        settings = self._services.settings
        cache, project = str(settings.directories.cache), settings.place.path
        path = Path(prompts_state_path(cache, self._domain.name, project))
        with contextlib.suppress(OSError, ValueError):  # a cache: done without
            state = InstalledState(stamps, tuple(map(_listed, prompts)))
            worth_it = project and any(stamps.values()) and state.certain
            if worth_it and read_state(str(path)) != state:
                write_atomic(path, state.to_json())

    def _catalogue(self) -> PromptCatalogue:
        assert self._domain.prompt_catalogue is not None  # noqa: S101 - made only for those with one
        return self._domain.prompt_catalogue(self._services.get(self._domain))


def _listed(prompt: ProjectedPrompt) -> ListedTool:
    """A prompt as the SDK writes it in either era."""
    result = ListPromptsResult(prompts=[prompt.to_mcp_prompt()])
    plain = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    legacy, modern = (
        json.dumps(
            serialize_server_result("prompts/list", version, plain)["prompts"][0],
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for version in (LATEST_HANDSHAKE_VERSION, MODERN)
    )
    return ListedTool(legacy, modern, writes=False)
