"""Fixtures of the tool registry's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet_agentpack.enact.service import EnactService
from tests.enact.fake_registry import FakeRegistry, serving
from tests.enact.kit import OPENED, make_service


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    """Close what the test opened."""
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture
def service(home: Path) -> EnactService:
    """A service in an empty home."""
    return make_service(home)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry on loopback."""
    with serving(FakeRegistry()) as made:
        yield made
