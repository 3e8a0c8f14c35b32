"""M5: a tool that takes all memory, or prints what grows when it is encoded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fastmcp import Client

from fleet_agentpack.enact.backends.limits import ADDRESS_SPACE
from fleet_agentpack.enact.config import DEFAULT_MEMORY
from fleet_agentpack.server import build_server
from fleet_agentpack.settings import Settings
from tests.enact.attacks.publisher import NAME, attack, publish
from tests.enact.kit import needs_bwrap


@needs_bwrap
@pytest.mark.parametrize(
    ("kind", "size"),
    [("mmap.MAP_PRIVATE", DEFAULT_MEMORY), ("mmap.MAP_SHARED", DEFAULT_MEMORY * ADDRESS_SPACE)],
)
def test_memory_ends_at_the_limit(home: Path, kind: str, size: int) -> None:
    code = f"""
import mmap
mmap.mmap(-1, 1024 * 1024, {kind} | mmap.MAP_ANONYMOUS)
try:
    mmap.mmap(-1, {size}, {kind} | mmap.MAP_ANONYMOUS | 0x4000)  # reserved, not touched
    print("got it")
except OSError:
    print("refused")
"""
    assert attack(home, code).output == "refused\n"


@needs_bwrap
def test_limits_cannot_be_raised(home: Path) -> None:
    code = """
import resource
try:
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print("raised")
except (OSError, ValueError):
    print("refused")
"""
    assert attack(home, code).output == "refused\n"


@needs_bwrap
@pytest.mark.parametrize(
    ("char", "count"), [("\\x00", 30_000), ("\\x00", 1_000_000), ('"', 30_000)]
)
async def test_output_is_bounded_after_it_is_encoded(home: Path, char: str, count: int) -> None:
    publish(home, f"print('{char}' * {count})").install(NAME)
    settings = Settings.read()
    async with Client(build_server(settings)) as client:
        for name, given in (("eve__tool", {}), ("enact__run", {"tool": NAME})):
            result = await client.call_tool(name, given)
            sent = json.dumps([each.model_dump(mode="json") for each in result.content])
            assert len(json.dumps(result.structured_content)) <= settings.result_bytes
            assert len(sent) <= 3 * settings.result_bytes
            how = re.search(r"enact://[^\s?\"\\]+", sent)
            assert how and await client.read_resource(how[0])


@needs_bwrap
def test_memory_outside_of_a_process_is_bounded_too(home: Path) -> None:
    """Files in memory and shared segments belong to no process, so no limit of one counts them."""
    code = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
made = {}
try:
    os.close(os.memfd_create("x"))
    made["memfd_create"] = True
except OSError:
    pass
made["shmget"] = libc.shmget(0, 4096, 0o1600) >= 0
made["semget"] = [libc.semget(0, 32000, 0o1600) for _ in range(20)][-1] >= 0  # 40 MB
made["msgget"] = libc.msgget(0, 0o1600) >= 0
print(json.dumps([name for name, done in made.items() if done]))
"""
    assert attack(home, code).output == []
