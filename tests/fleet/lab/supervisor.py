"""Keeps an agent and an AgentAPI running for every started workspace, as its host would."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.fleet.lab.processes import end, free_port

if TYPE_CHECKING:
    from tests.fleet.lab.lab import Lab

TERMINAL_AGENT = Path(__file__).with_name("terminal_agent.py")
POLL_S = 0.3

# Workspaces whose newest build is a start that succeeded, with their agents' tokens.
STARTED = """
SELECT w.name, a.auth_token, b.id
FROM workspaces w
JOIN LATERAL (
  SELECT * FROM workspace_builds WHERE workspace_id = w.id ORDER BY build_number DESC LIMIT 1
) b ON true
JOIN provisioner_jobs j ON j.id = b.job_id
JOIN workspace_resources r ON r.job_id = j.id
JOIN workspace_agents a ON a.resource_id = r.id
JOIN templates t ON t.id = w.template_id
WHERE NOT w.deleted AND b.transition = 'start' AND j.completed_at IS NOT NULL
  AND COALESCE(j.error, '') = '' AND t.name NOT LIKE 'offline%'
"""
SPEC = """
SELECT replace(value, E'\\n', ' ') FROM workspace_build_parameters
WHERE name = 'agent_spec' AND workspace_build_id = '{build}'
"""


class Started:
    """What runs for one started workspace."""

    def __init__(self, lab: Lab, name: str, token: str, build: str) -> None:
        self.name, self.port = name, free_port()
        self.folder = lab.workspaces / name
        self.folder.mkdir(exist_ok=True)
        self._lab, self._token, self._told = lab, token, 0
        self._states = self.folder / "states.jsonl"
        self._states.write_text("")
        spec = lab.query(SPEC.format(build=build))
        (self.folder / "agent_spec").write_text(spec[0][0] if spec else "")
        plain = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
        }
        server = ["server", "--port", str(self.port), "--allowed-hosts", "*"]
        screen = ["--term-width", "100", "--term-height", "30"]
        self.api = lab.spawn(
            [lab.programs["agentapi"], *server, *screen, "--", sys.executable, str(TERMINAL_AGENT)],
            self.folder / "agentapi.log",
            {**plain, "AGENT_STATES": str(self._states)},
            self.folder,
        )
        nothing = [f"--{name}-address=" for name in ("pprof", "prometheus", "debug")]
        places = ["--log-dir", str(self.folder), "--script-data-dir", str(self.folder)]
        socket = ["--socket-path", str(self.folder / "agent.sock")]
        self.agent = lab.spawn(
            [lab.programs["coder"], "agent", "--no-reap", *nothing, *places, *socket],
            self.folder / "agent.log",
            {
                **plain,
                "CODER_AGENT_URL": lab.url,
                "CODER_AGENT_TOKEN": token,
                "CODER_AGENT_DEVCONTAINERS_ENABLE": "false",
            },
            self.folder,
        )

    def pass_on_reports(self) -> None:
        """Tell Coder what the agent said of itself, as its reporter in a workspace does."""
        for line in self._states.read_text().splitlines()[self._told :]:
            body = {"app_slug": "claude-code", "uri": "", **json.loads(line)}
            try:
                self._lab.request(
                    "PATCH", "/api/v2/workspaceagents/me/app-status", body, self._token
                )
            except httpx.HTTPError:
                return
            self._told += 1

    def end(self) -> None:
        """End the agent and its program."""
        for child in (self.agent, self.api):
            end(child, 2)


class Supervisor(threading.Thread):
    """Watches Coder's database and does what a workspace's host would."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(name="lab supervisor", daemon=True)
        self._lab = lab
        self._running: dict[str, Started] = {}
        self._stopping = threading.Event()

    def run(self) -> None:
        """Supervise until told to stop."""
        try:
            asyncio.run(self._supervise())
        finally:
            for started in self._running.values():
                started.end()

    def stop(self) -> None:
        """End every agent."""
        self._stopping.set()
        self.join(60)

    def find(self, name: str) -> Started:
        """What runs for a workspace."""
        return next(one for one in list(self._running.values()) if one.name == name)

    async def _supervise(self) -> None:
        hosts = ["127.0.0.1"] + (["::1"] if Path("/proc/net/if_inet6").exists() else [])
        servers = [
            await asyncio.start_server(self._route, host, self._lab.agentapi_port) for host in hosts
        ]
        while not self._stopping.is_set():
            await asyncio.to_thread(self._keep_up)
            await asyncio.sleep(POLL_S)
        for server in servers:
            server.close()

    def _keep_up(self) -> None:
        """Start and end what Coder started and ended."""
        try:
            rows = self._lab.query(STARTED)
        except subprocess.CalledProcessError:
            return
        wanted = {build: (name, token) for name, token, build in rows}
        for build in [build for build in self._running if build not in wanted]:
            self._running.pop(build).end()
        for build, (name, token) in wanted.items():
            if build not in self._running:
                self._running[build] = Started(self._lab, name, token, build)
        for started in self._running.values():
            started.pass_on_reports()

    async def _route(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Templates name one port for all: send each agent's connection to its own AgentAPI."""
        theirs = writer.get_extra_info("peername")[1]
        started = await asyncio.to_thread(self._owner, theirs)
        try:
            if started is None:
                raise ConnectionError
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", started.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_relay(reader, inner_writer), _relay(inner_reader, writer))

    def _owner(self, port: int) -> Started | None:
        """Whose agent a local connection comes from."""
        inodes = {f"socket:[{inode}]" for inode in _inodes(port)}
        for started in list(self._running.values()):
            for link in Path(f"/proc/{started.agent.pid}/fd").glob("*"):
                try:
                    if str(link.readlink()) in inodes:
                        return started
                except OSError:
                    continue
        return None


def _inodes(port: int) -> set[str]:
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            columns = line.split()
            if int(columns[1].rsplit(":", 1)[1], 16) == port:
                found.add(columns[9])
    return found


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
