"""Installed tools while the front is alone: listed from what was kept, announced on a change."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.installed_state import read_state
from fleet_agentpack.wire.quick_start import quick_start
from fleet_agentpack.wire.selection import Selection
from tests import rig
from tests.conftest import enter_empty_home
from tests.rig import Stdio, eventually, modern_meta
from tests.wire.forked import Forks
from tests.wire.scripts import as_bytes, request

CHANGED = "notifications/tools/list_changed"
TOOL = "agentpack__csv__stats"


def run(*words: str) -> None:
    rig.run(*words, status=0)


def names(server: Stdio, **params: Any) -> set[str]:
    return {tool["name"] for tool in server.ask("tools/list", **params)["result"]["tools"]}


def is_alone(server: Stdio) -> bool:
    """Whether the front has not handed over: nothing of the server is loaded."""
    loaded = Path(f"/proc/{server.process.pid}/maps").read_text()
    return "pydantic_core" not in loaded


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def kept_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one installed tool, kept for the front by a server that has listed it."""
    with pytest.MonkeyPatch.context() as patch:
        home = enter_empty_home(tmp_path_factory.mktemp("kept"), patch)
        run("tool", "install", "agentpack/csv/stats")

        def kept() -> bool:
            with Stdio(FLEET_AGENTPACK_FRONT="off") as server:
                assert TOOL in names(server)
            return any(home.rglob("enact-listed.json"))

        eventually(kept)
        return home


@pytest.fixture
def entered(kept_home: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That home, entered."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(kept_home))
    return kept_home


def test_kept_tools_are_listed_as_the_server_lists_them(entered: Path) -> None:
    forks = Forks(entered)
    for argv in ([], ["--only", "enact"], ["--read-only"]):
        for params in ({}, {"_meta": modern_meta()}):
            asked = as_bytes(request(1, "tools/list", params))
            alone, served = (forks.run([asked], argv, front=front) for front in (True, False))
            assert alone == served
            assert TOOL in str(alone["lines"])
    forks.close()
    with Stdio(cold=True) as server:
        server.hello()
        assert TOOL in names(server)
        assert is_alone(server)


def _cut(kept: Path) -> None:
    kept.write_text(kept.read_text()[:-5])


def _with_tools(tools: object) -> Callable[[Path], None]:
    return lambda kept: _rewrite(kept, tools)


def _rewrite(kept: Path, tools: object) -> None:
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"tools": tools}))


