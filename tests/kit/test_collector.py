"""The garbage collector rests inside, and only there."""

from __future__ import annotations

import gc
import threading

import pytest

from fleet_agentpack.kit import collector
from fleet_agentpack.kit.collector import paused_collector


def test_it_rests_inside_and_works_again_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(KeyError), paused_collector():
        assert not gc.isenabled()
        with paused_collector():
            pass
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_cycles_made_inside_are_found_later() -> None:
    class Ring:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Ring.alive += 1

        def __del__(self) -> None:
            Ring.alive -= 1

    @paused_collector()
    def make() -> None:
        for _ in range(2000):
            Ring()

    make()
    assert Ring.alive == 2000
    gc.collect()
    assert Ring.alive == 0


def test_what_is_frozen_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(collector, "_frozen", threading.Event())
    monkeypatch.setattr(gc, "get_freeze_count", lambda: asked.append(1) or 500_000)
    monkeypatch.setattr(gc, "unfreeze", lambda: pytest.fail("a server's imports stay frozen"))
    for _ in range(3):
        with paused_collector():
            pass
    assert len(asked) == 1
