"""Asynchronous work for synchronous callers."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleet_agentpack.kit import background


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_many_threads_share_one_loop() -> None:
    async def loop() -> int:
        return id(asyncio.get_running_loop())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: background.run(double(n)), range(50))) == [
            2 * n for n in range(50)
        ]
        assert len(set(pool.map(lambda _: background.run(loop()), range(20)))) == 1


def test_an_error_of_the_work_is_the_callers() -> None:
    async def fail(error: Exception) -> None:
        raise error

    for error in (ValueError("no"), TimeoutError("its own")):
        with pytest.raises(type(error), match=str(error)):
            background.run(fail(error), tick=lambda: None)


def test_a_tick_that_raises_gives_the_work_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "TICK_S", 0.01)
    ended, here = threading.Event(), threading.current_thread()
    ticks: list[threading.Thread] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    class GivenUp(Exception):
        pass

    def tick() -> None:
        ticks.append(threading.current_thread())
        if len(ticks) == 3:
            raise GivenUp

    with pytest.raises(GivenUp):
        background.run(hang(), tick)
    assert ended.wait(5)
    assert ticks == [here] * 3