def _replaced_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(kept: Path) -> None:
        kept.unlink()
        make(kept)

    return replace


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda kept: kept.write_text(""),
    "nothing in it": lambda kept: kept.write_text("{}"),
    "a list": lambda kept: kept.write_text("[]"),
    "another version": lambda kept: kept.write_text('{"version": 5}'),
    "cut": _cut,
    "deep": lambda kept: kept.write_text("[" * 100_000),
    "no text": lambda kept: kept.write_bytes(b"\xff\xfe\x00"),
    "numbers for tools": _with_tools([[1, 2, 3]]),
    "too few fields": _with_tools([["{}"]]),
    "two lines": _with_tools([["{}\n{}", "{}", False]]),
    "huge": lambda kept: os.truncate(kept, 1 << 32),
    "a pipe": _replaced_by(os.mkfifo),
    "a link to itself": _replaced_by(lambda kept: kept.symlink_to(kept)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_kept_is_used_only_whole(entered: Path, tmp_path: Path, damage: str) -> None:
    (kept,) = entered.rglob("enact-listed.json")
    copy = tmp_path / "copy.json"
    copy.write_text(kept.read_text())
    assert read_state(str(copy)) is not None
    DAMAGES[damage](copy)
    assert read_state(str(copy)) is None


@pytest.mark.parametrize("damage", ["cut", "numbers for tools", "a pipe"])
def test_without_what_was_kept_the_server_lists_them(entered: Path, damage: str) -> None:
    (kept,) = entered.rglob("enact-listed.json")
    before = kept.read_text()
    DAMAGES[damage](kept)
    with Stdio(cold=True) as server:
        server.hello()
        assert is_alone(server)
        assert TOOL in names(server)
        assert not is_alone(server)
    assert kept.read_text() == before  # written anew


def test_a_changed_file_of_a_tool_makes_what_was_kept_useless(entered: Path) -> None:
    (manifest,) = entered.rglob(".enact/tools/agentpack/csv/stats/*/enact.md")
    before = manifest.read_bytes()
    manifest.write_bytes(before + b"\n")
    with Stdio(cold=True) as server:
        server.hello()
        assert TOOL not in names(server)
    manifest.write_bytes(before)


def test_a_change_is_announced_while_the_front_is_alone(work: Path) -> None:
    with Stdio(cold=True) as server:
        server.hello()
        assert TOOL not in names(server)
        run("tool", "install", "agentpack/csv/stats")
        server.wait_for_notification(CHANGED)
        assert is_alone(server)
        eventually(lambda: TOOL in names(server))
        assert not is_alone(server)
        server.notifications.clear()
        run("tool", "uninstall", "agentpack/csv/stats")
        server.wait_for_notification(CHANGED)
        eventually(lambda: TOOL not in names(server))


def test_a_change_during_the_hand_over_is_announced(work: Path) -> None:
    with Stdio(cold=True) as server:
        server.hello()
        names(server)
        number = server.send("tools/call", name="enact__list", arguments={})
        run("tool", "install", "agentpack/csv/stats")
        server.wait(number)
        server.wait_for_notification(CHANGED)
        eventually(lambda: TOOL in names(server))


def test_a_change_after_the_hand_over_is_announced(work: Path) -> None:
    """Also where the call was another domain's, and the server has not yet looked for itself."""
    with Stdio(cold=True) as server:
        server.hello()
        assert TOOL not in names(server)
        server.call("fractary_forge_config_get", key="x")
        for change in ("install", "uninstall"):
            run("tool", change, "agentpack/csv/stats")
            server.wait_for_notification(CHANGED)
            eventually(lambda change=change: (TOOL in names(server)) == (change == "install"))
            server.notifications.clear()


def test_the_quick_start_finds_our_directories(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleet_agentpack.settings import Directories

    monkeypatch.setattr("os.isatty", lambda _: False)
    for chosen in ("", "relative", str(work / "elsewhere")):
        monkeypatch.setenv("XDG_CACHE_HOME", chosen)
        monkeypatch.setenv("XDG_CONFIG_HOME", chosen)
        directories = Directories.of_user()
        start = quick_start([], os.environ)
        assert start and start.cache == str(directories.cache)
        directories.config.mkdir(parents=True)
        (directories.config / "config.toml").write_text("")
        assert quick_start([], os.environ) is None
        (directories.config / "config.toml").unlink()
        directories.config.rmdir()


@pytest.mark.parametrize(
    ("argv", "selection"),
    [
        ([], Selection()),
        (
            ["--only", "fleet, enact,", "--read-only"],
            Selection(("fleet", "enact"), read_only=True),
        ),
        (["--only=", "--log-level=debug", "--ask", "risky"], Selection()),
        (
            ["--tools=plan,diff", "--prefix", "our"],
            Selection(tools=("plan", "diff"), prefix="our_"),
        ),
        (["--no-extras", "--without", "plan"], Selection(without=("plan",), extras=False)),
        (["--project", "/a=--read-only"], Selection()),
    ],
)
def test_plain_options_are_understood(work: Path, argv: list[str], selection: Selection) -> None:
    start = quick_start(argv, {"HOME": str(work)})
    assert start and start.selection == selection
    settings = Settings.read({"HOME": str(work)}, options=_given(argv))
    assert start.project == settings.place


def _given(argv: list[str]) -> dict[str, str]:
    return {"project": argv[argv.index("--project") + 1]} if "--project" in argv else {}


def test_variables_count_where_no_option_does(work: Path) -> None:
    environ = {
        "HOME": str(work),
        "FLEET_AGENTPACK_TOOLS": "plan",
        "FLEET_AGENTPACK_WITHOUT": "diff",
        "FLEET_AGENTPACK_PREFIX": "our",
        "FLEET_AGENTPACK_NO_EXTRAS": "1",
        "FLEET_AGENTPACK_PROJECT": "/nowhere",
    }
    start = quick_start(["--prefix", "my"], environ)
    assert start and start.selection == Selection((), False, ("plan",), ("diff",), "my_", False)
    assert start.project.reason == "/nowhere does not exist"
    assert quick_start([], {"HOME": str(work), "FLEET_AGENTPACK_ASK": "maybe"}) is None
    assert quick_start([], {"HOME": str(work), "FLEET_AGENTPACK_NO_EXTRAS": "maybe"}) is None


def test_a_domain_alone_has_no_extras(work: Path) -> None:
    start = quick_start([], {"HOME": str(work)}, "enact")
    assert start and start.selection == Selection(("enact",), extras=False)


@pytest.mark.parametrize(
    "argv",
    [
        ["plan"],
        ["--http"],
        ["--only"],
        ["--only", "--http"],
        ["--log-level", "loud"],
        ["-h"],
        ["--prefix", "a b"],
        ["--ask", "maybe"],
        ["--project"],
        ["--no-extras=1"],
        ["--read_only"],
    ],
)
def test_all_else_goes_the_long_way(work: Path, argv: list[str]) -> None:
    assert quick_start(argv, {"HOME": str(work)}) is None
