"""The Dagger provider: against a double of its SDK, and against the SDK itself where it is."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.backends import dagger_child
from fleet_agentpack.enact.backends.dagger import Dagger
from fleet_agentpack.enact.backends.job import Job


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


@pytest.mark.container
def test_the_real_sdk_takes_the_calls_we_make(tmp_path: Path) -> None:
    """No engine runs: the SDK builds and checks the whole query, only its sending is replaced."""
    dagger = pytest.importorskip("dagger", reason="the Dagger SDK is not installed")
    asked: list[str] = []

    def answer(value: Any) -> Any:
        async def give(self: Any, *_: Any) -> Any:
            asked.append(" ".join(field.name for field in self._ctx.selections))
            return value

        return give

    @asynccontextmanager
    async def connection(config: Any) -> Any:
        assert isinstance(config, dagger.Config)
        yield

    (tmp_path / "file").write_text("x")
    job = Job(
        "a/b",
        tmp_path,
        ["echo", "x"],
        {"TOKEN": "s3cret"},
        [Mount(tmp_path / "file"), Mount(tmp_path, writable=True)],
        image="alpine:3",
        stdin=b"{}",
    )
    with Dagger({}).prepared(job) as start:
        request = json.loads(start.command.stdin)
    sdk = SimpleNamespace(
        connection=connection, Config=dagger.Config, dag=dagger.dag, ReturnType=dagger.ReturnType
    )
    with pytest.MonkeyPatch.context() as patch:
        for kind, name, value in (
            (dagger.Container, "exit_code", 0),
            (dagger.Container, "stdout", "out"),
            (dagger.Container, "stderr", "err"),
            (dagger.Directory, "export", "path"),
        ):
            inspect.signature(getattr(kind, name)).bind(None, *(["p"] if name == "export" else []))
            patch.setattr(kind, name, answer(value))
        assert asyncio.run(dagger_child.run(request, sdk)) == (0, "out", "err")
    steps = (
        "container from withMountedDirectory withWorkdir withEnvVariable withMountedFile "
        "withMountedDirectory withSecretVariable withExec"
    )
    assert asked == [steps, steps, steps, f"{steps} directory"]


def test_two_runs_are_never_one_for_the_engines_cache(sdk: list[Any], tmp_path: Path) -> None:
    with Dagger({}).prepared(Job("a/b", tmp_path, ["date"])) as start:
        request = json.loads(start.command.stdin)
    for _ in range(2):
        asyncio.run(dagger_child.run(request, sys.modules["dagger"]))
    marks = [arguments for name, arguments, _ in sdk if name == "with_env_variable"]
    assert len(set(marks)) == len(marks) == 2


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
    assert "-P" in command.argv, "nothing is imported from the working directory"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(command.stdin)))
    assert dagger_child.main() == 3
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
