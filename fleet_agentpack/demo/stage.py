"""Where the story is played: a scratch home, the real server on stdio, a real client, a printer."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_agentpack.console.command import Console
from fleet_agentpack.demo.readable import Readable
from fleet_agentpack.kit import process

if TYPE_CHECKING:
    from fleet_agentpack.wire.client import Client

PRODUCT = (sys.executable, "-m", "fleet_agentpack")
WIDTH = 96
INHERITED = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TERM", "SYSTEMROOT", "PYTHONPATH")


class StoryError(Exception):
    """A step of the story that did not go as told."""


class Stage:
    """Plays one step at a time and prints it."""

    def __init__(self, home: Path, client: Client[Any], console: Console) -> None:
        self.home = home
        self.project = home / "project"
        self.calls = 0
        self._client = client
        self._console = console
        self._paint = console.paint

    def chapter(self, position: str, title: str) -> None:
        """Print a heading."""
        self._console.show("", self._paint(f"{position} {title}", "bold", "cyan"))

    async def greet(self) -> None:
        """Print who answered the handshake."""
        server, tools = self._client.server_info, len(await self.tool_names())
        self.expect(server is not None, "the server does not say who it is")
        self.say(f"connected to {server.name} {server.version}, {tools} tools")  # type: ignore[union-attr]

    def say(self, text: str) -> None:
        """Print a remark of the narrator."""
        self._console.show(self._paint(f"  {text}", "dim"))

    def shell(self, line: str) -> None:
        """Run one of the product's own commands, as a person would."""
        self._console.show((self._paint("  $", "green"), f"fleet-agentpack {line}"))
        words = shlex.split(line)
        done = process.run(
            [*PRODUCT, *words], cwd=self.project, env=environment(self.home), timeout_s=60
        )
        if done.status:
            raise StoryError(f"{' '.join(words)}: {done.complaint or done.text}")

    async def call(self, tool: str, show: Readable | None = None, /, **arguments: Any) -> Any:
        """Call a tool; returns its structured answer, else its text. With `show`, print both."""
        if show:
            called = (self._paint("  →", "yellow"), self._paint(tool, "bold"))
            given = (_fitting(json.dumps(arguments, ensure_ascii=False)),) if arguments else ()
            self._console.show((*called, *given))
            self.calls += 1
        begun = time.monotonic()
        result = await self._client.call_tool(tool, arguments, raise_on_error=False)
        took_ms = (time.monotonic() - begun) * 1000
        text = "".join(getattr(block, "text", "") for block in result.content)
        if result.is_error:
            raise StoryError(f"{tool}: {text}")
        answer = text if result.structured_content is None else result.structured_content
        if show:
            lines = [_fitting(line.replace(str(self.home), "~")) for line in show(answer)] or [""]
            *first, last = [self._paint(f"    {line}", *_style(line)) for line in lines]
            self._console.show(*first, (last, self._paint(f" {took_ms:.0f} ms", "dim")))
        return answer

    async def tool_names(self) -> list[str]:
        """The tools that the server lists now."""
        return [tool.name for tool in await self._client.list_tools()]

    def expect(self, holds: bool, what: str) -> None:
        """Stop the story unless something holds."""
        if not holds:
            raise StoryError(what)


@asynccontextmanager
async def staged(console: Console) -> AsyncIterator[Stage]:
    """A stage whose home is gone, and whose server has ended, afterwards."""
    from fleet_agentpack.wire.client import client_of

    with _scratch_home() as home:
        log = home / "server.log"
        opened = client_of(PRODUCT, env=environment(home), cwd=home / "project", log=log)
        try:
            async with opened as client:
                yield Stage(home, client, console)
        except StoryError:
            raise
        except Exception as error:  # such as a server that ended: its log says why
            raise StoryError("\n".join([f"the server: {error}", *_log_tail(log)])) from error
    if home.exists():
        raise StoryError(f"{home} could not be removed; remove it yourself")


@contextmanager
def _scratch_home() -> Iterator[Path]:
    try:
        scratch = tempfile.TemporaryDirectory(
            prefix="fleet-agentpack-demo-", ignore_cleanup_errors=True
        )
        with scratch as name:
            home = Path(name).resolve()
            _furnish(home)
            yield home
    except OSError as error:
        raise StoryError(
            f"no scratch home: {error}; set TMPDIR to a directory that you can write to"
        ) from error


def _log_tail(log: Path) -> list[str]:
    if not log.exists():
        return []
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]


def environment(home: Path) -> dict[str, str]:
    """The environment of everything on the stage: nothing of the user's settings or accounts."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return inherited | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "FLEET_AGENTPACK_CONFIG": str(home / "config.toml"),
        "FLEET_AGENTPACK_FLEET": "local",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Demo",
        "GIT_AUTHOR_EMAIL": "demo@example.test",
        "GIT_COMMITTER_NAME": "Demo",
        "GIT_COMMITTER_EMAIL": "demo@example.test",
        "NO_COLOR": "1",
    }


def _furnish(home: Path) -> None:
    """A small project, and a scripted program in the place of a coding agent."""
    project = home / "project"
    project.mkdir()
    (project / "README.md").write_text("# Demo project\n", encoding="utf-8")
    (project / "sales.csv").write_text(
        "region,month,amount\nnorth,1,120\nsouth,1,80\nnorth,2,150\nsouth,2,95\n", encoding="utf-8"
    )
    agent = Path(__file__).with_name("scripted_agent.py")
    command = json.dumps([sys.executable, str(agent)])
    readings = (("text", "result"), ("failed", "is_error"), ("session", "session_id"))
    rows = "".join(
        f'[[fleet.programs.scripted.readings]]\nfield = "{field}"\npath = "{path}"\n'
        for field, path in readings
    )
    (home / "config.toml").write_text(
        '[fleet]\nprogram = "scripted"\n'
        f"[fleet.projects.project]\npath = {json.dumps(str(project))}\n"
        f"[fleet.programs.scripted]\ncommand = {command}\n{rows}",
        encoding="utf-8",
    )
    try:
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Start"]):
            process.run(["git", *words], cwd=project, env=environment(home))
    except FileNotFoundError:
        return  # without git the agents work on plain copies


def _fitting(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 1].rstrip() + "…"


def _style(line: str) -> tuple[str, ...]:
    return ("green",) if line.startswith("+ ") else ()
