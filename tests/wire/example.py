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

from pydantic import Field

from fleet_agentpack.kit.errors import AppError, Problem
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.settings import HttpSettings, Settings
from fleet_agentpack.wire.dynamic import DynamicTool
from fleet_agentpack.wire.params import DESTROYS, READS, WRITES, Call
from fleet_agentpack.wire.register import Domain, Reply, Spec


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

    def _tool(self, name: str) -> DynamicTool:
        async def run(arguments: dict[str, Any], call: Call) -> Any:
            return {"tool": name, "arguments": arguments}

        schema = {
            "type": "object",
            "$defs": {"n": {"type": "integer"}},
            "properties": {"n": {"$ref": "#/$defs/n"}},
        }
        return DynamicTool(name, f"The tool {name}.", schema, run, output_schema={"type": "object"})


def echo(
    service: ExampleService,
    *,
    text: str,
    count: Annotated[int, Field(ge=1)] = 1,
    kind: Literal["a", "b"] = "a",
) -> Any:
    """Give a text back."""
    return {"text": text * count, "kind": kind}


def noise(service: ExampleService) -> Any:
    """Print in every way there is."""
    print("noise: print", flush=True)
    os.write(1, b"noise: descriptor\n")
    sys.__stdout__.write("noise: original\n")
    subprocess.run(["echo", "noise: child"], check=True)
    return {"read": sys.stdin.read()}


async def crash(service: ExampleService) -> Any:
    """Fail in an unforeseen way."""
    raise KeyError("secret detail")


def refuse(service: ExampleService) -> Any:
    """Fail in a foreseen way."""
    raise ExampleError("refused", "no; try echo instead")


async def wait(service: ExampleService, call: Call, *, seconds: float = 1.0) -> Any:
    """Take a while, tell how far it is, and leave a mark when it was stopped."""
    try:
        for step in range(10):
            call.report(step, 10, f"step {step}")
            await asyncio.sleep(seconds / 10)
    except asyncio.CancelledError:
        (service.cwd / "stopped").write_text("yes")
        raise
    return {"waited": seconds}


def work_in_thread(service: ExampleService, call: Call, *, steps: int = 10) -> Any:
    """The same in a worker thread."""
    mark = service.cwd / "steps"
    for step in range(steps):
        call.report(step, steps, f"step {step}")
        mark.write_text(str(step))
        time.sleep(0.05)
    return {"steps": steps}


def mumble(service: ExampleService, call: Call) -> Any:
    """Report on a file whose name is not text."""
    call.report(1, 1, "file \udcff")
    return {}


def block(service: ExampleService, *, seconds: float) -> Any:
    """Hold a thread and hear nothing."""
    time.sleep(seconds)
    return {}


def poem(service: ExampleService) -> Any:
    """Answer with text alone."""
    return Reply("roses are red")


def remove(
    service: ExampleService,
    *,
    path: str = "x",
    yes: Annotated[Literal[True], Field(description="Approve.")],
) -> Any:
    """Remove a file, if so confirmed."""
    (service.cwd / "removed").write_text(path)
    return {"removed": path}


def add_tool(service: ExampleService, call: Call, *, name: str) -> Any:
    """Add a dynamic tool."""
    service.dynamic.mkdir(exist_ok=True)
    (service.dynamic / name).write_text("")
    call.tools_changed()
    return {"added": name}


def open_service(settings: Settings) -> ExampleService:
    return ExampleService(settings.cwd)


EXAMPLE = Domain(
    name="example",
    server_name="example-alone",
    instructions="example: for tests.",
    error=ExampleError,
    open=open_service,
    tools=[
        Spec(echo, READS),
        Spec(noise, READS),
        Spec(crash, READS),
        Spec(refuse, READS),
        Spec(wait, READS),
        Spec(work_in_thread, READS),
        Spec(mumble, READS),
        Spec(block, READS),
        Spec(poem, READS),
        Spec(remove, DESTROYS, confirm=True),
        Spec(add_tool, WRITES),
    ],
    catalogue=lambda service: service,
    end_session=lambda service, session: (service.cwd / "ended").write_text(session),
)


def main() -> int:
    from fleet_agentpack.wire.descriptors import Wire

    port = int(sys.argv[2]) if sys.argv[1:2] == ["--http"] else None
    wire = None if port else Wire.claim()
    print("noise: at start", flush=True)
    atexit.register(print, "noise: at exit", flush=True)
    import dataclasses

    from fleet_agentpack.wire.server import assemble

    settings = Settings.read()
    if port:
        from fleet_agentpack.wire.http import serve_http

        token = settings.environ.get("FLEET_AGENTPACK_TOKEN")
        http = HttpSettings(port=port, token=Secret(token) if token else None)
        settings = dataclasses.replace(settings, http=http)
        asyncio.run(serve_http(assemble(settings, [EXAMPLE]), http, "warning"))
        return 0
    from fleet_agentpack.wire.stdio import run_stdio

    return run_stdio(assemble(settings, [EXAMPLE]), wire)


if __name__ == "__main__":
    sys.exit(main())
