"""Every call that takes long tells its client so, in numbers that grow."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from fastmcp import Client

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire import progress
from fleet_agentpack.wire.call import Call, CurrentCall
from fleet_agentpack.wire.provider import READS, DomainTools
from fleet_agentpack.wire.server import assemble

heard = threading.Event()  # set as soon as the client has heard of the call


def toy() -> DomainTools:
    mcp = DomainTools(
        "toy", server_name="toy", instructions="", error=ClimptError, open_service=lambda _: None
    )

    @mcp.tool(annotations=READS)
    def silent() -> Any:
        """Work in a thread and say nothing."""
        assert heard.wait(20)
        return {}

    @mcp.tool(annotations=READS)
    async def talking(call: Call = CurrentCall()) -> Any:
        """Say where it is, then work on in silence."""
        call.report(0, None, "fetching")
        call.report(0, None, "unpacking")
        call.report(1, 2, "installing")
        call.report(1, 2, "installing still")
        while not heard.is_set():
            await asyncio.sleep(0.005)
        return {}

    @mcp.tool(annotations=READS)
    def quick() -> Any:
        """Be done at once."""
        return {}

    return mcp


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    heard.clear()
    monkeypatch.setattr(progress, "FIRST_S", 0.05)
    monkeypatch.setattr(progress, "NEXT_S", 0.05)


async def notes_of(tool: str, mode: Any, enough: int) -> list[tuple[float, float | None, str]]:
    notes: list[tuple[float, float | None, str]] = []

    async def note(done: float, total: float | None, text: str | None) -> None:
        notes.append((done, total, text or ""))
        if len(notes) >= enough:
            heard.set()

    async with Client(assemble(Settings.read(), [toy()]), mode=mode) as client:
        result = await client.call_tool(tool, progress_handler=note)
        assert not result.is_error
        told = len(notes)
        await client.ping() if mode == "legacy" else await client.list_tools()
        assert len(notes) == told  # nothing after the answer
    return notes


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_call_that_says_nothing_shows_that_it_is_alive(mode: Any) -> None:
    notes = await notes_of("silent", mode, 3)
    assert all(text.startswith("silent (") for _, _, text in notes)
    numbers = [done for done, _, _ in notes]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_what_a_tool_reports_is_told_in_growing_numbers_and_repeated(mode: Any) -> None:
    notes = await notes_of("talking", mode, 6)
    assert [text for _, _, text in notes[:4]] == [
        "fetching", "unpacking", "installing", "installing still"
    ]  # fmt: skip
    assert notes[4][2].startswith("installing still (")
    numbers = [done for done, _, _ in notes]
    assert numbers == sorted(set(numbers))
    assert all(total is None or done <= total for done, total, _ in notes)


async def test_a_quick_call_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_S", 600)  # quick, however busy the machine is
    assert await notes_of("quick", "legacy", 1) == []
