"""Fixtures of the tool registry's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet_agentpack.enact.service import EnactService
from tests.enact.fake_registry import FakeRegistry, serving
from tests.enact.kit import make_service


@pytest.fixture
def service(home: Path) -> Iterator[EnactService]:
    """A service in an empty home."""
    made = make_service(home)
    yield made
    made.close()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry on loopback."""
    with serving(FakeRegistry()) as made:
        yield made
