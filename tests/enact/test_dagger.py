"""The Dagger backend without an engine: a double of its SDK, and the SDK itself."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact.backends import dagger as backend
from fleet_agentpack.enact.backends import dagger_child
from fleet_agentpack.enact.permissions import Permissions
from fleet_agentpack.enact.service import EnactService
from tests.enact.kit import add_tool, configure, make_service, refused

NAME = "eve/engine"
IMAGE = "docker.io/library/known@sha256:" + "a" * 64
OUT = {
    "type": "object",
    "properties": {"out": {"type": "string", "format": "directory-path", "x-access": "write"}},
}
Made = Callable[..., EnactService]


@pytest.fixture
def engine(home: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Makes a service whose Dagger is the double, with a tool in its registry."""
    program = home / "bin" / "dagger"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setattr(backend, "_VARIABLES", (*backend._VARIABLES, "PYTHONPATH"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    double = str(Path(__file__).parent / "engine_double")

    def make(said: dict[str, Any] | None = None, **fields: Any) -> EnactService:
        (home / "engine.json").write_text(json.dumps(said or {}))
        environ = {
            "HOME": str(home),
            "PYTHONPATH": double,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "TOKEN": "s3cret",
            "_EXPERIMENTAL_DAGGER_RUNNER_HOST": "unix:///nowhere",
        }
        given = {"from": "known:1", "command": "echo x", **fields}
        execution = given.pop("execution", {})
        granted = given.pop("granted", Permissions())
        if not (home / "registry").exists():
            add_tool(home / "registry", NAME, **given)
        configure(
            home,
            trust={"policy": "allow"},
            registry={"url": str(home / "registry")},
            execution={"default": "dagger", **execution},
        )
        service = make_service(home, environ=environ)
        service.install(NAME)
        if granted:
            service.grants.allow(NAME, granted)
        return service

    return make


def calls(home: Path, name: str = "") -> list[Any]:
    """The calls of the SDK: who, what, with what."""
    lines = (home / "calls.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [each for each in found if not name or (len(each) > 2 and each[2] == name)]


def dockerfile(home: Path) -> list[str]:
    (text,) = [
        arguments[1]
        for _, _, _, arguments, _ in calls(home, "with_new_file")
        if arguments[0].endswith("Dockerfile")
    ]
    lines: list[str] = text.splitlines()
    return lines


def test_a_run_has_no_network_and_nothing_of_its_caller_in_the_build(
    home: Path, engine: Made
) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    result = engine(command="echo {{text}}", inputSchema=schema).run(NAME, {"text": "$(x) <<E\n"})
    assert (result.output, result.provider) == ("out", "dagger")
    lines = dockerfile(home)
    assert lines[:3] == ["FROM scratch", 'COPY ["image/", "/"]', 'COPY ["given/", "/"]']
    (ran,) = [line for line in lines if line.startswith("RUN ")]
    assert ran.startswith("RUN --network=none --mount=type=tmpfs,target=/tmp,size=268435456 [")
    assert json.loads(ran[ran.index("[") :])[-2:] == ["echo", "$(x) <<E\n"]
    assert "<<" not in ran, "no document of the build begins here"
    assert "USER 65532:65532" in lines
    assert not calls(home, "with_exec")


def test_the_image_is_pinned_and_runs_by_digest(home: Path, engine: Made) -> None:
    engine().run(NAME)
    receipt = json.loads((home / ".enact/receipts" / NAME / "1.0.0.json").read_text())
    assert receipt["image"] == IMAGE
    assert [arguments for *_, arguments, _ in calls(home, "from_")] == [["known:1"], [IMAGE]]


def test_the_whole_network_is_another_way_and_single_hosts_are_refused(
    home: Path, engine: Made
) -> None:
    anywhere = {"x-network": True, "granted": Permissions(network=("*",))}
    engine(**anywhere).run(NAME)
    assert calls(home, "with_exec") and not calls(home, "docker_build")
    assert calls(home, "with_user")[0][3] == ["65532:65532"]
    service = engine()
    service.grants.revoke(NAME, Permissions())
    service.grants.allow(NAME, Permissions(network=("api.example.test",)))
    with refused("PROVIDER_UNAVAILABLE") as refusal:
        service.run(NAME)
    assert "every host or none" in refusal.error.message


def test_secrets_are_no_text_of_the_build(home: Path, engine: Made) -> None:
    declared = {"env": {"TOKEN": {"description": "a token", "secret": True}}}
    result = engine({"stdout": "s3cret"}, **declared, granted=Permissions(variables=("TOKEN",)))
    assert result.run(NAME).output == "***"
    (ran,) = [line for line in dockerfile(home) if line.startswith("RUN ")]
    assert ",env=TOKEN" in ran and "s3cret" not in "\n".join(dockerfile(home))
    assert calls(home, "set_secret")[0][3][1] == "s3cret"


def test_two_runs_are_never_one_for_the_engines_cache_and_share_a_connection(
    home: Path, engine: Made
) -> None:
    service = engine()
    service.run(NAME)
    service.run(NAME)
    marks = [options["build_args"] for *_, options in calls(home, "docker_build")]
    assert len({str(each) for each in marks}) == 2
    assert len([each for each in calls(home) if each[1:] == ["connection"]]) == 1
    assert len({each[0] for each in calls(home)}) == 1


def test_standard_input_needs_no_network(home: Path, engine: Made) -> None:
    engine(**{"x-stdin": "json"}).run(NAME)
    (ran,) = [line for line in dockerfile(home) if line.startswith("RUN ")]
    assert 'exec \\"$@\\" \\u003c /.enact-stdin' in ran
    assert "/.enact-stdin" in str(calls(home, "with_new_file"))


def test_how_a_run_ended_is_told(home: Path, engine: Made) -> None:
    with refused("EXECUTION_FAILED") as refusal:
        engine({"raises": True}).run(NAME)
    details = refusal.error.details
    assert (details["exit_code"], details["stdout"]) == (137, "said")


def test_what_a_tool_changed_is_given_back_as_a_change_set(
    home: Path, work: Path, engine: Made
) -> None:
    (work / ".git").mkdir(parents=True)
    service = engine({"added_paths": ["new"]}, command="echo {{out}}", inputSchema=OUT)
    service.run(NAME, {"out": str(work)})
    (export,) = calls(home, "export")
    assert export[1].endswith(".changes") and export[3] == [str(work)]
    copied = next(each for each in calls(home, "directory") if each[3] == [str(work)])
    assert copied[4]["exclude"] == [".git"], "what is hidden is never copied"
    assert calls(home, "without_directory")[0][3] == [".git"], "nor given back"


def test_what_the_user_changed_meanwhile_stays(home: Path, work: Path, engine: Made) -> None:
    work.mkdir(exist_ok=True)
    mine = work / "mine"
    mine.write_text("before")
    said = {"modified_paths": ["mine"], "edits": str(mine)}
    service = engine(said, command="echo {{out}}", inputSchema=OUT)
    result = service.run(NAME, {"out": str(work)})
    assert "yours was kept" in str(result.warnings)
    assert not calls(home, "export"), "nothing else has changed"
    assert mine.read_text() == "the user's"


def test_a_failed_run_gives_nothing_back(home: Path, work: Path, engine: Made) -> None:
    work.mkdir(exist_ok=True)
    said = {"exit_code": 3, "added_paths": ["new"]}
    with refused("EXECUTION_FAILED"):
        engine(said, command="echo {{out}}", inputSchema=OUT).run(NAME, {"out": str(work)})
    assert not calls(home, "export")


def test_copies_are_pruned_after_a_run(home: Path, engine: Made) -> None:
    engine().run(NAME)
    assert calls(home)[-1][2] == "prune"


STOPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "the engine failed": ("PROVIDER_UNAVAILABLE", {"breaks": True}),
    "it took too long": ("TIMEOUT", {"takes_s": 60}),
    "it printed too much": ("OUTPUT_TOO_LARGE", {"prints": 3 * 1024 * 1024, "takes_s": 60}),
    "its process was lost": ("PROVIDER_UNAVAILABLE", {"exits": True}),
}


@pytest.mark.parametrize("how", STOPPED)
def test_copies_are_pruned_after_a_run_that_was_stopped(home: Path, engine: Made, how: str) -> None:
    code, said = STOPPED[how]
    with refused(code):
        engine(said, timeout="1s").run(NAME)
    assert calls(home)[-1][2] == "prune"


def test_output_without_end_stops_the_run(home: Path, engine: Made) -> None:
    with refused("OUTPUT_TOO_LARGE"):
        engine({"prints": 3 * 1024 * 1024, "takes_s": 60}).run(NAME)
    with refused("OUTPUT_TOO_LARGE"):
        engine({"stdout": "x" * (1024 * 1024 + 1)}).run(NAME)


def test_a_run_that_takes_too_long_is_ended(home: Path, engine: Made) -> None:
    service = engine({"takes_s": 60}, timeout="1s")
    started = time.monotonic()
    with refused("TIMEOUT"):
        service.run(NAME)
    assert time.monotonic() - started < 10
    (home / "engine.json").write_text("{}")
    assert service.run(NAME).output == "out", "the next run has a new connection"


LACKING = {
    "SDK": ("the Dagger SDK is not installed", {}),
    "CLI": ("the Dagger CLI is missing", {}),
    "engine": ("no Dagger engine can be reached: connection refused", {"down": True}),
    "image": ("the image known:none could not be pulled: not found", {}),
}


@pytest.mark.parametrize("part", LACKING)
def test_the_missing_part_is_named_and_the_fallback_is_used(
    home: Path, engine: Made, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason, said = LACKING[part]
    if part == "SDK":
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    if part == "CLI":
        (home / "bin" / "dagger").unlink()
    image = {"from": "known:none"} if part == "image" else {"from": None}
    with refused("PROVIDER_UNAVAILABLE") as refusal:
        engine(said, command="echo from the host", **image).run(NAME)
    if part != "image":  # one that was never pinned says so
        assert reason in refusal.error.message
    fallen = engine(said, execution={"fallback": "local"}).run(NAME)
    assert (fallen.output, fallen.provider) == ("from the host\n", "local")


def test_a_missing_image_is_told_at_the_install(home: Path, engine: Made) -> None:
    service = engine(**{"from": "known:none"})
    assert "could not be pulled: not found" in str(service.install(NAME).warnings)


def test_only_what_the_engine_needs_is_in_the_environment() -> None:
    environ = {"PATH": "/bin", "SECRET": "x", "_EXPERIMENTAL_DAGGER_RUNNER_HOST": "unix:///x"}
    env = backend.Dagger(environ)._connections._env
    assert "SECRET" not in env and env["_EXPERIMENTAL_DAGGER_RUNNER_HOST"] == "unix:///x"


@pytest.mark.container
@pytest.mark.parametrize("network", [False, True])
def test_the_real_sdk_takes_the_calls_we_make(
    work: Path, monkeypatch: pytest.MonkeyPatch, network: bool
) -> None:
    """No engine runs: the SDK makes and checks every query, only its sending is replaced."""
    dagger = pytest.importorskip("dagger", reason="the Dagger SDK is not installed")
    from dagger.client import _core

    answers = {"exitCode": 0, "exists": True, "addedPaths": ["a"], "envVariables": []}
    lists = ("modifiedPaths", "removedPaths")
    asked: list[str] = []

    async def execute(self: Any, return_type: Any = None) -> Any:
        await self.resolve_ids()
        names = [field.name for field in self.selections]
        asked.append(" ".join(names))
        if names[-1] in lists or "envVariables" in names:
            return []
        return answers.get(names[-1], f"some {names[-1]}")

    @asynccontextmanager
    async def connection(config: Any) -> Any:
        yield

    monkeypatch.setattr(_core.Context, "execute", execute)
    work.mkdir(exist_ok=True)
    (work / "file").write_text("x")
    job = {
        "kind": "run",
        "image": IMAGE,
        "argv": ["echo", "x"],
        "env": {"TOKEN": "s3cret"},
        "plain": {"MODE": "x"},
        "folder": str(work),
        "files": [str(work / "file")],
        "directories": [[str(work), True, [".git"]]],
        "stdin": "{}",
        "network": network,
        "memory_bytes": 1,
        "processes": 1,
        "disk_bytes": 1,
    }
    session = dagger_child.Session(dagger)
    answer = asyncio.run(dagger_child.answered(session, job))
    assert answer["code"] == 0
    build = "directory withDirectory withDirectory withNewFile dockerBuild"
    ran = "withSecretVariable withExec" if network else build
    assert any(line.endswith(f"{ran} exitCode") for line in asked), asked
    assert any(line.endswith("changes export") for line in asked), asked
    assert asked[-1].endswith("localCache prune")
