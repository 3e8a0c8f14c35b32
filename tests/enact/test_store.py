"""The store: what is installed is whole, whatever happens while it is installed."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact import store as store_module
from fleet_agentpack.enact.results import InstalledTool
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.kit.disk import Disk
from fleet_agentpack.kit.results import UNKNOWN
from tests.enact.kit import add_tool, configure, make_service, refused, snapshot, use_directory
from tests.kit.mortal import Counting, Failing, Mortal, in_child
from tests.rig import child_environment


@pytest.fixture
def tools(home: Path) -> Path:
    """A directory registry with two versions of a tool."""
    folder = home / "registry"
    for version in ("1.0.0", "1.1.0"):
        add_tool(folder, "alice/hello", version, files={"version.txt": version})
    use_directory(home, folder, execution={"default": "local"})
    return folder


def slowly(step: int) -> Any:
    return pytest.param(step, marks=pytest.mark.slow)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_install_and_uninstall_keep_both_files_alike(
    service: EnactService, tools: Path, home: Path
) -> None:
    root = home / ".enact"
    assert service.install("alice/hello").message == "Installed alice/hello@1.1.0"
    assert read(root / "tools.json") == {"tools": {"alice/hello": "1.1.0"}}
    assert read(root / "mcp.json") == {
        "tools": {"alice/hello": "1.1.0"},
        "toolsets": {},
        "activeToolset": None,
    }
    assert (root / "tools/alice/hello/1.1.0/version.txt").read_text() == "1.1.0"
    assert read(root / "receipts/alice/hello/1.1.0.json")["source"] == str(tools)
    assert not (root / ".incoming").exists()
    service.uninstall("alice/hello")
    assert read(root / "tools.json") == {"tools": {}}
    assert read(root / "mcp.json")["tools"] == {}
    assert list((root / "tools").iterdir()) == []
    assert list((root / "receipts").iterdir()) == []
    with refused("NOT_INSTALLED"):
        service.uninstall("alice/hello")


def test_an_upgrade_and_a_downgrade_switch_the_version(
    service: EnactService, tools: Path, home: Path
) -> None:
    service.install("alice/hello@1.0.0")
    assert service.install("alice/hello").message == "Installed alice/hello@1.1.0 (was 1.0.0)"
    assert [p.name for p in (home / ".enact/tools/alice/hello").iterdir()] == ["1.1.0"]
    service.install("alice/hello", "1.0.0", allow_downgrade=True)
    assert service.installed().tools[0].version == "1.0.0"
    with refused("VERSION_NOT_FOUND"):
        service.uninstall("alice/hello@1.1.0")


def test_keys_that_we_do_not_know_are_kept(service: EnactService, tools: Path, home: Path) -> None:
    root = home / ".enact"
    (root / "tools.json").write_text('{"tools": {}, "aliases": {"hi": "alice/hello"}, "x": 1}')
    (root / "mcp.json").write_text('{"tools": {}, "y": [2]}')
    service.install("alice/hello")
    assert read(root / "tools.json")["aliases"] == {"hi": "alice/hello"}
    service.uninstall("alice/hello")
    assert read(root / "tools.json") == {"tools": {}, "aliases": {}, "x": 1}
    assert read(root / "mcp.json")["y"] == [2]


@pytest.mark.parametrize("name", ["tools.json", "mcp.json"])
@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"tools": []}', '{"tools": {"a/b": 1}}', "\xff", '{"tools": {}, "tools": {}}'],
)
def test_a_corrupt_file_is_reported_and_left_alone(
    service: EnactService, tools: Path, home: Path, name: str, content: str
) -> None:
    service.install("alice/hello@1.0.0")
    path = home / ".enact" / name
    path.write_bytes(content.encode("latin-1"))
    before = snapshot(home / ".enact")
    for act in (lambda: service.install("alice/hello"), lambda: service.uninstall("alice/hello")):
        with refused("STORE_CORRUPT") as refusal:
            act()
        assert str(path) in refusal.error.message
    assert snapshot(home / ".enact") == before
    assert any(str(path) in warning for warning in service.installed().warnings)


def steps_of(home: Path, act: Callable[[EnactService], Any]) -> list[str]:
    """The effects on the disk that something has, when nothing disturbs it."""
    disk = Counting(durable=True)
    act(make_service_on(home, disk))
    return disk.steps


def make_service_on(home: Path, disk: Disk) -> EnactService:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "Disk", lambda **_: disk)
        service = make_service(home)
        service.store.tools()
    return service


class Trial:
    """Copies of one home, so that every step can be tried from the same start."""

    def __init__(self, home: Path, act: Callable[[EnactService], Any]) -> None:
        self.home, self.act = home, act
        self._frozen = home.with_name("frozen")
        shutil.copytree(home, self._frozen, symlinks=True)
        self.steps = steps_of(home, act)

    def fresh(self) -> Path:
        shutil.rmtree(self.home)
        shutil.copytree(self._frozen, self.home, symlinks=True)
        return self.home


def upgrade(service: EnactService) -> None:
    service.install("alice/hello@1.1.0")


def test_an_install_that_fails_half_way_is_undone(
    service: EnactService, tools: Path, home: Path
) -> None:
    service.install("alice/hello@1.0.0")
    trial = Trial(home, upgrade)
    for step, name in enumerate(trial.steps):
        if name in ("remove_tree", "remove_directory"):
            continue  # rubbish and empty directories that stay are nobody's loss
        before = snapshot(trial.fresh() / ".enact")
        disk = Failing(durable=True)
        disk.number = step
        with refused("STORE_UNAVAILABLE"):
            upgrade(make_service_on(home, disk))
        assert snapshot(home / ".enact") == before, (step, name)
        assert not (home / ".enact/.incoming").exists()
    assert make_service(home).run("alice/hello").output == "hello from alice/hello\n"


def killed_at(home: Path, step: int, act: Callable[[EnactService], Any]) -> None:
    disk = Mortal(durable=True)
    disk.fatal = step
    service = make_service_on(home, disk)
    assert in_child(lambda: act(service)) == -signal.SIGKILL


def test_a_kill_in_the_middle_of_an_upgrade_leaves_old_or_new(
    service: EnactService, tools: Path, home: Path
) -> None:
    add_tool(tools, "bob/other")
    service.install("alice/hello@1.0.0")
    trial = Trial(home, upgrade)
    seen = set()
    for step in range(len(trial.steps)):
        killed_at(trial.fresh(), step, upgrade)
        assert read(home / ".enact/tools.json")["tools"]["alice/hello"] in ("1.0.0", "1.1.0")
        reader = make_service(home)
        assert reader.run("alice/hello").output == "hello from alice/hello\n"
        assert ("interrupted" in str(reader.installed().warnings)) is reader.store.unfinished()
        make_service(home).install("bob/other")  # the next command that writes tidies up
        after = make_service(home)
        assert not (home / ".enact/.incoming").exists()
        version = after.installed().tools[0].version
        assert [p.name for p in (home / ".enact/tools/alice/hello").iterdir()] == [version]
        assert read(home / ".enact/mcp.json")["tools"]["alice/hello"] == version
        assert after.store.verify("alice/hello", version)
        assert after.installed().warnings is UNKNOWN
        seen.add(version)
    assert seen == {"1.0.0", "1.1.0"}


def test_a_kill_in_the_middle_of_a_removal_is_finished(
    service: EnactService, tools: Path, home: Path
) -> None:
    service.install("alice/hello@1.0.0")

    def remove(service: EnactService) -> None:
        service.uninstall("alice/hello")

    trial = Trial(home, remove)
    committed = max(step for step, name in enumerate(trial.steps) if name == "remove")
    for step in range(committed + 1):
        killed_at(trial.fresh(), step, remove)
        make_service(home).install("agentpack/csv/stats")
        names = [tool.name for tool in make_service(home).installed().tools]
        if "alice/hello" in names:
            assert make_service(home).store.verify("alice/hello", "1.0.0")
        else:
            assert not (home / ".enact/tools/alice").exists()
        assert not (home / ".enact/.incoming").exists()


def test_what_somebody_else_changed_meanwhile_is_left_alone_and_named(
    service: EnactService, tools: Path, home: Path
) -> None:
    service.install("alice/hello@1.0.0")
    trial = Trial(home, upgrade)
    journaled = trial.steps.index("rename") + 1
    killed_at(trial.fresh(), journaled, upgrade)
    other = '{"tools": {"alice/hello": "1.0.0"}, "mine": true}'
    (home / ".enact/mcp.json").write_text(other)
    answer = make_service(home).install("agentpack/csv/stats")
    assert any("mcp.json was changed by another program" in text for text in answer.warnings)
    assert read(home / ".enact/mcp.json")["mine"] is True
    assert read(home / ".enact/tools.json")["tools"]["alice/hello"] == "1.1.0"


def test_two_processes_installing_at_once_both_succeed(tools: Path, home: Path) -> None:
    for number in range(4):
        add_tool(tools, f"many/tool{number}")
    script = (
        "import sys; from pathlib import Path; from tests.enact.kit import make_service\n"
        "service = make_service(Path(sys.argv[1]))\n"
        "for tool in sys.argv[2:]: service.install(tool)"
    )
    wanted = ["alice/hello", *(f"many/tool{number}" for number in range(4))]
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(home), *order], env=child_environment())
        for order in (wanted, wanted, list(reversed(wanted)))
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    listed = make_service(home).installed()
    assert sorted(tool.name for tool in listed.tools) == sorted(wanted)
    assert set(read(home / ".enact/mcp.json")["tools"]) == set(wanted)


def test_a_lock_that_is_held_is_busy_not_broken(
    service: EnactService, tools: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleet_agentpack.kit.locks import file_lock

    monkeypatch.setattr(store_module, "LOCK_TIMEOUT_S", 0.2)
    with file_lock(home / ".enact" / ".lock"), refused("BUSY"):
        service.install("alice/hello")


def change(path: Path) -> None:
    path.write_text("changed")


CHANGES = {
    "edited": lambda folder: change(folder / "hello.txt"),
    "removed": lambda folder: (folder / "hello.txt").unlink(),
    "added": lambda folder: change(folder / "extra.txt"),
    "executable": lambda folder: (folder / "hello.txt").chmod(0o755),
    "linked": lambda folder: (
        (folder / "hello.txt").rename(folder.parent / "elsewhere"),
        (folder / "hello.txt").symlink_to(folder.parent / "elsewhere"),
    ),
    "manifest": lambda folder: (folder / "enact.yaml").write_text(
        (folder / "enact.yaml").read_text().replace("cat hello.txt", "cat /etc/passwd")
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_tool_whose_files_changed_is_refused_until_it_is_installed_again(
    service: EnactService, tools: Path, home: Path, case: str
) -> None:
    service.install("alice/hello")
    tool = service.projection().callables["alice__hello"]
    CHANGES[case](home / ".enact/tools/alice/hello/1.1.0")
    for act in (
        lambda: service.call(tool, {}),
        lambda: make_service(home).run("alice/hello"),
        lambda: make_service(home).learn("alice/hello"),
    ):
        with refused("TOOL_CHANGED"):
            act()
    service.install("alice/hello")
    assert service.run("alice/hello").output == "hello from alice/hello\n"


def test_a_receipt_that_is_missing_or_anothers_is_no_receipt(
    service: EnactService, tools: Path, home: Path
) -> None:
    service.install("alice/hello")
    tool = service.projection().callables["alice__hello"]
    path = home / ".enact/receipts/alice/hello/1.1.0.json"
    content = path.read_text()
    for broken in ("{}", content.replace("1.1.0", "1.0.0")):
        path.write_text(broken)
        with refused("STORE_CORRUPT"):
            service.call(tool, {})
    path.unlink()
    with refused("TOOL_CHANGED"):
        service.call(tool, {})


def test_a_built_in_tool_is_trusted_for_its_bytes_not_its_name(
    service: EnactService, home: Path, work: Path
) -> None:
    service.install("agentpack/csv/stats")
    receipts = home / ".enact/receipts/agentpack/csv/stats/1.0.0.json"
    folder = home / ".enact/tools/agentpack/csv/stats/1.0.0"
    (folder / "stats.py").write_text("print('{}')")
    import hashlib

    data = read(receipts)
    data["files"]["stats.py"]["sha256"] = hashlib.sha256(b"print('{}')").hexdigest()
    receipts.write_text(json.dumps(data))
    (work / "x.csv").write_text("a\n1\n")
    with refused("TOOL_CHANGED"):
        service.run("agentpack/csv/stats", {"file": "x.csv"})


def test_a_project_pins_its_own_version_in_the_same_store(
    service: EnactService, tools: Path, home: Path, work: Path
) -> None:
    service.install("alice/hello@1.1.0")
    service.install("alice/hello@1.0.0", project=True)
    assert read(work / ".enact/tools.json") == {"tools": {"alice/hello": "1.0.0"}}
    assert service.upkeep.project_tools().tools == (InstalledTool("alice/hello", "1.0.0"),)
    assert service.installed().tools[0].version == "1.1.0"
    versions = home / ".enact/tools/alice/hello"
    assert sorted(p.name for p in versions.iterdir()) == ["1.0.0", "1.1.0"]
    service.uninstall("alice/hello")
    assert [p.name for p in versions.iterdir()] == ["1.0.0"], "the project still needs it"
    service.uninstall("alice/hello", project=True)
    assert not versions.exists()


def test_one_broken_tool_among_fifty_hides_no_other(
    service: EnactService, tools: Path, home: Path
) -> None:
    for number in range(50):
        add_tool(tools, f"many/tool{number:02}")
        service.install(f"many/tool{number:02}")
    folder = home / ".enact/tools/many"
    (folder / "tool07/1.0.0/enact.yaml").write_text("name: [")
    import shutil

    shutil.rmtree(folder / "tool08")
    (home / ".enact/receipts/many/tool09/1.0.0.json").unlink()
    fresh = make_service(home)
    assert len(fresh.projection().callables) == 47
    assert len([w for w in fresh.installed().warnings if "is left out" in w]) == 3
    assert fresh.run("many/tool10").exit_code == 0


def test_the_original_programs_own_entries_are_named_not_run(home: Path) -> None:
    configure(home)
    (home / ".enact/tools.json").write_text('{"tools": {"old/tool": "1.0.0", "../x": "1.0.0"}}')
    service = make_service(home)
    listed = service.installed()
    assert listed.tools == ()
    assert len(listed.warnings) == 2
    with refused("TOOL_CHANGED"):
        service.run("old/tool")


@pytest.mark.parametrize("listed", [True, False])
def test_only_what_clients_see_changes_the_fingerprint(
    home: Path, tools: Path, service: EnactService, listed: bool
) -> None:
    add_tool(tools, "alice/tool")
    if listed:
        service.projection()
    seen = [service.fingerprint()]
    for act in (
        lambda: service.run("alice/tool"),
        lambda: service.install("alice/tool"),
        lambda: service.install("alice/tool"),
        lambda: service.toolsets.create("all"),
        lambda: service.toolsets.remove("all", "alice/tool"),
        lambda: service.toolsets.use("all"),
        lambda: service.toolsets.use(None),
    ):
        act()
        seen.append(service.fingerprint())
    changed = [before != after for before, after in itertools.pairwise(seen)]
    assert changed == [False, True, False, False, False, True, True]


def test_a_tool_that_is_being_replaced_is_not_gone_in_between(
    home: Path, tools: Path, service: EnactService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.install("alice/hello")
    before, seen = list(service.projection().callables), service.fingerprint()
    rename, looks = Disk.rename, 0

    def watched(disk: Disk, source: str, target: str) -> None:
        nonlocal looks
        rename(disk, source, target)
        looks += 1
        assert list(service.projection().callables) == before
        assert service.fingerprint() == seen

    monkeypatch.setattr(Disk, "rename", watched)
    make_service(home).install("alice/hello")
    assert looks >= 2
    assert list(service.projection().callables) == before and service.fingerprint() == seen


def test_the_store_stamps_what_changes(home: Path, tools: Path, service: EnactService) -> None:
    before = service.fingerprint()
    assert service.fingerprint() == before
    make_service(home).install("alice/hello")
    after = service.fingerprint()
    assert after != before
    service.projection()
    shutil.rmtree(home / ".enact/tools/alice/hello/1.1.0")
    assert service.fingerprint() != after


def test_a_file_where_the_store_should_be_is_reported_and_left_alone(home: Path) -> None:
    (home / ".enact").write_text("not a directory")
    service = make_service(home)
    assert service.search("csv").results
    with refused("CONFIG_INVALID"):
        service.install("agentpack/csv/stats")
    assert (home / ".enact").read_text() == "not a directory"


@pytest.mark.slow
def test_a_kill_leaves_pins_and_lock_file_of_a_project_together(
    service: EnactService, tools: Path, home: Path
) -> None:
    service.install("alice/hello@1.0.0", project=True)
    service.upkeep.lock()

    def upgrade_project(service: EnactService) -> None:
        service.install("alice/hello@1.1.0", project=True)

    trial = Trial(home, upgrade_project)
    seen = set()
    for step in range(len(trial.steps)):
        killed_at(trial.fresh(), step, upgrade_project)
        make_service(home).install("agentpack/csv/stats")  # finishes or undoes it
        pins = read(home / "work/.enact/tools.json")["tools"]
        locked = read(home / "work/.enact/tools.lock.json")["tools"]
        assert {name: each["version"] for name, each in locked.items()} == pins
        seen.add(pins["alice/hello"])
    assert seen == {"1.0.0", "1.1.0"}
