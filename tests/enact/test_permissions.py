"""Permissions as a person meets them: asked for in a form, kept per registry, listed by doctor."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp_types import ElicitResult

from fleet_agentpack.cli import run
from fleet_agentpack.enact.backends import cgroup
from fleet_agentpack.enact.backends.bubblewrap import Bubblewrap
from fleet_agentpack.enact.backends.job import DEFAULT_BOUNDS
from fleet_agentpack.enact.permissions import Permissions
from fleet_agentpack.enact.runs import MOST_KEPT, Runs
from fleet_agentpack.server import build_server
from fleet_agentpack.settings import Ask, Settings
from tests.enact.attacks.publisher import NAME, publish
from tests.enact.kit import add_tool, make_service, needs_bwrap, refused, use_directory
from tests.person import YES, Person

KEY = {"env": {"KEY": {"description": "a key", "required": True}}}
NO = ElicitResult(action="decline")
PRINTS = "import os; print(len(os.environ['KEY']))"


async def call(
    home: Path, era: Any, person: Person, ask: Ask = "risky", tool: str = "eve__tool"
) -> dict[str, Any]:
    settings = dataclasses.replace(Settings.read(), ask=ask)
    settings = dataclasses.replace(settings, environ={**settings.environ, "KEY": "12345"})
    given = {"tool": NAME} if tool == "enact__run" else {}
    async with Client(build_server(settings), mode=era, elicitation_handler=person) as client:
        result = await client.call_tool(tool, given, raise_on_error=False)
    data: dict[str, Any] = result.structured_content
    return data


@needs_bwrap
@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("tool", ["eve__tool", "enact__run"])
async def test_the_person_at_the_client_can_grant_what_a_call_lacks(
    home: Path, era: Any, tool: str
) -> None:
    publish(home, PRINTS, **KEY).install(NAME)
    person = Person(YES)
    answer = await call(home, era, person, tool=tool)
    assert str(answer.get("text") or answer.get("output")).strip() == "5"
    assert len(person.seen) == 1 and "KEY" in str(person.seen[0])
    assert make_service(home).grants.of(NAME).granted.variables == ("KEY",)


@pytest.mark.parametrize(
    ("ask", "code"), [("risky", "NOT_APPROVED"), ("never", "PERMISSION_REQUIRED")]
)
async def test_without_a_yes_nothing_is_granted(home: Path, ask: Ask, code: str) -> None:
    publish(home, PRINTS, **KEY).install(NAME)
    answer = await call(home, "legacy", Person(NO), ask)
    assert answer["error"]["code"] == code
    assert not make_service(home).grants.of(NAME).granted


def test_grants_do_not_follow_a_name_to_another_registry(home: Path) -> None:
    service = publish(home, PRINTS, **KEY)
    service.install(NAME)
    service.grants.allow(NAME, Permissions(variables=("KEY",)))
    add_tool(home / "other", NAME, "2.0.0", scripts={"run": "true"}, **KEY)
    use_directory(home, home / "other")
    make_service(home).install(NAME)
    assert not make_service(home).grants.of(NAME).granted


@needs_bwrap
def test_a_file_in_an_input_that_is_no_path_is_explained_and_can_be_granted(home: Path) -> None:
    schema = {"type": "object", "properties": {"file": {"type": "string"}}}
    service = publish(home, scripts={"run": {"command": "cat {{file}}", "inputSchema": schema}})
    service.install(NAME)
    notes = home / "notes.txt"
    notes.write_text("mine")
    with refused("PERMISSION_REQUIRED") as refusal:
        service.run(NAME, {"file": str(notes)})
    assert "declare file with `format: path`" in refusal.error.message
    command = f"fleet-agentpack tool allow {NAME} --read {notes}"
    assert refusal.error.details["command"] == command
    assert command in refusal.error.next_actions[0]
    assert refusal.error.remedy is not None
    service.grants.allow(NAME, Permissions(read=(str(notes),)))
    assert f"has to name it as {notes}" in refusal.error.message  # the tool is elsewhere
    assert service.run(NAME, {"file": str(notes)}).output == "mine"
    (home / ".ssh").mkdir()
    with refused("INVALID_ARGUMENTS"):
        service.grants.allow(NAME, Permissions(read=(str(home / ".ssh"),)))


@needs_bwrap
def test_a_word_that_is_also_a_directory_is_a_word(home: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "in": {"type": "string", "format": "path"}},
    }
    service = publish(home, scripts={"run": {"command": "echo {{text}}", "inputSchema": schema}})
    (home / "work" / "docs").mkdir(parents=True)
    (home / "work" / "docs" / "notes").touch()
    words = ("docs", "/usr/bin/env", "no/such/file", "- docs", "text/html", "/", "/home", "/srv")
    for word in (*words, str(home)):
        assert service.run(NAME, {"text": word}).output == f"{word}\n"
    for path in ("docs/notes", "./docs", str(home / "work" / "docs")):
        with refused("PERMISSION_REQUIRED"):
            service.run(NAME, {"text": path})
    assert service.run(NAME, {"text": "docs/notes", "in": "docs"}).exit_code == 0  # it sees that


def test_the_last_runs_are_kept(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = publish(home, scripts={"run": {"command": "printf %s {{text}}"}})
    use_directory(home, home / "registry", execution={"default": "local"})
    service.install(NAME)
    assert run(["tool", "run", NAME, "--input", "text=a secret argument"]) == 0
    assert run(["tool", "run", NAME, "--input", "wrong=1"]) == 1
    capsys.readouterr()
    assert run(["tool", "runs", NAME, "--json"]) == 0
    newest, first = json.loads(capsys.readouterr().out)
    assert (newest["status"], newest["arguments"]) == ("INVALID_ARGUMENTS", ["wrong"])
    assert (first["status"], first["arguments"]) == ("ok", ["text"])
    assert first["output"] == "a secret argument"
    assert run(["tool", "runs", "no/such"]) == 0
    assert "has not run" in capsys.readouterr().out


def test_only_so_many_runs_are_kept_for_the_user_alone(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs")
    for number in range(MOST_KEPT + 5):
        with refused("BUSY"), runs.kept("a/b", [str(number)]):
            from fleet_agentpack.enact.errors import EnactError

            raise EnactError("BUSY", "x" * 10_000)
    found = runs.of("a/b")
    assert len(found) == MOST_KEPT and found[0].arguments == (str(MOST_KEPT + 4),)
    assert (tmp_path / "runs/a__b.jsonl").stat().st_mode & 0o777 == 0o600
    assert len(found[0].output) == 2_000


def look(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    run(["doctor", "--all", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    return {each["subject"]: each for each in checks if each["area"] == "enact"}


def test_doctor_lists_what_an_earlier_release_has_left(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(home, PRINTS, **KEY).install(NAME)
    assert "permissions" not in look(capsys)
    receipt = home / ".enact/receipts" / NAME / "1.0.0.json"
    data = json.loads(receipt.read_text())
    del data["granted"], data["image"]
    receipt.write_text(json.dumps(data))
    tools = home / ".enact" / "tools.json"
    tools.write_text(json.dumps({"tools": {NAME: "1.0.0", "a__b/c": "1.0.0"}}))
    found = look(capsys)
    assert NAME in found["permissions"]["detail"] and "tool allow" in found["permissions"]["advice"]
    assert "a__b/c" in found["names"]["detail"]
    seen = home / ".enact" / "mcp.json"
    seen.write_text(json.dumps({"tools": {NAME: "1.0.0", "a__b/c": "1.0.0"}}))
    assert f"{tools} and {seen}: " in look(capsys)["names"]["detail"]
    tools.write_text(json.dumps({"tools": {NAME: "1.0.0"}}))
    assert look(capsys)["names"]["detail"].startswith(f"{seen}: ")


def test_a_file_to_read_that_is_not_there_is_named_as_such(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(home, PRINTS, **KEY).install(NAME)
    capsys.readouterr()
    assert run(["tool", "allow", NAME, "--read", "no-such-file"]) == 1
    assert "read: no-such-file does not exist" in capsys.readouterr().err


@needs_bwrap
def test_doctor_says_which_parts_of_the_sandbox_hold_and_strict_refuses_without(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = publish(home, "print('ran')")
    assert "system calls filtered" in look(capsys)["sandbox"]["detail"]
    monkeypatch.setattr(Bubblewrap, "parts", lambda _: {"namespaces": True, "the moon": False})
    assert look(capsys)["sandbox"]["state"] == "ok"
    use_directory(home, home / "registry", execution={"sandbox": "strict"})
    assert look(capsys)["sandbox"]["state"] == "problem"
    with refused("PROVIDER_UNAVAILABLE") as refusal:
        service.run(NAME)
    assert "the moon" in refusal.error.message
    monkeypatch.setattr(Bubblewrap, "parts", lambda _: {"namespaces": True})
    assert service.run(NAME).output == "ran\n"


def fake_cgroups(root: Path, controllers: str = "memory pids") -> Path:
    (root / "user/app").mkdir(parents=True)
    (root / "user/cgroup.subtree_control").write_text(controllers)
    (root / "user/cgroup.procs").touch()
    (root / "user/app/cgroup.subtree_control").write_text("")
    (root / "own").write_text("1:name=systemd:/x\n0::/user/app\n")
    return root / "own"


def test_a_delegated_cgroup_bounds_a_run_as_a_whole(tmp_path: Path) -> None:
    own = fake_cgroups(tmp_path)
    parent = cgroup.delegated(tmp_path, own)
    assert parent == tmp_path / "user"
    with cgroup.entered(parent, DEFAULT_BOUNDS, ["bwrap", "x"]) as argv:
        (group,) = parent.glob("fleet-agentpack-*")
        assert argv[-2:] == ["bwrap", "x"] and argv[3] == str(group)
        assert (group / "memory.max").read_text() == str(DEFAULT_BOUNDS.memory_bytes)
        assert (group / "pids.max").read_text() == str(DEFAULT_BOUNDS.processes)


def test_without_one_the_command_stays_as_it_is(tmp_path: Path) -> None:
    own = fake_cgroups(tmp_path, "cpu")
    assert cgroup.delegated(tmp_path, own) is None
    assert cgroup.delegated(tmp_path, tmp_path / "none") is None
    with cgroup.entered(None, DEFAULT_BOUNDS, ["bwrap"]) as argv:
        assert argv == ["bwrap"]


@needs_bwrap
def test_a_manifest_can_ask_for_less_and_the_configuration_bounds_it(home: Path) -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0] // 1024**2)"
    service = publish(home, code, resources={"memory": "256Mi", "disk": "900Gi"})
    assert service.run(NAME).output == 256 or service.run(NAME).output == "256\n"
    use_directory(home, home / "registry", execution={"memory": "128MiB"})
    assert str(make_service(home).run(NAME).output).strip() == "128"
    service.install(NAME)
    assert "256 MiB of scratch space" in service.learn(NAME).documentation
