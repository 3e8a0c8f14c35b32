"""A domain's tools as FastMCP providers: typed functions under `@mcp.tool`, a service injected.

The signature makes the input schema, which is tidied here, once; the docstring is the description.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from fastmcp.dependencies import CurrentContext
from fastmcp.exceptions import ValidationError
from fastmcp.prompts.base import Prompt, PromptResult
from fastmcp.prompts.function_prompt import FunctionPrompt
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.context import Context
from fastmcp.server.dependencies import get_context
from fastmcp.server.providers.local_provider import LocalProvider
from fastmcp.tools.base import Tool, ToolResult
from fastmcp.tools.function_tool import FunctionTool
from mcp_types import Tool as WireTool
from mcp_types import ToolAnnotations
from pydantic import PrivateAttr
from pydantic import ValidationError as PydanticError
from pydantic_core import PydanticSerializationError, to_json

from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.approval import NotApprovedError
from fleet_agentpack.kit.errors import AppError, Problem
from fleet_agentpack.settings import Settings, SettingsError
from fleet_agentpack.wire.declared import DeclaredTools, only_its_parameters
from fleet_agentpack.wire.limits import bounded
from fleet_agentpack.wire.projects import named_project
from fleet_agentpack.wire.queues import turn
from fleet_agentpack.wire.recorded import Note
from fleet_agentpack.wire.replies import ToolRefused, written
from fleet_agentpack.wire.resources import (
    Collection,
    CollectionPages,
    KeptAnswers,
    List,
    Listed,
)
from fleet_agentpack.wire.schema import tidy, without_nulls
from fleet_agentpack.wire.selection import Facts
from fleet_agentpack.wire.wording import tools_named, worded, worded_arguments

if TYPE_CHECKING:
    from fastmcp.utilities.versions import VersionSpec

    from fleet_agentpack.wire.completion import Values
    from fleet_agentpack.wire.dynamic import Catalogue
    from fleet_agentpack.wire.dynamic_prompts import PromptCatalogue

SERVICES: Final = "services"  # in the server's lifespan context
WRITES_TAG = "writes"
NO_TOOLS: Mapping[str, Action] = {}
SLOW = "slow"  # the tag of a tool that may take minutes: such calls wait for each other alone
EXTRA = "extra"  # the tag of a tool beyond the contracts: `@mcp.tool(tags={EXTRA})`

_NEEDS = "__fleet_agentpack_needs__"
T = TypeVar("T")

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
READS_REMOTE = ToolAnnotations(read_only_hint=True, open_world_hint=True)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
WRITES_REMOTE = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
DESTROYS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
DESTROYS_REMOTE = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)

# What pydantic calls a fault of a call's arguments → what we call it, and in plain words.
_ARGUMENT_FAULTS = {
    "unexpected_keyword_argument": ("extra_forbidden", "no such argument"),
    "missing_keyword_only_argument": ("missing", "required"),
    "missing_argument": ("missing", "required"),
}


class DomainTool(FunctionTool):
    """A decorated function with a tidy schema, whose failures take its domain's shape."""

    _error: type[AppError] = PrivateAttr()
    _place: str = PrivateAttr()
    _queue: str = PrivateAttr()  # which calls of a client a call of this one waits for
    _text: str = PrivateAttr()  # the description, with the names of tools marked
    _argument_texts: dict[str, str] = PrivateAttr()  # those that name tools

    @classmethod
    def of(cls, function: Callable[..., Any], domain: DomainTools) -> DomainTool:
        """The tool for a function that `@mcp.tool` has marked."""
        with only_its_parameters(function) as description:
            tool = cast("DomainTool", cls.from_function(function))
        tool.output_schema = None
        tool.parameters = tidy(tool.parameters)
        tool.tags |= tags_of(tool.annotations)
        tool._error, tool._place = domain.error, domain.place_of(tool.name)
        tool._queue = SLOW if SLOW in tool.tags else domain.name
        tool._text = description
        tool._argument_texts = _naming_tools(tool.parameters)
        return tool.worded(tool.name, str)

    def worded(self, name: str, named: Callable[[str], str]) -> DomainTool:
        """This tool under a name, described in terms of the tools that are there."""
        known = self.parameters["properties"]
        properties = worded_arguments(known, self._argument_texts, named)
        update = {
            "name": name,
            "description": worded(self._text, named),
            "parameters": {**self.parameters, "properties": properties},
        }
        return self.model_copy(update=update)

    @property
    def note(self) -> Note:
        """What the front has to know of this tool."""
        note = Note(tool=self.name)
        if WRITES_TAG in self.tags:
            note["writes"] = True
        if EXTRA in self.tags:
            note["extra"] = True
        if tools_named(self._text):
            note["description"] = self._text
        if self._argument_texts:
            note["arguments"] = self._argument_texts
        return note

    @property
    def needs_yes(self) -> bool:
        """Whether a call has to say `yes: true`."""
        return "yes" in self.parameters.get("required", ())

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Check the arguments and call the function; an expected failure becomes `ToolRefused`."""
        given = without_nulls(arguments, self.parameters)
        try:
            if inspect.iscoroutinefunction(self.fn):
                return await super().run(given)
            async with turn(get_context(), self._queue):
                return await super().run(given)
        except ValidationError as error:
            raise self._refused(list(_problems(error.__cause__))) from error
        except PydanticSerializationError as error:
            if _is_text_throughout(arguments):
                raise
            raise self._refused([Problem("", "string_unicode", "not valid Unicode")]) from error
        except Exception as error:
            for cause in _causes(error):
                if isinstance(cause, AppError):
                    raise ToolRefused(cause) from error
                if isinstance(cause, NotApprovedError):
                    told = self._error.not_approved(self.name, cause.refusal)
                    raise ToolRefused(told) from error
                if isinstance(cause, SettingsError):
                    raise self._refused([Problem("", "settings", str(cause))]) from error
            raise

    def _refused(self, problems: Sequence[Problem]) -> ToolRefused:
        return ToolRefused(self._error.invalid_arguments(self.name, problems))

    def convert_result(self, raw_value: Any) -> ToolResult:
        """A result of ours as the wire has it."""
        return bounded(written(raw_value), self._place)

    def to_mcp_tool(self, **overrides: Any) -> WireTool:
        """The tool as listed: no made-up title, no bookkeeping, which would cost context."""
        return super().to_mcp_tool(**{"title": None, "_meta": None, **overrides})


class DomainPrompt(FunctionPrompt):
    """A decorated function whose arguments are text, described as declared and no more."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> DomainPrompt:
        """The prompt for a function that `@mcp.prompt` has marked."""
        with only_its_parameters(function) as description:
            prompt = cast("DomainPrompt", cls.from_function(function))
        prompt.description = description
        declared = inspect.signature(function).parameters
        for argument in prompt.arguments or []:
            notes = getattr(declared[argument.name].annotation, "__metadata__", ())
            described = [note.description for note in notes if hasattr(note, "description")]
            argument.description = described[0] if described else None
        return prompt

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """The prompt's messages. Raises `ValidationError` for an argument that is missing."""
        given = arguments or {}
        missing = [a.name for a in self.arguments or [] if a.required and not given.get(a.name)]
        if missing:
            message = f"{self.name} needs the argument {', '.join(missing)}"
            raise ValidationError(message, log_level=logging.DEBUG)
        return await super().render(arguments)


