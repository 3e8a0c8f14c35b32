"""The stockyard tier against a scripted server; off unless configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import jsonable
from tests.forge.registry import Site

API = "/api/v1"


def metadata(name: str, *versions: str, **stockyard: Any) -> dict[str, Any]:
    rows = [{"version": version, "status": "stable"} for version in versions]
    beta = {"version": "9.0.0", "status": "beta"}
    return {"name": name, "versions": [*rows, beta], "latest": versions[-1], "stockyard": stockyard}


@pytest.fixture
def yard(site: Site, configure: Callable[..., None]) -> Site:
    site.put(
        f"{API}/agents/remote-one/metadata",
        metadata("remote-one", "1.0.0", "1.2.0", author="Yard", license="MIT", tags=["far"]),
    )
    site.put(
        f"{API}/agents/remote-one/versions/1.2.0",
        {
            "name": "remote-one",
            "version": "1.2.0",
            "description": "Far away",
            "tools": [],
            "tags": ["far"],
            "system_prompt": "Hi",
        },
    )
    rows = [
        {"name": "remote-one", "type": "agent", "version": "1.2.0", "description": "Far away"},
        {"name": "echo-bot", "type": "agent", "version": "9.9.9"},
        {"name": "../evil", "type": "agent", "version": "1.0.0"},
        {"name": "a-tool", "type": "tool", "version": "1.0.0"},
    ]
    page = {"results": rows, "total": 3, "page": 1, "pageSize": 100}
    site.put(f"{API}/search?q=&type=agent&page=1&pageSize=100", page)
    configure({"name": "yard", "type": "stockyard", "url": site.url, "priority": 1})
    return site


def test_off_unless_configured(full: ForgeService, site: Site) -> None:
    full.listing("agent")
    result = full.listing("agent", source="stockyard")
    assert jsonable(result.agents) == []
    assert "is not searched. Switch it on" in result.warnings[0]
    assert site.asked == []


def test_remote_definitions_come_last_and_never_shadow(full: ForgeService, yard: Site) -> None:
    rows = {row["name"]: row for row in jsonable(full.listing("agent", limit=1000))["agents"]}
    assert rows["remote-one"] == {
        "name": "remote-one",
        "version": "1.2.0",
        "description": "Far away",
        "source": "stockyard",
        "path": f"{yard.url}{API}/agents/remote-one/versions/1.2.0",
    }
    assert rows["echo-bot"]["source"] == "local"
    assert "../evil" not in rows
    assert "a-tool" not in rows


def test_tags_of_remote_definitions_are_asked_for_when_filtering(
    forge: ForgeService, yard: Site
) -> None:
    assert not any("metadata" in path for path in yard.asked)
    result = forge.listing("agent", tags=["far"])
    assert [row.name for row in result.agents] == ["remote-one"]


def test_info_chooses_the_highest_stable_version(forge: ForgeService, yard: Site) -> None:
    info = jsonable(forge.info("agent", "remote-one", "^1.0.0"))
    assert (info["version"], info["source"]) == ("1.2.0", "stockyard")
    assert (info["author"], info["license"], info["prompt"]) == ("Yard", "MIT", "Hi")
    asked = len(yard.asked)
    forge.info("agent", "remote-one")
    assert len(yard.asked) == asked, "answers are cached"


def test_an_unknown_name_is_not_found(forge: ForgeService, yard: Site) -> None:
    with pytest.raises(ForgeError) as caught:
        forge.info("agent", "nobody")
    assert caught.value.code == "AGENT_NOT_FOUND"
    assert caught.value.details["searched"] == ["local", "global", "stockyard"]


def test_an_unreachable_stockyard_leaves_the_local_answer_whole(
    full: ForgeService, configure: Callable[..., None]
) -> None:
    whole = full.listing("agent").total
    configure({"name": "yard", "type": "stockyard", "url": "http://127.0.0.1:1"})
    result = full.listing("agent")
    assert result.total == whole
    assert any("stockyard could not be read" in each for each in result.warnings)
    assert full.info("agent", "echo-bot").source == "local"
    with pytest.raises(ForgeError) as caught:
        full.info("agent", "nobody")
    assert "could not be read" in caught.value.details["warnings"][0]


def test_a_long_list_is_paged(
    forge: ForgeService, site: Site, configure: Callable[..., None]
) -> None:
    names = [f"tool-{n:03}" for n in range(250)]
    for page in (1, 2, 3):
        rows = [
            {"name": n, "type": "tool", "version": "1.0.0"}
            for n in names[(page - 1) * 100 : page * 100]
        ]
        site.put(
            f"{API}/search?q=&type=tool&page={page}&pageSize=100", {"results": rows, "total": 250}
        )
    configure({"name": "yard", "type": "stockyard", "url": f"{site.url}/api/v1/"})
    result = forge.listing("tool", limit=1000)
    assert [row.name for row in result.tools] == names
    assert len(site.asked) == 3


def test_the_token_of_the_stockyard_is_sent(make: Callable[..., ForgeService], yard: Site) -> None:
    make(STOCKYARD_TOKEN="yard-token").info("agent", "remote-one")
    assert {headers.get("Authorization") for headers in yard.headers} == {"Bearer yard-token"}


def test_fork_list_asks_no_network_but_check_does(forge: ForgeService, yard: Site) -> None:
    from tests.forge.tree import agent, write

    text = agent("mine", more="fork_of: {name: remote-one, version: 1.0.0}\n")
    write(forge.directories.root, {".fractary/agents/mine.yaml": text})
    assert forge.fork_list().forks[0].hasUpstreamUpdate is False
    assert yard.asked == []
    assert forge.fork_check().updates[0].upstreamVersion == "1.2.0"
    assert forge.fork_diff("mine").upstreamVersion == "1.2.0"


@pytest.mark.parametrize("body", [b"[]", b"<html>", b'{"results": 5}', b'{"versions": [5, {}]}'])
def test_nonsense_from_the_stockyard_is_survived(
    forge: ForgeService, site: Site, configure: Callable[..., None], body: bytes
) -> None:
    site.put(f"{API}/search?q=&type=agent&page=1&pageSize=100", body)
    site.put(f"{API}/agents/x/metadata", body)
    configure({"name": "yard", "type": "stockyard", "url": site.url})
    assert jsonable(forge.listing("agent").agents) == []
    with pytest.raises(ForgeError) as caught:
        forge.info("agent", "x")
    assert caught.value.code == "AGENT_NOT_FOUND"
