"""A service over a realistic tree, and a registry on the loopback."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack import cli
from fleet_agentpack.forge.access import Transport
from fleet_agentpack.forge.names import Directories
from fleet_agentpack.forge.service import ForgeService
from tests.forge import tree
from tests.forge.registry import Site, serving

Run = Callable[..., "Done"]


class MemoryVault:
    """A keyring that a test can look into."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def get(self, account: str) -> str | None:
        return self.kept.get(account)

    def put(self, account: str, secret: str) -> bool:
        self.kept[account] = secret
        return True

    def remove(self, account: str) -> None:
        self.kept.pop(account, None)


class NoVault(MemoryVault):
    """A system without a keyring."""

    def put(self, account: str, secret: str) -> bool:
        return False


@pytest.fixture
def make(home: Path, work: Path) -> Callable[..., ForgeService]:
    """Makes a service; keyword arguments become environment variables."""

    def make(vault: Any = None, **variables: str) -> ForgeService:
        transport = Transport(connect_timeout_s=1.0, deadline_s=3.0)
        directories = Directories(work, home, {**os.environ, **variables})
        return ForgeService(directories, vault=vault or NoVault(), transport=transport)

    return make


@pytest.fixture
def forge(make: Callable[..., ForgeService]) -> ForgeService:
    """A service over an empty project and home."""
    return make()


@pytest.fixture
def full(home: Path, work: Path, forge: ForgeService) -> ForgeService:
    """A service over the realistic tree."""
    tree.build(work, home)
    return forge


@pytest.fixture
def site() -> Iterator[Site]:
    """A registry's server on the loopback."""
    with serving() as site:
        yield site


@pytest.fixture
def configure(work: Path) -> Callable[..., None]:
    """Writes the project's configuration."""

    def configure(*registries: dict[str, Any], **sections: Any) -> None:
        path = work / ".fractary/config.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"registries": list(registries), **sections}))

    return configure


@dataclass(frozen=True)
class Done:
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process, which is much faster than starting one."""

    def run(*arguments: str, status: int = 0, stdin: str = "", **env: str) -> Done:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        try:
            ended = cli.run(["forge", *arguments])
        except SystemExit as stop:
            ended = int(stop.code or 0)
        captured = capsys.readouterr()
        assert ended == status, (arguments, captured)
        return Done(captured.out, captured.err)

    return run


def answer(done: Any) -> Any:
    """What a command printed with `--json`."""
    return json.loads(done.stdout)
