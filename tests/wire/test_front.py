"""The front says what the server behind it would say, or leaves it to the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet_agentpack.kit.project import FoundProject
from fleet_agentpack.wire import listing
from fleet_agentpack.wire.recorded import LISTINGS, PATH, RecordedListing
from fleet_agentpack.wire.selection import Selection
from tests.conftest import enter_empty_home
from tests.wire.forked import Forks
from tests.wire.scripts import Script, scripts

ALL = list(scripts())
SAMPLE = ALL[:: len(ALL) // 24]
DOMAINS = ("agentpack", "fleet", "enact", "forge", "climpt")
SELECTIONS = [
    Selection(),
    *(Selection((each,)) for each in DOMAINS),
    Selection(("fleet", "fleet")),
    Selection(("climpt", "agentpack")),
    Selection(("enact", "forge", "climpt")),
    Selection(DOMAINS),
    Selection(prefix="our-"),
    Selection(prefix="agentpack_", extras=False),
    Selection(tools=("plan",)),
    Selection(tools=("create_agent", "execute", "alice__weather")),
    Selection(tools=("alice__weather",)),
    Selection(without=("rollback", "fractary_forge_plugin_info", "search"), prefix="x_"),
    Selection(("agentpack", "fleet"), tools=("deploy_apply", "rollback", "list_agents")),
]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with pytest.MonkeyPatch.context() as patch:
        home = enter_empty_home(tmp_path_factory.mktemp("forks"), patch)
        running = Forks(home)
        yield running
        running.close()


@pytest.mark.parametrize("script", SAMPLE, ids=lambda script: script.name)
def test_the_front_makes_no_difference(forks: Forks, script: Script) -> None:
    assert_no_difference(forks, script)


@pytest.mark.slow
@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_the_front_never_makes_a_difference(forks: Forks, script: Script) -> None:
    assert_no_difference(forks, script)


def assert_no_difference(forks: Forks, script: Script) -> None:
    with_front, without = (
        forks.run(script.chunks, script.argv, front=front, closed=script.closed, deaf=script.deaf)
        for front in (True, False)
    )
    assert with_front == without


def test_there_are_enough_scripts() -> None:
    assert len({script.name for script in ALL}) == len(ALL) >= 200


def test_the_recorded_listing_is_that_of_the_tools() -> None:
    """If not: python -m fleet_agentpack.wire.listing"""
    assert Path(PATH).read_text(encoding="utf-8") == listing.text()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda each: " ".join(map(str, each)))
def test_recorded_answers_are_those_of_fastmcp(
    tmp_path: Path, selection: Selection, read_only: bool
) -> None:
    selection = selection._replace(read_only=read_only)
    project = tmp_path / "my project"
    recorded = RecordedListing.read(selection, FoundProject(str(project)).sentence)
    assert recorded
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        asked = [listing.initialize(version), *((method, {}) for method in LISTINGS)]
        expected = listing.results(selection, tmp_path, asked, project)
        lists = [recorded.listing(method, modern=False) for method in LISTINGS]
        assert [recorded.initialize(version), *lists] == expected
    asked = [(method, listing.ENVELOPE) for method in ("server/discover", *LISTINGS)]
    lists = [recorded.listing(method, modern=True) for method in LISTINGS]
    assert [recorded.discover(), *lists] == listing.results(selection, tmp_path, asked, project)


def test_unknown_versions_domains_and_tools_are_left_to_the_server() -> None:
    assert RecordedListing.read(Selection(("mars",)), "") is None
    assert RecordedListing.read(Selection(tools=("plan", "plam")), "") is None
    assert RecordedListing.read(Selection(("fleet",), without=("plan",)), "") is None
    assert RecordedListing.read(Selection(tools=("rollback",), read_only=True), "") is None
    recorded = RecordedListing.read(Selection(), "")
    assert recorded and recorded.initialize("2026-07-28") is None