def needs(*tools: str) -> Callable[[T], T]:
    """Below `@mcp.prompt`: the tools without which the prompt is not offered."""

    def mark(function: T) -> T:
        setattr(function, _NEEDS, tools)
        return function

    return mark


class DomainTools(LocalProvider):
    """One domain on the wire: its tools, resources and prompts, and how its service is made."""

    def __init__(
        self,
        name: str,
        *,
        server_name: str,  # what the server calls itself when it serves this domain alone
        instructions: str,
        error: type[AppError],
        open_service: Callable[[Settings], Any],  # called on the domain's first use
        catalogue: Callable[[Any], Catalogue] | None = None,  # tools that come and go
        prompt_catalogue: Callable[[Any], PromptCatalogue] | None = None,  # likewise, of prompts
        prompt_folder: str = "",  # of a project: without it, or the home's, there are none of these
        end_session: Callable[[Any, str], None] | None = None,  # told when a session is over
        kept_apart: Mapping[str, Action] = NO_TOOLS,  # tool → what gives a long answer's rest again
    ) -> None:
        super().__init__(on_duplicate="error")
        self.name, self.server_name, self.instructions = name, server_name, instructions
        self.error, self.open_service = error, open_service
        self.catalogue, self.end_session = catalogue, end_session
        self.prompt_catalogue, self.prompt_folder = prompt_catalogue, prompt_folder
        self.tools = DeclaredTools(lambda function: DomainTool.of(function, self))
        self.resources: list[Resource | ResourceTemplate] = []
        self.texts: dict[str, str] = {}  # resource → its description, if that names tools
        self.needs: dict[str, tuple[str, ...]] = {}  # prompt → the tools that it tells to call
        self.completions: dict[tuple[str, str], Values] = {}  # by prompt or template, and argument
        self.watched: dict[str, Callable[..., Any]] = {}  # by how a resource's address begins
        self._kept_apart = kept_apart
        for tool, again in kept_apart.items():
            self.add_resource(KeptAnswers.of(f"{name}://{tool}", f"{tool}_rest", again))
        self.add_resource(KeptAnswers.of(f"{name}://answers/{{tool}}", f"{name}_rest"))

    def add_tool(self, tool: Tool | Callable[..., Any]) -> None:  # type: ignore[override]
        """Register a function; it becomes a tool in our form when that is asked for."""
        if isinstance(tool, Tool):
            raise TypeError("register a function with @mcp.tool")
        self.tools.declare(tool)

    async def _list_tools(self) -> Sequence[Tool]:
        return list(self.tools.values())

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        tool = self.tools.get(name)
        return None if tool and version and not version.matches(tool.version) else tool

    def add_resource(
        self, resource: Resource | ResourceTemplate | Callable[..., Any]
    ) -> Resource | ResourceTemplate:
        """Register a resource; its description may name tools as a tool's does."""
        made = super().add_resource(resource)
        self.resources.append(made)
        text = made.description or ""
        if tools_named(text):
            self.texts[uri_of(made)] = text
            made.description = worded(text, str)
        return made

    def add_prompt(self, prompt: Prompt | Callable[..., Any]) -> Prompt:
        """Register a prompt; its arguments are text and are described as declared, no more."""
        if isinstance(prompt, Prompt):
            raise TypeError("register a function with @mcp.prompt")
        made = DomainPrompt.of(prompt)
        self.needs[made.name] = getattr(prompt, _NEEDS, ())
        return super().add_prompt(made)

    def place_of(self, tool: str) -> str:
        """Below which address the rest of a tool's long answers can be read."""
        return f"{self.name}://{tool if tool in self._kept_apart else f'answers/{tool}'}"

    def completes(self, ref: str, argument: str) -> Callable[[Values], Values]:
        """Register a function that tells what an argument of a prompt or a template can be."""

        def register(function: Values) -> Values:
            self.completions[ref, argument] = function
            return function

        return register

    def collection(self, address: str) -> Callable[[List], List]:
        """Register a function that lists everything of a kind as a resource, read in pages.

        It takes the service and the session; a plain function runs in a worker thread.
        """

        def register(function: List) -> List:
            listed = Listed(address, function, self._service_of)
            name, description = function.__name__, " ".join((function.__doc__ or "").split())
            self.add_resource(Collection.of(listed, name, description))
            self.add_resource(CollectionPages.of(listed, name, description))
            return function

        return register

    def facts(self) -> dict[str, Facts]:
        """What the choice of each tool depends on."""
        tags = {
            name: tags_of(declared.annotations) | (declared.tags or set())
            for name, declared in self.tools.declarations().items()
        }
        return {
            name: Facts(self.name, WRITES_TAG in each, EXTRA in each) for name, each in tags.items()
        }

    async def service(self, context: Context = CurrentContext()) -> Any:
        """The domain's service, for `Depends(mcp.service)`."""
        return self._service_of(context)

    def _service_of(self, context: Context) -> object:
        services: Services = context.lifespan_context[SERVICES]
        return services.get(self)


