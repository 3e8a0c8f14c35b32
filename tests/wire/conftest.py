"""Servers that many tests may share: starting one takes a second, asking it a millisecond."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import enter_empty_home
from tests.rig import EXAMPLE, Stdio


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stdio]:
    """The example domain on stdio, after the handshake; `folder` is where it works."""
    with pytest.MonkeyPatch.context() as patch:
        home = enter_empty_home(tmp_path_factory.mktemp("example"), patch)
        server = Stdio(EXAMPLE, cwd=home / "work")
    with server:
        server.hello()
        yield server
        assert server.bad_lines == []


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What `tools/list` answers on a machine with nothing on it."""
    with pytest.MonkeyPatch.context() as patch:
        enter_empty_home(tmp_path_factory.mktemp("plain"), patch)
        with Stdio() as server:
            server.hello()
            listed: list[dict[str, Any]] = server.ask("tools/list")["result"]["tools"]
            return listed
