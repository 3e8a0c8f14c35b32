"""Plugins, installed and offered, against a registry on the loopback."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.access import Request, Transport
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import UNKNOWN, jsonable
from tests.forge.registry import Site, serving
from tests.forge.tree import plugin_manifest, write

Configure = Callable[..., None]


@pytest.fixture
def stocked(site: Site, configure: Configure) -> Site:
    """A registry with four plugins, configured for the project."""
    entries = [
        site.put_plugin(
            plugin_manifest("@acme/helper", "1.3.0", description="Helps with tickets"),
            {"agents/helper-agent.yaml": "name: helper-agent\n", "commands/run.md": "# run\n"},
        ),
        site.put_plugin(
            plugin_manifest("@acme/faber", "2.0.0", description="Workflow", tags=["flow"])
        ),
        site.put_plugin(plugin_manifest("@acme/faber-extra", "1.0.0", description="More workflow")),
        site.put_plugin(plugin_manifest("@acme/base", "1.0.0", tags=["faber", "flow"])),
    ]
    entries[1] |= {"author": "Acme", "downloads": 12}
    configure({"name": "main", "url": site.put_registry(*entries), "priority": 1})
    return site


def test_installed_plugins_are_listed_scoped_ones_included(full: ForgeService) -> None:
    result = jsonable(full.plugin_list())
    assert result["plugins"] == [
        {
            "name": "@acme/helper",
            "version": "1.2.0",
            "scope": "local",
            "path": ".fractary/plugins/@acme/helper",
        },
        {
            "name": "@acme/base",
            "version": "1.0.0",
            "scope": "global",
            "path": str(full.directories.user / "registry/plugins/@acme/base"),
        },
        {
            "name": "plain",
            "version": "0.3.0",
            "scope": "global",
            "path": str(full.directories.user / "registry/plugins/plain"),
            "format": "claude-plugin",
        },
    ]
    assert "broken-one/plugin.json: not valid JSON" in result["warnings"][0]
    assert full.plugin_list("local").total == 1
    assert full.plugin_list("global").total == 2


def test_a_plugin_is_listed_by_a_name_that_can_be_asked_for(forge: ForgeService) -> None:
    manifest = {"name": "My Plugin!", "version": "1.0.0"}
    write(forge.directories.project, {"plugins/mine/plugin.json": manifest})
    names = [row.name for row in forge.plugin_list().plugins]
    assert names == ["mine"]
    assert forge.plugin_info("mine").version == "1.0.0"


def test_listing_asks_no_network_but_outdated_does(full: ForgeService, stocked: Site) -> None:
    assert "hasUpdate" not in jsonable(full.plugin_list())["plugins"][0]
    assert stocked.asked == []
    outdated = jsonable(full.plugin_list(outdated=True))
    assert [(row["name"], row["latestVersion"]) for row in outdated["plugins"]] == [
        ("@acme/helper", "1.3.0")
    ]
    rows = {row["name"]: row for row in jsonable(full.plugin_list())["plugins"]}
    assert rows["@acme/helper"]["hasUpdate"] is True
    assert rows["@acme/base"]["hasUpdate"] is False
    assert "hasUpdate" not in rows["plain"]
    assert stocked.asked == ["/registry.json"]


def test_without_registries_outdated_says_how_to_add_one(full: ForgeService) -> None:
    result = full.plugin_list(outdated=True)
    assert jsonable(result.plugins) == []
    assert "fleet-agentpack forge registry add" in result.warnings[-1]


def test_info_of_an_installed_plugin_has_all_its_parts(full: ForgeService) -> None:
    info = jsonable(full.plugin_info("@acme/helper"))
    assert info["components"] == {
        "agents": ["helper-agent"],
        "tools": ["helper-tool"],
        "workflows": [],
        "hooks": ["pre"],
        "commands": ["run"],
    }
    assert info["dependencies"] == {"@acme/base": "^1.0.0"}
    assert info["installed"] == {
        "scope": "local",
        "path": ".fractary/plugins/@acme/helper",
        "installedVersion": "1.2.0",
    }
    assert info["keywords"] == ["demo"]
    assert "availableVersions" not in info
    plain = jsonable(full.plugin_info("plain"))
    assert (plain["author"], plain["components"]["commands"]) == ("Somebody", ["go"])


def test_info_speaks_of_this_plugin_alone(full: ForgeService) -> None:
    assert full.plugin_info("@acme/helper").warnings is UNKNOWN
    for ask in (full.plugin_info, full.plugin_manifest_text):
        with pytest.raises(
            ForgeError, match=r"broken-one cannot be read.*not valid JSON"
        ) as refused:
            ask("broken-one")
        assert refused.value.code == "VALIDATION_ERROR"


def test_a_broken_copy_does_not_hide_what_a_registry_offers(
    full: ForgeService, stocked: Site, work: Path
) -> None:
    (work / ".fractary/plugins/@acme/helper/plugin.json").write_text("{")
    info = full.plugin_info("@acme/helper", remote=True)
    assert info.version == "1.3.0"
    assert "cannot be read" in info.warnings[0]


def test_a_missing_file_registry_names_the_path(
    forge: ForgeService, configure: Callable[..., None], tmp_path: Path
) -> None:
    configure({"name": "gone", "url": f"file://{tmp_path}/gone.json"})
    with pytest.raises(ForgeError, match=f"{tmp_path}/gone.json does not exist") as refused:
        forge.plugin_search("x")
    assert not any("connection" in each for each in refused.value.suggestions)
    configure({"name": "folder", "url": f"file://{tmp_path}"})
    with pytest.raises(ForgeError, match="is not a file"):
        forge.plugin_search("x")


def test_info_from_the_registry_verifies_and_names_versions(
    full: ForgeService, stocked: Site
) -> None:
    info = jsonable(full.plugin_info("@acme/helper", remote=True))
    assert (info["version"], info["availableVersions"]) == ("1.3.0", ["1.3.0"])
    assert info["installed"]["installedVersion"] == "1.2.0"
    assert info["components"]["agents"] == ["helper-agent"]
    asked = len(stocked.asked)
    full.plugin_info("@acme/helper", remote=True)
    assert len(stocked.asked) == asked, "manifest and download come from the cache"


def test_versions_of_one_name_are_listed_newest_first(
    forge: ForgeService, site: Site, configure: Configure
) -> None:
    entries = [
        site.put_plugin(plugin_manifest("@a/b", v)) for v in ("1.9.0", "1.10.0", "2.0.0-rc.1")
    ]
    configure({"name": "r", "url": site.put_registry(*entries)})
    info = forge.plugin_info("@a/b", remote=True)
    assert info.version == "1.10.0"
    assert jsonable(info.availableVersions) == ["2.0.0-rc.1", "1.10.0", "1.9.0"]
    assert forge.plugin_info("@a/b", "~1.9.0", remote=True).version == "1.9.0"
    with pytest.raises(ForgeError) as caught:
        forge.plugin_info("@a/b@^3.0.0", remote=True)
    assert caught.value.details["availableVersions"] == ["2.0.0-rc.1", "1.10.0", "1.9.0"]


def test_a_manifest_with_another_checksum_is_refused(
    forge: ForgeService, stocked: Site, configure: Configure
) -> None:
    stocked.put("/@acme/faber/2.0.0/plugin.json", plugin_manifest("@acme/faber", "6.6.6"))
    with pytest.raises(ForgeError) as caught:
        forge.plugin_info("@acme/faber", remote=True)
    assert caught.value.code == "INTEGRITY_ERROR"
    assert caught.value.details["expected"] != caught.value.details["actual"]
    url = f"{stocked.url}/registry.json"
    configure({"name": "main", "url": url}, install={"verify_checksums": False})
    assert "Checksum mismatch" in forge.plugin_info("@acme/faber", remote=True).warnings[0]


def test_a_plugin_nobody_has_is_not_found_with_the_registries_asked(
    forge: ForgeService, stocked: Site
) -> None:
    with pytest.raises(ForgeError) as caught:
        forge.plugin_info("@acme/unknown", remote=True)
    payload = caught.value.payload()
    assert payload["code"] == "PLUGIN_NOT_FOUND"
    assert payload["details"] == {"plugin": "@acme/unknown", "searchedRegistries": ["main"]}
    assert any("fractary_forge_plugin_search" in each for each in payload["suggestions"])
    with pytest.raises(ForgeError, match="not installed"):
        forge.plugin_info("@acme/unknown")


@pytest.mark.parametrize("name", ["../x", "@a/../../b", "a/b/c", "", "@", "*", "@a/b/../c"])
def test_hostile_plugin_names_are_refused(full: ForgeService, name: str) -> None:
    with pytest.raises(ForgeError) as caught:
        full.plugin_info(name)
    assert caught.value.code == "VALIDATION_ERROR"


def found(result: dict[str, Any]) -> list[str]:
    return [row.name for row in result.results]


def test_search_ranks_name_before_tag_before_text(forge: ForgeService, stocked: Site) -> None:
    assert found(forge.plugin_search("faber")) == ["@acme/faber", "@acme/faber-extra", "@acme/base"]
    assert found(forge.plugin_search("workflow")) == ["@acme/faber", "@acme/faber-extra"]
    assert found(forge.plugin_search("more FABER"))[0] == "@acme/faber-extra"
    assert found(forge.plugin_search("nothing-like-it")) == []
    assert len(found(forge.plugin_search(""))) == 4


def test_search_pages_and_filters_by_any_tag(forge: ForgeService, stocked: Site) -> None:
    page = forge.plugin_search("faber", limit=1, offset=1)
    assert (found(page), page.total, page.query) == (["@acme/faber-extra"], 3, "faber")
    assert found(forge.plugin_search("", tags=["FLOW", "x"])) == ["@acme/base", "@acme/faber"]
    assert jsonable(forge.plugin_search("faber", limit=-5, offset=-5).results) == []


def test_search_results_have_the_contracts_fields(forge: ForgeService, stocked: Site) -> None:
    assert jsonable(forge.plugin_search("faber"))["results"][0] == {
        "name": "@acme/faber",
        "version": "2.0.0",
        "description": "Workflow",
        "author": "Acme",
        "tags": ["flow"],
        "downloads": 12,
        "registry": "main",
    }


def test_registries_are_asked_in_order_of_priority(
    forge: ForgeService, site: Site, configure: Configure
) -> None:
    first = site.put_registry(site.put_plugin(plugin_manifest("@a/b", "1.0.0")), path="/1.json")
    second = site.put_registry(
        site.put_plugin(plugin_manifest("@a/b", "2.0.0")),
        site.put_plugin(plugin_manifest("@a/c")),
        path="/2.json",
    )
    configure(
        {"name": "second", "url": second, "priority": 20},
        {"name": "first", "url": first, "priority": 10},
        {"name": "off", "url": f"{site.url}/3.json", "priority": 1, "enabled": False},
    )
    rows = forge.plugin_search("").results
    assert [(row.name, row.version, row.registry) for row in rows] == [
        ("@a/b", "1.0.0", "first"),
        ("@a/b", "2.0.0", "second"),
        ("@a/c", "1.0.0", "second"),
    ]
    assert "/3.json" not in site.asked
    assert forge.plugin_info("@a/b", remote=True).version == "2.0.0"


def test_one_registry_down_is_a_warning_all_down_an_error(
    full: ForgeService, stocked: Site, configure: Configure
) -> None:
    dead = {"name": "dead", "url": "http://127.0.0.1:1/r.json", "priority": 0}
    configure(dead, {"name": "main", "url": f"{stocked.url}/registry.json"})
    result = full.plugin_search("faber")
    assert result.total == 3
    assert "Registry dead could not be read" in result.warnings[0]
    configure(dead)
    with pytest.raises(ForgeError) as caught:
        full.plugin_search("faber")
    assert caught.value.code == "NETWORK_ERROR"
    assert full.plugin_list().total == 3


def test_a_dead_registry_is_answered_for_by_its_old_manifest(
    full: ForgeService, stocked: Site, configure: Configure
) -> None:
    configure({"name": "main", "url": f"{stocked.url}/registry.json", "cache_ttl": 0})
    full.plugin_search("faber")
    stocked.put("/registry.json", b"down", 500)
    result = full.plugin_search("faber")
    assert result.total == 3
    assert "using its manifest of" in result.warnings[0]


@pytest.mark.parametrize("body", [b"not json", b"[]", b'{"plugins": 5}', b"\xff", b"<html>"])
def test_a_registry_that_talks_nonsense_is_a_network_error(
    forge: ForgeService, site: Site, configure: Configure, body: bytes
) -> None:
    site.put("/r.json", body)
    configure({"name": "r", "url": f"{site.url}/r.json"})
    with pytest.raises(ForgeError) as caught:
        forge.plugin_search("x")
    assert caught.value.code == "NETWORK_ERROR"


def test_bad_entries_are_left_out_and_counted(
    forge: ForgeService, site: Site, configure: Configure
) -> None:
    good = site.put_plugin(plugin_manifest("@a/good"))
    bad = [
        5,
        {"name": "../../evil", "version": "1.0.0", "manifest_url": "https://x.test/p.json"},
        {**good, "name": "@a/file", "manifest_url": "file:///etc/passwd"},
        {**good, "name": "@a/none", "version": None},
    ]
    configure({"name": "r", "url": site.put_registry(good, *bad)})
    result = forge.plugin_search("")
    assert found(result) == ["@a/good"]
    assert "4 of 5 entries" in result.warnings[0]


def test_file_registries_work_without_a_network(
    forge: ForgeService, work: Path, tmp_path: Path, configure: Configure
) -> None:
    manifest = json.dumps(plugin_manifest("@a/b", agents=[{"name": "x"}]))
    entry = {"name": "@a/b", "version": "1.0.0", "manifest_url": "p/plugin.json"}
    write(tmp_path, {"reg/registry.json": {"plugins": [entry]}, "reg/p/plugin.json": manifest})
    configure({"name": "disk", "url": (tmp_path / "reg/registry.json").as_uri()})
    info = forge.plugin_info("@a/b", remote=True)
    assert jsonable(info.components.agents) == ["x"]
    assert "no checksum" in info.warnings[0]
    write(tmp_path, {"reg/registry.json": {"plugins": []}})
    assert forge.plugin_search("").total == 0, "a file is read anew, not cached"


def test_tokens_go_to_their_registry_only(
    make: Callable[..., ForgeService], site: Site, configure: Configure
) -> None:
    with serving() as other:
        foreign = other.put_plugin(plugin_manifest("@a/b"))
        configure(
            {
                "name": "r",
                "url": site.put_registry(foreign),
                "auth": {"type": "bearer", "token_env": "R_TOKEN"},
            }
        )
        make(R_TOKEN="s3cret").plugin_info("@a/b", remote=True)
        assert site.headers[0]["Authorization"] == "Bearer s3cret"
        assert all("Authorization" not in headers for headers in other.headers)
        assert len(other.asked) == 1


def test_a_redirect_elsewhere_loses_the_token(
    make: Callable[..., ForgeService], site: Site, configure: Configure
) -> None:
    with serving() as other:
        url = other.put_registry(other.put_plugin(plugin_manifest("@a/b")))
        site.put("/r.json", b"", 302, Location=url)
        auth = {"type": "apikey", "token_env": "R_TOKEN"}
        configure({"name": "r", "url": f"{site.url}/r.json", "auth": auth})
        assert make(R_TOKEN="s3cret").plugin_search("").total == 1
        assert site.headers[0]["X-API-Key"] == "s3cret"
        assert "X-API-Key" not in other.headers[0]


def test_a_token_never_leaves_this_machine_unprotected(make: Callable[..., ForgeService]) -> None:
    from fleet_agentpack.forge.names import Registry

    forge = make(FRACTARY_REGISTRY_TOKEN="s3cret")
    credentials = forge.workspace().credentials
    plain = Registry("r", "http://r.example.test/r.json", 1)
    assert jsonable(credentials.headers(plain, plain.url)) == {}
    tls = Registry("r", "https://r.example.test/r.json", 1)
    assert jsonable(credentials.headers(tls, tls.url)) == {"Authorization": "Bearer s3cret"}
    assert credentials.headers(tls, "https://evil.example.test/r.json") == {}


@pytest.mark.parametrize(("token", "code"), [(None, "AUTH_REQUIRED"), ("bad", "AUTH_FAILED")])
def test_a_refused_registry_asks_for_a_login(
    make: Callable[..., ForgeService],
    site: Site,
    configure: Configure,
    token: str | None,
    code: str,
) -> None:
    site.put("/r.json", {}, 401)
    configure({"name": "r", "url": f"{site.url}/r.json"})
    forge = make(**({"FRACTARY_REGISTRY_TOKEN": token} if token else {}))
    with pytest.raises(ForgeError) as caught:
        forge.plugin_search("x")
    assert caught.value.code == code
    assert "forge login" in caught.value.suggestions[0]


def test_an_endless_redirect_and_a_downgrade_are_refused(site: Site) -> None:
    site.put("/loop", b"", 302, Location="/loop")
    elsewhere = ["file:///etc/passwd", "ftp://h/x", "http://h:port/", "http://[::1/"]
    for number, target in enumerate(elsewhere):
        site.put(f"/{number}", b"", 302, Location=target)
    paths = ["loop", *map(str, range(len(elsewhere)))]
    answers = Transport(deadline_s=3).fetch_all([Request(f"{site.url}/{path}") for path in paths])
    assert "too many times" in str(answers[0])
    assert all("redirects to a URL that is not allowed" in str(each) for each in answers[1:3])
    assert all(isinstance(each, ForgeError) for each in answers)


def test_an_answer_is_cut_off_at_its_limit(site: Site) -> None:
    site.put("/big", b"x" * 100_000)
    answer = Transport(deadline_s=3).fetch_all([Request(f"{site.url}/big", limit=1000)])[0]
    assert "is larger than the limit of 1,000 bytes" in str(answer)


def test_a_server_that_drips_is_given_up_at_the_deadline() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            while not stop.wait(0.05):
                try:
                    connection.sendall(b"H")
                except OSError:
                    return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    started = time.monotonic()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    answer = Transport(deadline_s=0.6).fetch_all([Request(url)])[0]
    stop.set()
    thread.join()
    listener.close()
    assert isinstance(answer, ForgeError)
    assert time.monotonic() - started < 3


def test_a_hiccup_is_tried_again(site: Site) -> None:
    site.put("/flaky", b"down", 503)
    site.next["/flaky"] = (200, {}, b"up")
    assert Transport(deadline_s=3).fetch(Request(f"{site.url}/flaky")) == b"up"
    assert site.asked == ["/flaky"] * 2
