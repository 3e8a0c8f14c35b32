"""What `connect` registers starts without a network, as each client starts it."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet_agentpack.connect.check import check
from fleet_agentpack.connect.client import Entry, Machine
from fleet_agentpack.connect.connection import Connection
from fleet_agentpack.connect.known_clients import CLIENTS
from tests.rig import ALL_TOOLS, SERVE, WITHOUT_FORGE, Stdio

Run = Callable[..., tuple[int, str, str]]
WITHOUT_NETWORK = (
    ("unshare", "--map-root-user", "--net"),
    ("bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-net"),
)


@functools.cache
def cut_off() -> tuple[str, ...]:
    """The words before a command that take the network from it."""
    for program, *words in WITHOUT_NETWORK:
        found = shutil.which(program)
        if found and interfaces(found, *words) == ["lo"]:
            return found, *words
    pytest.skip("needs unshare or bwrap, and a system that lets users have namespaces")


def interfaces(*words: str) -> list[str]:
    """The network interfaces that a command under these words has."""
    done = subprocess.run([*words, "cat", "/proc/net/dev"], capture_output=True, text=True)
    return [line.split(":")[0].strip() for line in done.stdout.splitlines()[2:]]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_registered_entry_starts_without_a_network(
    client: str, home: Path, work: Path, connect: Run, request: pytest.FixtureRequest
) -> None:
    program, *words = cut_off()
    request.getfixturevalue("programs")
    assert connect(client, "--yes")[0] == 0
    machine = Machine(home, work, {"HOME": str(home)})
    entry = Connection(CLIENTS[client], "user", "agentpack", machine).entry()
    assert entry
    alone = Entry(program, (*words, *entry.argv), entry.env)
    environ = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    tools = check(alone, environ=environ, cwd=work, timeout_s=30).tools
    assert len(tools) == (WITHOUT_FORGE if client == "cursor" else ALL_TOOLS)


def test_tools_work_without_a_network() -> None:
    with Stdio([*cut_off(), *SERVE]) as server:
        server.hello()
        assert not server.call("fractary_forge_config_get", key="x")["isError"]
        assert server.call("enact__search", query="csv")["structuredContent"]["results"]
