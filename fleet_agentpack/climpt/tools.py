"""climpt's tools."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, WithJsonSchema

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.kit.results import jsonable, to_text
from fleet_agentpack.wire.params import READS
from fleet_agentpack.wire.register import Domain, Reply, Spec

if TYPE_CHECKING:
    from fleet_agentpack.climpt.service import ClimptService
    from fleet_agentpack.settings import Settings

# The original's list of command line options is taken too, but not advertised.
Options = Annotated[
    Any,
    WithJsonSchema({"type": "object"}),
    Field(description="edition, adaptation, file, destination, stdin, uv-<name>"),
]
Agent = Annotated[str, Field(description='"climpt", unless search was asked for another')]
NO_OPTIONS: dict[str, Any] = {}


def search(climpt: "ClimptService", *, query: str, agent: str = "climpt") -> Any:
    """Find the prompts of this project that fit a task in plain words, as commands c1, c2, c3.

    Call describe or execute next.
    """
    results = jsonable(climpt.search(query, agent))
    return Reply(to_text(results), {"results": results})


def describe(climpt: "ClimptService", *, c1: str, c2: str, c3: str, agent: str = "climpt") -> Any:
    """Show a prompt command's usage and options; search gives c1, c2, c3. Call execute next."""
    return climpt.describe(c1, c2, c3, agent)


async def execute(
    climpt: "ClimptService",
    *,
    agent: Agent,
    c1: str,
    c2: str,
    c3: str,
    options: Options = NO_OPTIONS,
) -> Any:
    """Get a prompt command's instructions as text, then follow them; nothing is run here.

    Call describe first for its options.
    """
    return Reply(await climpt.execute(agent, c1, c2, c3, options))


def reload(climpt: "ClimptService", *, agent: str = "climpt") -> Any:
    """Read the registry of prompt commands again after its file changed. Call search next."""
    return climpt.reload(agent)


def open_service(settings: "Settings") -> "ClimptService":
    """The service for the project that the server was started in."""
    from fleet_agentpack.climpt.service import open_climpt

    return open_climpt(settings)


DOMAIN = Domain(
    name="climpt",
    server_name="climpt",
    instructions="climpt: ready prompts for recurring work such as commits and branches; search, "
    "describe, then execute and follow the prompt.",
    error=ClimptError,
    open=open_service,
    tools=[Spec(search, READS), Spec(describe, READS), Spec(execute, READS), Spec(reload, READS)],
)
