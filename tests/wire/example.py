"""A small domain that misbehaves on request, served like the real ones.

`python -m tests.wire.example [--http PORT]` serves it as a process of its own, printing everywhere.
"""

import asyncio
import atexit
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from fastmcp.dependencies import Depends
from pydantic import Field

from fleet_agentpack.kit.errors import AppError, Problem
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.kit.stamps import Stamp, stamp
from fleet_agentpack.settings import HttpSettings, Settings
from fleet_agentpack.wire.call import Call, CurrentCall
from fleet_agentpack.wire.dynamic import DynamicTool
from fleet_agentpack.wire.provider import DESTROYS, READS, WRITES, DomainTools
from fleet_agentpack.wire.replies import Reply


class ExampleError(AppError):
    def __init__(self, code: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.code, self.details = code, details

    def payload(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self), "details": self.details}

    @classmethod
    def invalid_arguments(cls, tool: str, problems: Sequence[Problem]) -> "ExampleError":
        return cls("bad_arguments", f"check the arguments of {tool}", [str(p) for p in problems])

    @classmethod
    def confirm_required(cls, tool: str) -> "ExampleError":
        return cls("E_CONFIRM_REQUIRED", f"{tool} needs yes=true")

    @classmethod
    def unexpected(cls, tool: str) -> "ExampleError":
        return cls("unexpected", f"{tool} failed; the server's log says why")


class ExampleService:
    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.dynamic = cwd / "dynamic"
        self.ended: list[str] = []

    # The catalogue: every file in `dynamic/` is a tool of that name.
    def tools(self, session: str | None) -> Sequence[DynamicTool]:
        names = sorted(path.name for path in self.dynamic.glob("*"))
        return [self._tool(name) for name in names]

    def find(self, name: str, session: str | None) -> DynamicTool | None:
        return self._tool(name) if (self.dynamic / name).is_file() else None

    def fingerprint(self) -> object:
        return tuple(sorted(path.name for path in self.dynamic.glob("*")))

    def sources(self) -> dict[str, Stamp | None]:
        return {str(self.dynamic): stamp(self.dynamic)}

    def _tool(self, name: str) -> DynamicTool:
        async def run(arguments: dict[str, Any], call: Call) -> Any:
            return {"tool": name, "arguments": arguments}

        schema = {
            "type": "object",
            "$defs": {"n": {"type": "integer"}},
            "properties": {"n": {"$ref": "#/$defs/n"}},
        }
        return DynamicTool(name, f"The tool {name}.", schema, run, output_schema={"type": "object"})


mcp = DomainTools(
    "example",
    server_name="example-alone",
    instructions="example: for tests.",
    error=ExampleError,
    open_service=lambda settings: ExampleService(settings.cwd),
    catalogue=lambda service: service,
    end_session=lambda service, session: (service.cwd / "ended").write_text(session),
)


@mcp.tool(annotations=READS)
def echo(
    *,
    service: ExampleService = Depends(mcp.service),
    text: str,
    count: Annotated[int, Field(ge=1)] = 1,
    kind: Literal["a", "b"] = "a",
) -> Any:
    """Give a text back."""
    return {"text": text * count, "kind": kind}


@mcp.tool(annotations=READS)
def noise(
    service: ExampleService = Depends(mcp.service),
) -> Any:
    """Print in every way there is."""
    print("noise: print", flush=True)
    os.write(1, b"noise: descriptor\n")
    sys.__stdout__.write("noise: original\n")
    subprocess.run(["echo", "noise: child"], check=True)
    return {"read": sys.stdin.read()}


@mcp.tool(annotations=READS)
async def crash(
    service: ExampleService = Depends(mcp.service),
) -> Any:
    """Fail in an unforeseen way."""
    raise KeyError("secret detail")


@mcp.tool(annotations=READS)
def refuse(
    service: ExampleService = Depends(mcp.service),
) -> Any:
    """Fail in a foreseen way."""
    raise ExampleError("refused", "no; try echo instead")


@mcp.tool(annotations=READS)
async def wait(
    *,
    service: ExampleService = Depends(mcp.service),
    call: Call = CurrentCall(),
    seconds: float = 1.0,
) -> Any:
    """Take a while, tell how far it is, and leave a mark when it was stopped."""
    try:
        for step in range(10):
            call.report(step, 10, f"step {step}")
            await asyncio.sleep(seconds / 10)
    except asyncio.CancelledError:
        (service.cwd / "stopped").write_text("yes")
        raise
    return {"waited": seconds}


@mcp.tool(annotations=READS)
def work_in_thread(
    *, service: ExampleService = Depends(mcp.service), call: Call = CurrentCall(), steps: int = 10
) -> Any:
    """The same in a worker thread."""
    mark = service.cwd / "steps"
    try:
        for step in range(steps):
            call.report(step, steps, f"step {step}")
            mark.write_text(str(step))
            time.sleep(0.05)
    except BaseException:
        (service.cwd / "thread-stopped").write_text("yes")
        raise
    return {"steps": steps}


@mcp.tool(annotations=READS)
def mumble(
    service: ExampleService = Depends(mcp.service),
    call: Call = CurrentCall(),
) -> Any:
    """Report on a file whose name is not text."""
    call.report(1, 1, "file \udcff")
    return {}


@mcp.tool(annotations=READS)
def block(*, service: ExampleService = Depends(mcp.service), seconds: float) -> Any:
    """Hold a thread and hear nothing."""
    time.sleep(seconds)
    return {}


@mcp.tool(annotations=READS)
def poem(
    service: ExampleService = Depends(mcp.service),
) -> Any:
    """Answer with text alone."""
    return Reply("roses are red")


@mcp.tool(annotations=DESTROYS)
def remove(
    *,
    service: ExampleService = Depends(mcp.service),
    path: str = "x",
    yes: Annotated[Literal[True], Field(description="Approve.")],
) -> Any:
    """Remove a file, if so confirmed."""
    (service.cwd / "removed").write_text(path)
    return {"removed": path}


@mcp.tool(annotations=WRITES)
def add_tool(
    *, service: ExampleService = Depends(mcp.service), call: Call = CurrentCall(), name: str
) -> Any:
    """Add a dynamic tool."""
    service.dynamic.mkdir(exist_ok=True)
    (service.dynamic / name).write_text("")
    call.tools_changed()
    return {"added": name}


def main() -> int:
    from fleet_agentpack.wire.descriptors import ClaimedStdio

    port = int(sys.argv[2]) if sys.argv[1:2] == ["--http"] else None
    wire = None if port else ClaimedStdio.claim()
    print("noise: at start", flush=True)
    atexit.register(print, "noise: at exit", flush=True)
    import dataclasses

    from fleet_agentpack.wire.server import assemble

    settings = Settings.read()
    if port:
        from fleet_agentpack.wire.http import listen, serve_http

        token = settings.environ.get("FLEET_AGENTPACK_TOKEN")
        http = HttpSettings(port=port, token=Secret(token) if token else None)
        settings = dataclasses.replace(settings, http=http)
        asyncio.run(serve_http(assemble(settings, [mcp]), http, "warning", listen(http)))
        return 0
    from fleet_agentpack.wire.stdio import run_stdio

    return run_stdio(assemble(settings, [mcp]), wire)


if __name__ == "__main__":
    sys.exit(main())
