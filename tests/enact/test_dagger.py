"""The Dagger provider, against a double of its SDK."""

from __future__ import annotations

import io
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fleet_agentpack.enact import dagger_run
from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.providers import Dagger, Job


class Recorder:
    """Stands for any object of the SDK: remembers every call, answers with itself."""

    def __init__(self, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments, options))
            if name in ("exit_code", "stdout", "stderr", "export"):
                return _later({"exit_code": 3, "stdout": "out", "stderr": "err"}.get(name))
            return self

        return call


async def _later(value: Any) -> Any:
    return value


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    @asynccontextmanager
    async def connection(_config: Any) -> Any:
        yield

    module = ModuleType("dagger")
    module.__dict__.update(
        dag=Recorder(calls),
        connection=connection,
        Config=lambda **_: None,
        ReturnType=SimpleNamespace(ANY="ANY"),
    )
    module.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "dagger", module)
    return calls


def test_a_job_becomes_a_container_without_a_shell(
    sdk: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "file").write_text("x")
    job = Job(
        "a/b",
        tmp_path,
        ["echo", "$(x)"],
        {"TOKEN": "s3cret"},
        [Mount(tmp_path / "file"), Mount(tmp_path, writable=True)],
        image="alpine:3",
        stdin=b"{}",
    )
    provider = Dagger({"PATH": "/bin", "SECRET": "x"})
    assert provider.unavailable() is None
    with provider.prepared(job) as start:
        command = start.command
    assert "s3cret" not in " ".join(command.argv)
    assert command.env == {"PATH": "/bin"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(command.stdin)))
    assert dagger_run.main() == 3
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("out", "err")
    calls = [name for name, _, _ in sdk]
    assert ("from_", ("alpine:3",), {}) in sdk
    (executed,) = [each for each in sdk if each[0] == "with_exec"]
    assert executed[1] == (["echo", "$(x)"],)
    assert executed[2]["stdin"] == "{}" and executed[2]["expect"] == "ANY"
    assert ("set_secret", ("TOKEN", "s3cret"), {}) in sdk
    assert "with_mounted_file" in calls
    assert "export" not in calls, "a failed run writes nothing back"
    assert json.loads(command.stdin)["argv"] == ["echo", "$(x)"]
