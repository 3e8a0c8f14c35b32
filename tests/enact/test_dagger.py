"""The Dagger backend without an engine: a double of its SDK, and the SDK itself."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact.backends import dagger as backend
from fleet_agentpack.enact.backends import dagger_child, dagger_connection
from fleet_agentpack.enact.backends.dagger_connection import MODULE, LostError
from fleet_agentpack.enact.backends.dagger_session import Session
from fleet_agentpack.enact.permissions import Permissions
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.kit.results import UNKNOWN
from tests.enact.kit import add_tool, configure, make_service, refused

NAME = "eve/engine"
IMAGE = "docker.io/library/known@sha256:" + "a" * 64
OUT = {
    "type": "object",
    "properties": {"out": {"type": "string", "format": "directory-path", "x-access": "write"}},
}
EMPTY: dict[str, Any] = {
    "folder": "/nowhere",
    "network": False,
    "memory_bytes": 1,
    "processes": 1,
    "disk_bytes": 1,
    "in_image": False,
    "places": ["/workspace"],
    "env": {},
    "plain": {},
    "files": [],
    "directories": [],
    "stdin": "",
}
DOUBLE = Path(__file__).parent / "engine_double"
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

    def make(said: dict[str, Any] | None = None, **fields: Any) -> EnactService:
        (home / "engine.json").write_text(json.dumps(said or {}))
        environ = {
            "HOME": str(home),
            "PYTHONPATH": str(DOUBLE),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "TOKEN": "s3cret",
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


def files(home: Path) -> dict[str, list[str]]:
    """The texts that were written into builds, by their names."""
    found: dict[str, list[str]] = {}
    for _, _, _, (name, text), _ in calls(home, "with_new_file"):
        if (
            "\nRUN " in text or name != "enact.Dockerfile"
        ):  # what is kept of an image for the next run
            found.setdefault(name, []).append(text)
    return found


def given_back(home: Path) -> list[Any]:
    """What was written into directories of the user."""
    return [each for each in calls(home, "export") if ".changes" in each[1]]


def dockerfile(home: Path) -> list[str]:
    (text,) = files(home)["enact.Dockerfile"]
    return text.splitlines()


def instruction(home: Path, word: str) -> str:
    (found,) = [line for line in dockerfile(home) if line.startswith(f"{word} ")]
    return found


def script(home: Path) -> list[str]:
    """The command that a shell in the image is given, without what bounds it."""
    (text,) = files(home)["/.enact-run"]
    words = shlex.split(text)
    return words[words.index("sh", words.index("sh") + 1) + 1 :]


def test_a_run_has_no_network_and_nothing_of_its_caller_in_the_build(
    home: Path, engine: Made
) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    result = engine(command="echo {{text}}", inputSchema=schema).run(NAME, {"text": "$(x) <<E\n"})
    assert (result.output, result.provider) == ("out", "dagger")
    lines = dockerfile(home)
    assert [each.strip() for each in lines[:3]] == [
        "FROM scratch",
        f'COPY --from={IMAGE} ["/", "/"]',
        'COPY ["given/", "/"]',
    ], "the image is copied, so that nothing that it says for a build (ONBUILD) is done"
    scratch = [f"--mount=type=tmpfs,target={each},size=268435456" for each in ("/tmp", "/var/tmp")]
    expected = ["RUN", "--network=none", *scratch, '["/bin/sh",', '"/.enact-run"]']
    assert instruction(home, "RUN").split() == expected
    assert script(home) == ["echo", "$(x) <<E\n"]
    # A directory that is made for a user belongs to it.
    assert lines.index("WORKDIR /workspace") < lines.index("USER 65532:65532")


@pytest.mark.parametrize("program", ["/bin/sh", "/usr/bin/head"])
def test_an_image_without_what_bounds_a_tool_is_left_to_the_fallback(
    home: Path, engine: Made, program: str
) -> None:
    said = {"absent": [program, "/bin/head"]}
    service = engine(said, command="echo from the host", execution={"fallback": "local"})
    assert f"has no {program}, which bounds" in str(service.install(NAME).warnings)
    result = service.run(NAME)
    assert (result.output, result.provider) == ("from the host\n", "local")


def test_the_image_is_pinned_and_runs_by_digest(home: Path, engine: Made) -> None:
    engine().run(NAME)
    receipt = json.loads((home / ".enact/receipts" / NAME / "1.0.0.json").read_text())
    assert receipt["image"] == IMAGE
    looked_at = [arguments for *_, arguments, _ in calls(home, "from_")]
    assert looked_at[:2] == [["known:1"], [IMAGE]], "at the install, and for the run"


def test_the_whole_network_can_be_granted_and_single_hosts_are_refused(
    home: Path, engine: Made
) -> None:
    anywhere = {"x-network": True, "granted": Permissions(network=("*",))}
    engine(**anywhere).run(NAME)
    assert "--network" not in instruction(home, "RUN")
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
    assert ",env=TOKEN" in instruction(home, "RUN")
    assert "s3cret" not in str(files(home))
    assert calls(home, "set_secret")[0][3][1] == "s3cret"


def test_a_value_of_several_lines_is_no_text_of_the_build_either(home: Path, engine: Made) -> None:
    declared = {name: {"description": "d", "default": name * 2 + "\nx"} for name in ("A", "B")}
    engine(env={**declared, "C": {"description": "d", "default": "plain"}}).run(NAME)
    assert [",env=A" in instruction(home, "RUN"), ",env=B" in instruction(home, "RUN")] == [
        True
    ] * 2
    assert 'ENV C="plain"' in dockerfile(home) and "AA" not in str(files(home))


def test_two_runs_are_never_one_for_the_engines_cache_and_share_a_connection(
    home: Path, engine: Made
) -> None:
    service = engine()
    for _ in range(3):
        service.run(NAME)
    runs = [each for each in calls(home, "docker_build") if each[4]["build_args"]]
    assert len({str(each[4]["build_args"]) for each in runs}) >= 3
    assert len({each[0] for each in calls(home)}) == 1, "one process"


def test_standard_input_needs_no_network(home: Path, engine: Made) -> None:
    engine(**{"x-stdin": "json"}).run(NAME)
    assert files(home)["/.enact-stdin"] == ["{}"]
    assert script(home) == ["echo", "x", "<", "/.enact-stdin"]


@pytest.mark.parametrize("code", [3, 125, 137, 141, 191])
def test_how_a_run_ended_is_told(home: Path, engine: Made, code: int) -> None:
    with refused("EXECUTION_FAILED") as refusal:
        engine({"code": code, "stdout": "said"}).run(NAME)
    details = refusal.error.details
    assert (details["exit_code"], details["stdout"], details["stderr"]) == (code, "said", "err")


ODD_ENDS: dict[str, tuple[int, dict[str, Any]]] = {
    "its shell was killed": (137, {"is_killed": True}),
    "it removed what it printed": (1, {"leaves": ["code"]}),
    "it wrote its own exit code": (1, {"code": "none"}),
}


@pytest.mark.parametrize("how", ODD_ENDS)
def test_a_run_that_ends_in_an_odd_way_failed(home: Path, engine: Made, how: str) -> None:
    code, said = ODD_ENDS[how]
    with refused("EXECUTION_FAILED") as refusal:
        engine(said).run(NAME)
    assert refusal.error.details["exit_code"] == code


def test_what_a_tool_prints_is_no_text_for_the_engines_log(home: Path, engine: Made) -> None:
    engine({"stdout": "s3cret"}).run(NAME)
    names = {each[2] for each in calls(home) if len(each) > 2}
    assert not names & {"stdout", "stderr", "contents", "combined_output"}


def test_what_a_tool_changed_is_given_back_as_a_change_set(
    home: Path, work: Path, engine: Made
) -> None:
    (work / ".git").mkdir(parents=True)
    added = ["new", ".git/config"]
    assert writing(home, work, engine, added_paths=added, glob=[".git/", *added]) == ()
    (export,) = given_back(home)
    assert ".changes.layer" in export[1] and export[3] == [str(work)]
    copied = next(each for each in calls(home, "directory") if each[3] == [str(work)])
    assert copied[4]["exclude"] == [".git"], "what is hidden is never copied"
    assert calls(home, "without_directory")[0][3] == [".git"], "nor given back"


def writing(home: Path, work: Path, engine: Made, **said: Any) -> tuple[str, ...]:
    """What is told of a run that may change a directory."""
    work.mkdir(exist_ok=True)
    service = engine(said, command="echo {{out}}", inputSchema=OUT)
    told = service.run(NAME, {"out": str(work)}).warnings
    return () if told is UNKNOWN else tuple(told)


def contents(root: Path) -> dict[str, str]:
    return {
        str(each.relative_to(root)): each.read_text() for each in root.rglob("*") if each.is_file()
    }


def test_what_the_user_changed_meanwhile_stays(home: Path, work: Path, engine: Made) -> None:
    work.mkdir(exist_ok=True)
    for name in ("mine", "other", "gone"):
        (work / name).write_text("before")
    told = writing(
        home,
        work,
        engine,
        modified_paths=["mine"],
        added_paths=["new"],
        removed_paths=["other", "gone"],
        glob=["mine", "new"],
        edits={str(work / each): "the user's" for each in ("mine", "other", "new")},
    )
    kept = [each.partition(" was changed by you and by the tool")[0] for each in told]
    assert kept == [str(work / each) for each in ("mine", "new", "other")]
    assert contents(work) == dict.fromkeys(("mine", "new", "other"), "the user's")
    assert not given_back(home), "nothing else has changed"


def test_a_directory_that_the_tool_deleted_goes_as_far_as_the_tool_saw_it(
    home: Path, work: Path, engine: Made
) -> None:
    for name in ("d/seen", "d/e/seen", "d/f/.env"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x")
    edits = {str(work / "d" / "new"): "x"}
    saw = ["seen", "e/", "e/seen", "f/"]
    assert writing(home, work, engine, removed_paths=["d/"], glob=saw, edits=edits) == ()
    assert set(contents(work)) == {"d/new", "d/f/.env"}
    assert not (work / "d" / "e").exists()


def test_a_directory_in_the_place_of_a_file_and_the_reverse(
    home: Path, work: Path, engine: Made
) -> None:
    (work / "folder").mkdir(parents=True)
    (work / "folder" / "x").write_text("x")
    (work / "file").write_text("x")
    changed = {"added_paths": ["file/", "file/y", "folder"], "removed_paths": ["file", "folder/"]}
    assert writing(home, work, engine, **changed, glob=["x", "file/", "file/y", "folder"]) == ()
    assert list(work.iterdir()) == [], "there is room for what is exported"
    assert [each[3] for each in given_back(home)] == [[str(work)]]


@pytest.mark.parametrize("theirs", ["a file", "a link"])
def test_nothing_is_written_through_what_the_user_put_in_the_place_of_a_directory(
    home: Path, work: Path, engine: Made, theirs: str
) -> None:
    (work / "folder").mkdir(parents=True)
    swap = [str(work / "folder"), str(home) if theirs == "a link" else ""]
    said = {"added_paths": ["folder/new"], "glob": ["folder/", "folder/new"], "swaps": swap}
    told = writing(home, work, engine, **said)
    assert "folder was changed by you and by the tool" in str(told)
    assert not given_back(home)


def test_only_files_links_and_directories_are_given_back(
    home: Path, work: Path, engine: Made
) -> None:
    said = {"added_paths": ["d/", "d/file"], "glob": ["d/", "d/file", "d/device", "pipe"]}
    writing(home, work, engine, **said)
    assert [each[3] for each in calls(home, "without_file")] == [["d/device"], ["pipe"]]


def test_what_was_hidden_is_not_written_over(home: Path, work: Path, engine: Made) -> None:
    work.mkdir(exist_ok=True)
    (work / ".env").write_text("KEY=1")
    assert writing(home, work, engine, added_paths=[".env"], glob=[".env"]) == ()
    assert not given_back(home)


def test_what_the_tool_was_not_shown_is_not_written_over(
    home: Path, work: Path, engine: Made
) -> None:
    """Such as a socket, or what a pattern has hidden with something else."""
    work.mkdir(exist_ok=True)
    (work / "there").write_text("the user's")
    told = writing(home, work, engine, added_paths=["there"], glob=["there"])
    assert "there was changed by you and by the tool" in str(told)
    assert not given_back(home)


ODD = ("[slug]", "!a", "#b", "b*", "c d", "e?", "f\\g", "new\nline")


def test_what_is_hidden_is_left_out_by_patterns_that_say_no_less(
    home: Path, work: Path, engine: Made
) -> None:
    for name in ODD:
        (work / name / ".git").mkdir(parents=True)
    writing(home, work, engine)
    copied = next(each for each in calls(home, "directory") if each[3] == [str(work)])
    assert sorted(copied[4]["exclude"]) == sorted(
        f"{each}/.git" for each in ("?slug?", "?a", "?b", "b?", "c?d", "e?", "f?g", "new?line")
    )
    assert copied[4]["no_cache"] is True


def test_a_failed_run_gives_nothing_back(home: Path, work: Path, engine: Made) -> None:
    work.mkdir(exist_ok=True)
    said = {"code": 3, "added_paths": ["new"]}
    with refused("EXECUTION_FAILED"):
        engine(said, command="echo {{out}}", inputSchema=OUT).run(NAME, {"out": str(work)})
    assert not given_back(home)


def assert_pruned(home: Path) -> None:
    """An engine forgets nothing that an open session has seen."""
    words = [each[1] if len(each) == 2 else each[2] for each in calls(home)]
    last_run = max(index for index, word in enumerate(words) if word == "docker_build")
    after = words[last_run:]
    assert "prune" in after[after.index("closed") :], after


def test_copies_are_pruned_once_the_session_of_a_run_is_closed(home: Path, engine: Made) -> None:
    service = engine()
    service.run(NAME)
    service.close()
    assert_pruned(home)


STOPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "the tool failed": ("EXECUTION_FAILED", {"code": 3}),
    "the tool was killed": ("EXECUTION_FAILED", {"is_killed": True}),
    "the engine failed": ("PROVIDER_UNAVAILABLE", {"breaks": True}),
    "it took too long": ("TIMEOUT", {"takes_s": 60}),
    "it printed too much": ("OUTPUT_TOO_LARGE", {"stdout": "x" * (1024 * 1024 + 1)}),
    "its process was lost": ("PROVIDER_UNAVAILABLE", {"exits": True}),
}


@pytest.mark.parametrize("how", STOPPED)
def test_copies_are_pruned_after_a_run_that_was_stopped(home: Path, engine: Made, how: str) -> None:
    code, said = STOPPED[how]
    service = engine(said, timeout="1s")
    with refused(code):
        service.run(NAME)
    service.close()
    words = [each[1] if len(each) == 2 else each[2] for each in calls(home)]
    if how == "its process was lost":
        assert "prune" in words, "by another process"
    else:
        assert_pruned(home)


def test_a_run_whose_caller_is_gone_is_stopped_and_pruned(home: Path, engine: Made) -> None:
    """The server was killed: its process notices that nobody asks any more."""
    request = {"kind": "run", "image": "known:1", "argv": ["x"], **EMPTY}
    (home / "engine.json").write_text(json.dumps({"takes_s": 60}))
    with subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE],
        env={"HOME": str(home), "PYTHONPATH": f"{DOUBLE}:{Path(backend.__file__).parents[3]}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin and child.stdout
        child.stdout.readline()
        child.stdin.write(json.dumps(request).encode() + b"\n")
        child.stdin.flush()
        while not calls(home, "docker_build"):
            assert child.poll() is None
            threading.Event().wait(0.02)
        child.stdin.close()
        assert child.wait(20) == 0
    assert_pruned(home)


def test_output_is_cut_off_where_it_is_printed(home: Path, engine: Made) -> None:
    engine().run(NAME)
    (text,) = files(home)["/.enact-run"]
    assert text.count("head -c 1048577") == 2


def test_a_run_that_takes_too_long_is_ended(home: Path, engine: Made) -> None:
    service = engine({"takes_s": 60}, timeout="1s")
    with refused("TIMEOUT") as refusal:
        service.run(NAME)
    assert "within 1 s" in refusal.error.message
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


@pytest.mark.parametrize("address", ["unix://{home}/none", "tcp://127.0.0.1:1"])
def test_an_address_where_nothing_listens_is_noticed_before_anything_is_started(
    home: Path, address: str
) -> None:
    found = backend.Dagger({"_EXPERIMENTAL_DAGGER_RUNNER_HOST": address.format(home=home)})
    with pytest.raises(LostError, match="no Dagger engine can be reached: "):
        found._connections.probe()


def test_an_engine_that_dies_during_a_run_is_noticed(
    home: Path, engine: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dagger_connection, "LOOK_S", 0.1)
    service = engine({"takes_s": 60})
    connections = service._runner._dagger._connections
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "socket"))
        listening.listen(50)
        connections._env["_EXPERIMENTAL_DAGGER_RUNNER_HOST"] = f"unix://{home}/socket"
        threading.Thread(target=closed_once_it_runs, args=[home, listening], daemon=True).start()
        with refused("PROVIDER_UNAVAILABLE") as refusal:
            service.run(NAME)
    assert "no Dagger engine can be reached" in refusal.error.message


def closed_once_it_runs(home: Path, listening: socket.socket) -> None:
    while not (home / "calls.jsonl").exists() or not files(home).get("enact.Dockerfile"):
        threading.Event().wait(0.05)
    listening.close()


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

    answers = {"exists": True, "addedPaths": ["a"], "size": 1}
    lists = ("modifiedPaths", "removedPaths")
    asked: list[str] = []

    async def execute(self: Any, return_type: Any = None) -> Any:
        await self.resolve_ids()
        names = [field.name for field in self.selections]
        asked.append(" ".join(names))
        if names[-1] in lists or "envVariables" in names:
            return []
        if names[-1] == "glob":
            return ["a", "b", "c/"]
        if names == ["node", "directory", "exists"]:
            return False  # nothing says that it was too large
        if names[-1] == "imageRef":
            return IMAGE
        if names[-1] == "export" and "file" in names:
            Path(self.selections[-1].args["path"]).write_bytes(b"0")
        return answers.get(names[-1], f"some {names[-1]}")

    monkeypatch.setattr(_core.Context, "execute", execute)
    work.mkdir(exist_ok=True)
    (work / "file").write_text("x")
    job = {
        **EMPTY,
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
    }
    build = {**job, "kind": "build", "archive": str(work / "archive"), "limit_bytes": 1}
    session = Session(dagger, dagger.dag, AsyncExitStack())

    async def everything() -> list[Any]:
        answers = [await dagger_child.answered(session, each) for each in (job, build)]
        await session.take_over(session)
        await session.prune()
        return answers

    assert [each["code"] for each in asyncio.run(everything())] == [0, 0]
    built = "directory withDirectory withNewFile dockerBuild sync"
    assert len([each for each in asked if each == built]) == 3, asked
    for expected in (
        "directory file export",
        "changes layer withoutFile withoutDirectory export",
        "asTarball export",
    ):
        assert any(each.endswith(expected) for each in asked), (expected, asked)
    assert asked[-1].endswith("localCache prune")