class Services:
    """The domains' services, each made when first asked for and closed with the server.

    A request that names a project has services of its own, made for that project.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings.served()
        self._opened: dict[tuple[DomainTools, Path | None], object] = {}
        self._turn = threading.Lock()  # the list of tools is watched from another thread

    def get(self, domain: DomainTools) -> object:
        """The service of a domain. Raises `AppError` or `SettingsError` if it cannot be made."""
        project = named_project()
        with self._turn:
            if (domain, project) not in self._opened:
                settings = self.settings.served(project) if project else self.settings
                self._opened[domain, project] = domain.open_service(settings)
            return self._opened[domain, project]

    def opened(self) -> Sequence[tuple[DomainTools, object]]:
        """Those made so far, with their domains."""
        return [(domain, service) for (domain, _), service in self._opened.items()]

    async def close(self) -> None:
        """Close every service that has a `close` method."""
        for _, service in self.opened():
            close = getattr(service, "close", None)
            result = close() if close else None
            if inspect.isawaitable(result):
                await result
        self._opened.clear()


def _naming_tools(schema: dict[str, Any]) -> dict[str, str]:
    """The arguments whose descriptions name tools, with these descriptions."""
    described = {
        name: argument.get("description", "") for name, argument in schema["properties"].items()
    }
    return {name: text for name, text in described.items() if tools_named(text)}


def uri_of(resource: Resource | ResourceTemplate) -> str:
    """A resource's address, or the pattern of its addresses."""
    return resource.uri_template if isinstance(resource, ResourceTemplate) else str(resource.uri)


def is_reader(tool: Tool) -> bool:
    """Whether a tool says that it only reads."""
    return WRITES_TAG not in tool.tags


def tags_of(annotations: ToolAnnotations | None) -> set[str]:
    """`writes` for a tool that does not say that it only reads."""
    return set() if annotations and annotations.read_only_hint else {WRITES_TAG}


def _problems(error: BaseException | None) -> Iterator[Problem]:
    """What pydantic found, without the values that the caller sent."""
    if isinstance(error, PydanticError):
        for row in error.errors(include_url=False, include_input=False):
            kind, text = _ARGUMENT_FAULTS.get(row["type"], (row["type"], row["msg"]))
            yield Problem(".".join(str(part) for part in row["loc"]), kind, text)


def _is_text_throughout(arguments: dict[str, Any]) -> bool:
    """Whether every text in the arguments can be written as UTF-8; halves of characters cannot."""
    try:
        to_json(arguments)
    except PydanticSerializationError:
        return False
    return True


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
