"""Tools that have to be built: once, in the sandbox, and again where something counts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.cli import run
from fleet_agentpack.enact.backends import building
from fleet_agentpack.enact.permissions import Permissions
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.kit.results import UNKNOWN
from tests.enact.kit import (
    add_tool,
    make_service,
    needs_bwrap,
    refused,
    snapshot,
    use_directory,
)

NAME = "eve/built"
COUNTS = "date +%s%N >> built.txt"
pytestmark = [needs_bwrap, pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap")]


def prepare(home: Path, *build: str, execution: Any = None, **fields: Any) -> EnactService:
    """A service with an installed tool that is built by these commands."""
    registry = home / "registry"
    shutil.rmtree(registry / NAME, ignore_errors=True)
    given = {"scripts": {"run": "cat built.txt"}, "build": list(build), **fields}
    add_tool(registry, NAME, **given)
    use_directory(home, registry, execution={"default": "bubblewrap", **(execution or {})})
    service = make_service(home)
    service.install(NAME)
    return service


def builds(home: Path) -> Path:
    return home / ".cache" / "agentpack" / "enact-builds"


def kept(home: Path) -> list[Path]:
    return [each.parent for each in builds(home).glob("*/record.json")]


def test_a_tool_is_built_once_and_runs_with_what_was_made(home: Path) -> None:
    service = prepare(home, "echo made > built.txt", "mkdir d; cp hello.txt d/copy")
    assert service.run(NAME).output == "made\n"
    (before,) = kept(home)
    first = snapshot(before)
    assert service.run(NAME).output == "made\n"
    assert make_service(home).run(NAME).output == "made\n", "another process knows it too"
    assert snapshot(before) == first


def test_what_is_installed_stays_as_it_was(home: Path) -> None:
    service = prepare(home, COUNTS, "rm hello.txt; echo x >> enact.yaml")
    folder = home / ".enact/tools" / NAME / "1.0.0"
    before = snapshot(folder)
    service.run(NAME)
    assert snapshot(folder) == before
    assert service.broken() == ()


def test_hooks_build_is_the_same_and_postinstall_is_never_run(home: Path) -> None:
    hooks = {"build": "echo hooked > built.txt", "postinstall": "echo never >> built.txt"}
    service = prepare(home, hooks=hooks)
    told = service.install(NAME).warnings
    assert f"{NAME}: its hooks.postinstall commands are never run" in told
    assert service.run(NAME).output == "hooked\n"


def test_absolute_paths_of_enact_are_where_upstream_has_them(home: Path) -> None:
    service = prepare(
        home,
        "cp /workspace/hello.txt /work/built.txt; pwd >> /work/built.txt",
        scripts={"run": "cat /work/built.txt"},
    )
    assert service.run(NAME).output == f"hello from {NAME}\n/workspace\n"


def test_each_command_starts_anew_and_the_first_failure_ends_the_build(home: Path) -> None:
    service = prepare(
        home, "cd /tmp; X=1", "pwd > built.txt", "echo said >&2; exit 7", "echo not this"
    )
    with refused("PERMISSION_REQUIRED") as told:
        service.run(NAME)
    assert told.error.details["missing"] == {"build": ["*"]}
    assert "exited with code 7" in told.error.message
    assert told.error.details["stderr"].endswith("said")
    assert kept(home) == []


def test_a_failure_without_a_network_is_remembered_until_something_changes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = prepare(home, "exit 7")
    tried: list[object] = []
    real = building.in_tree
    monkeypatch.setattr(building, "in_tree", lambda *each: tried.append(1) or real(*each))
    for _ in range(2):
        with refused("PERMISSION_REQUIRED"):
            service.run(NAME)
    assert len(tried) == 1
    with refused("PERMISSION_REQUIRED"):
        service.build(NAME)
    assert len(tried) == 2, "a person can have it tried again"
    service.grants.allow(NAME, Permissions(build=("example.com",)))
    with refused("BUILD_FAILED") as told:
        service.run(NAME)
    assert len(tried) == 3 and told.error.details["exit_code"] == 7
    service.uninstall(NAME)
    assert list(builds(home).glob("*.failed.json")) == []


def test_a_grant_makes_another_build(home: Path) -> None:
    service = prepare(home, "env | grep -ci http_proxy > built.txt; true")
    assert service.run(NAME).output == "0\n"
    service.grants.allow(NAME, Permissions(build=("example.com",)))
    assert service.run(NAME).output == "2\n", "with the way to what was granted"
    service.grants.revoke(NAME, Permissions(build=("example.com",)))
    assert service.run(NAME).output == "0\n"
    assert len(kept(home)) == 2


def test_hosts_that_are_declared_have_to_be_granted_first(home: Path) -> None:
    service = prepare(home, COUNTS, **{"x-build-network": ["pypi.example"]})
    with refused("PERMISSION_REQUIRED") as told:
        service.run(NAME)
    assert told.error.details["command"] == (
        f"fleet-agentpack tool allow {NAME} --build-network pypi.example"
    )
    with refused("INVALID_ARGUMENTS"):
        service.grants.allow(NAME, Permissions(build=("other.example",)))
    service.grants.allow(NAME, Permissions(build=("pypi.example",)))
    assert service.run(NAME).output


def test_the_network_of_a_build_is_not_that_of_a_run(home: Path) -> None:
    fields = {"x-network": ["api.example"], "scripts": {"run": "env"}}
    service = prepare(home, COUNTS, **fields)
    service.grants.allow(NAME, Permissions(build=("*",)))
    with refused("PERMISSION_REQUIRED") as told:
        service.run(NAME)
    assert told.error.details["missing"] == {"network": ["api.example"]}
    plain = prepare(home, COUNTS, scripts={"run": "env"})
    plain.grants.allow(NAME, Permissions(build=("*",)))
    assert "http_proxy" not in plain.run(NAME).output.lower()


def test_a_host_that_was_refused_is_named_with_the_command_that_grants_it(home: Path) -> None:
    ask = "python3 -c \"import urllib.request as u; u.urlopen('http://files.example/x')\" || exit 3"
    service = prepare(home, ask)
    service.grants.allow(NAME, Permissions(build=("pypi.example",)))
    with refused("PERMISSION_REQUIRED") as told:
        service.run(NAME)
    assert told.error.details["command"].endswith("--build-network files.example")


def test_no_variable_of_the_user_is_in_a_build(home: Path) -> None:
    declared = {"TOKEN": {"description": "d", "secret": True}, "MODE": {"description": "d"}}
    service = prepare(home, "env > built.txt", env=declared)
    service.grants.allow(NAME, Permissions(variables=("TOKEN", "MODE")))
    secret = make_service(home, environ={"TOKEN": "s3cret-value", "MODE": "fast"})
    assert "TOKEN" not in secret.run(NAME).output


def test_an_uninstall_removes_what_was_built(home: Path) -> None:
    service = prepare(home, COUNTS)
    service.run(NAME)
    service.uninstall(NAME)
    assert kept(home) == []


def test_another_version_is_built_again_and_the_old_build_goes(home: Path) -> None:
    service = prepare(home, COUNTS)
    service.run(NAME)
    (before,) = kept(home)
    fields = {"scripts": {"run": "cat built.txt"}, "build": "echo second > built.txt"}
    add_tool(home / "registry", NAME, "1.1.0", **fields)
    service.install(NAME)
    assert service.run(NAME).output == "second\n"
    assert not before.exists() and len(kept(home)) == 1


def test_a_tool_that_is_not_installed_is_built_for_its_run_and_forgotten(home: Path) -> None:
    service = prepare(home, "echo once > built.txt")
    service.uninstall(NAME)
    assert service.run(NAME).output == "once\n"
    assert kept(home) == []


def test_a_build_that_was_changed_or_removed_is_made_again(home: Path) -> None:
    service = prepare(home, "echo made > built.txt")
    service.run(NAME)
    (folder,) = kept(home)
    (folder / "tree" / "built.txt").write_text("forged\n")
    assert service.run(NAME).output == "made\n"
    shutil.rmtree(folder)
    assert service.run(NAME).output == "made\n"


def test_two_calls_at_once_build_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = prepare(home, "sleep 0.5; echo made > built.txt"), make_service(home)
    tried: list[object] = []
    real = building.in_tree
    monkeypatch.setattr(building, "in_tree", lambda *each: tried.append(1) or real(*each))
    outputs: list[object] = []
    calls = [
        threading.Thread(target=lambda s=each: outputs.append(s.run(NAME).output))
        for each in (first, second)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert outputs == ["made\n", "made\n"] and len(tried) == 1


def test_a_build_that_was_killed_leaves_nothing_that_is_used(home: Path) -> None:
    service = prepare(home, "echo half > built.txt; touch begun; sleep 60")
    script = (
        "import sys; from pathlib import Path; from tests.enact.kit import make_service;"
        f"make_service(Path(sys.argv[1])).run('{NAME}')"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(home)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not list(builds(home).glob("*.part/tree/begun")):
        assert child.poll() is None
        threading.Event().wait(0.05)
    child.kill()
    child.wait()
    assert kept(home) == [] and list(builds(home).glob("*.part"))
    assert service.upkeep.prune().message == "Removed 0 builds"
    assert list(builds(home).glob("*.part")) == []


def test_prune_removes_what_nothing_installed_needs(home: Path) -> None:
    service = prepare(home, COUNTS)
    service.run(NAME)
    assert service.upkeep.prune().message == "Removed 0 builds"
    (folder,) = kept(home)
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**record, "digest": "0" * 64}))
    assert service.upkeep.prune().message == "Removed 1 build"
    assert kept(home) == []


def test_what_is_built_is_told(home: Path) -> None:
    service = prepare(home, COUNTS)
    info = service.upkeep.info(NAME).build
    assert (info.steps, info.built_at) == ((COUNTS,), UNKNOWN)
    assert COUNTS in service.learn(NAME).documentation
    assert "the network while it is built" in service.learn(NAME).documentation
    assert service.upkeep.build(NAME, lambda *_: None).message == f"Built {NAME}@1.0.0"
    info = service.upkeep.info(NAME).build
    assert (info.backend, info.network) == ("bubblewrap", ())
    assert info.size_bytes > 0 and info.built_at > "2000"


def test_the_command_line_builds_tells_and_prunes(
    capsys: pytest.CaptureFixture[str], home: Path, work: Path
) -> None:
    prepare(home, COUNTS)

    def said(*words: str) -> str:
        assert run(["tool", *words]) == 0
        return capsys.readouterr().out

    told = said("info", NAME)
    assert f"Build: {COUNTS}" in told and "not built yet" in told
    assert said("build", NAME) == f"✓ Built {NAME}@1.0.0\n"
    assert "in bubblewrap" in said("info", NAME)
    said("allow", NAME, "--build-network", "pypi.example")
    assert "build network pypi.example: granted" in said("info", NAME)
    assert said("prune") == "✓ Removed 0 builds\n"


@pytest.mark.parametrize(
    "fields",
    [
        {"build": 3},
        {"build": [3]},
        {"hooks": "make"},
        {"hooks": {"build": {"a": "b"}}},
        {"build": ["x"] * 33},
        {"build": "x" * 20_000},
        {"build": "make", "x-build-network": "yes"},
        {"build": "make", "x-build-network": ["a b"]},
    ],
    ids=str,
)
def test_a_build_that_cannot_be_read_is_refused(home: Path, fields: dict[str, Any]) -> None:
    add_tool(home / "registry", NAME, scripts={"run": "true"}, **fields)
    use_directory(home, home / "registry")
    with refused("MANIFEST_INVALID"):
        make_service(home).install(NAME)


def test_on_this_machine_itself_it_is_built_in_a_copy(home: Path) -> None:
    service = prepare(home, "echo made > built.txt", execution={"default": "local"})
    result = service.run(NAME)
    assert (result.output, result.provider) == ("made\n", "local")
    assert not (home / ".enact/tools" / NAME / "1.0.0/built.txt").exists()
