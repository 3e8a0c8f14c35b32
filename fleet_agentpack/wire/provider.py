"""A domain's tools as FastMCP providers: typed functions under `@mcp.tool`, a service injected.

The signature makes the input schema, which is tidied here, once; the docstring is the description.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from fastmcp.dependencies import CurrentContext
from fastmcp.exceptions import ValidationError
from fastmcp.prompts.base import Prompt, PromptResult
from fastmcp.prompts.function_prompt import FunctionPrompt
from fastmcp.server.context import Context
from fastmcp.server.providers.local_provider import LocalProvider
from fastmcp.tools.base import Tool, ToolResult
from fastmcp.tools.function_tool import FunctionTool
from mcp_types import Tool as WireTool
from mcp_types import ToolAnnotations
from pydantic import PrivateAttr
from pydantic import ValidationError as PydanticError
from pydantic_core import PydanticSerializationError, to_json

from fleet_agentpack.kit.errors import AppError, Problem
from fleet_agentpack.settings import Settings, SettingsError
from fleet_agentpack.wire.replies import ToolRefused, result_of
from fleet_agentpack.wire.schema import tidy, without_nulls

if TYPE_CHECKING:
    from fleet_agentpack.wire.dynamic import Catalogue

SERVICES: Final = "services"  # in the server's lifespan context
WRITES_TAG = "writes"

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

    @classmethod
    def of(cls, function: Callable[..., Any], error: type[AppError]) -> DomainTool:
        """The tool for a function that `@mcp.tool` has marked."""
        with _only_its_parameters(function) as description:
            tool = cast("DomainTool", cls.from_function(function))
        tool.description = description
        tool.output_schema = None
        tool.parameters = tidy(tool.parameters)
        tool.tags = tags_of(tool.annotations)
        tool._error = error
        return tool

    @property
    def needs_yes(self) -> bool:
        """Whether a call has to say `yes: true`."""
        return "yes" in self.parameters.get("required", ())

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Check the arguments and call the function; an expected failure becomes `ToolRefused`."""
        try:
            return await super().run(without_nulls(arguments, self.parameters))
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
                if isinstance(cause, SettingsError):
                    raise self._refused([Problem("", "settings", str(cause))]) from error
            raise

    def _refused(self, problems: Sequence[Problem]) -> ToolRefused:
        return ToolRefused(self._error.invalid_arguments(self.name, problems))

    def convert_result(self, raw_value: Any) -> ToolResult:
        """A result of ours as the wire has it."""
        return result_of(raw_value)

    def to_mcp_tool(self, **overrides: Any) -> WireTool:
        """The tool as listed: no made-up title, no bookkeeping, which would cost context."""
        return super().to_mcp_tool(**{"title": None, "_meta": None, **overrides})


class DomainPrompt(FunctionPrompt):
    """A decorated function whose arguments are text, described as declared and no more."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> DomainPrompt:
        """The prompt for a function that `@mcp.prompt` has marked."""
        with _only_its_parameters(function) as description:
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
        end_session: Callable[[Any, str], None] | None = None,  # told when a session is over
    ) -> None:
        super().__init__(on_duplicate="error")
        self.name, self.server_name, self.instructions = name, server_name, instructions
        self.error, self.open_service = error, open_service
        self.catalogue, self.end_session = catalogue, end_session
        self.tools: dict[str, DomainTool] = {}

    def add_tool(self, tool: Tool | Callable[..., Any]) -> Tool:
        """Register a tool; a function becomes one in our form."""
        if isinstance(tool, Tool):
            raise TypeError("register a function with @mcp.tool")
        made = DomainTool.of(tool, self.error)
        self.tools[made.name] = made
        return super().add_tool(made)

    def add_prompt(self, prompt: Prompt | Callable[..., Any]) -> Prompt:
        """Register a prompt; its arguments are text and are described as declared, no more."""
        if isinstance(prompt, Prompt):
            raise TypeError("register a function with @mcp.prompt")
        return super().add_prompt(DomainPrompt.of(prompt))

    def tools_for(self, *, read_only: bool) -> list[DomainTool]:
        """All tools, or only those that read."""
        return [tool for tool in self.tools.values() if is_reader(tool) or not read_only]

    async def service(self, context: Context = CurrentContext()) -> Any:
        """The domain's service, for `Depends(mcp.service)`."""
        services: Services = context.lifespan_context[SERVICES]
        return services.get(self)


class Services:
    """The domains' services, each made when first asked for and closed with the server."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._opened: dict[DomainTools, object] = {}
        self._turn = threading.Lock()  # the list of tools is watched from another thread

    def get(self, domain: DomainTools) -> object:
        """The service of a domain. Raises `AppError` or `SettingsError` if it cannot be made."""
        with self._turn:
            if domain not in self._opened:
                self._opened[domain] = domain.open_service(self.settings)
            return self._opened[domain]

    def opened(self) -> Mapping[DomainTools, object]:
        """Those made so far."""
        return dict(self._opened)

    async def close(self) -> None:
        """Close every service that has a `close` method."""
        for service in self.opened().values():
            close = getattr(service, "close", None)
            result = close() if close else None
            if inspect.isawaitable(result):
                await result
        self._opened.clear()


@contextmanager
def _only_its_parameters(function: Callable[..., Any]) -> Iterator[str]:
    """Hide what FastMCP need not look at, and give the docstring in one line.

    From a docstring it would import a parser, from a result's type it would build a schema.
    """
    doc, returns = function.__doc__ or "", function.__annotations__.pop("return", None)
    function.__doc__ = None
    try:
        yield " ".join(doc.split())
    finally:
        function.__doc__ = doc
        function.__annotations__["return"] = returns


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
