"""Configuration: discovery, merging, masking, and the files that count."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.configuration import look_up
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import jsonable
from tests.forge.conftest import MemoryVault
from tests.forge.tree import write

DEFAULTS = {
    "registries": [],
    "resolution": {"local": True, "global": True, "stockyard": False},
}
ONE = {"name": "one", "type": "manifest", "url": "https://one.example.test/r.json", "priority": 5}


def registry(name: str, priority: int = 10, **more: Any) -> dict[str, Any]:
    url = f"https://{name}.example.test/registry.json"
    return {"name": name, "url": url, "priority": priority, **more}


def names(forge: ForgeService) -> list[str]:
    return [each.name for each in forge.registry_list().registries]


def test_a_fresh_machine_has_exactly_the_contracts_defaults(
    forge: ForgeService, home: Path
) -> None:
    result = forge.config_show()
    cache = {"directory": str(home / ".fractary/cache"), "ttl": 3600}
    assert jsonable(result) == {"config": {**DEFAULTS, "cache": cache}, "sources": []}


def test_project_wins_over_global_and_registries_merge_by_name(
    forge: ForgeService, work: Path, home: Path
) -> None:
    mine = registry("both", 7, enabled=True)
    write(work, {".fractary/config.json": {"registries": [registry("far", 20), mine]}})
    write(
        home,
        {
            ".fractary/config.json": {
                "registries": [registry("both", 1), registry("near", 1)],
                "cache": {"ttl": 60},
            }
        },
    )
    assert names(forge) == ["near", "both", "far"]
    shown = forge.config_show()
    assert shown.config["registries"][1] == mine
    assert shown.config["cache"]["ttl"] == 60
    assert jsonable(shown.sources) == [
        ".fractary/config.json",
        str(home / ".fractary/config.json"),
    ]


def test_sources_name_only_files_that_contributed(
    forge: ForgeService, work: Path, home: Path
) -> None:
    write(work, {".fractary/config.json": {"registries": [ONE], "cache": {"ttl": 1}}})
    write(work, {".fractary/config.yaml": "version: 1\nwork: {x: 1}\n"})
    write(home, {".fractary/config.json": {"registries": [ONE], "cache": {"ttl": 9}}})
    assert jsonable(forge.config_show().sources) == [".fractary/config.json"]


def test_the_variable_names_the_only_file(
    make: Callable[..., ForgeService], work: Path, home: Path
) -> None:
    write(work, {".fractary/config.json": {"registries": [registry("project")]}})
    write(home, {".fractary/config.json": {"registries": [registry("user")]}})
    write(work, {"own.json": {"registries": [registry("own")]}})
    forge = make(FRACTARY_CONFIG="own.json")
    assert names(forge) == ["own"]
    assert jsonable(forge.config_show().sources) == ["own.json"]


def test_a_variable_that_names_nothing_is_an_error_everywhere(
    make: Callable[..., ForgeService],
) -> None:
    forge = make(FRACTARY_CONFIG="gone.json")
    for query in (forge.config_show, forge.fork_list, lambda: forge.listing("agent")):
        with pytest.raises(ForgeError) as caught:
            query()
        assert caught.value.code == "CONFIG_ERROR"
        assert "FRACTARY_CONFIG" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (".fractary/config.json", {"cache": {"ttl": 42}}),
        (".fractary/plugins/forge/config.json", {"cache": {"ttl": 42}}),
        (".fractary/config.yaml", "work: {}\nforge:\n  organization: acme\n  cache: {ttl: 42}\n"),
        (".fractary/forge/config.yaml", "cache: {ttl: 42}\n"),
        (".fractary/forge.config.json", {"cache": {"ttl": 42}}),
    ],
)
def test_every_project_file_counts(
    forge: ForgeService, work: Path, path: str, content: Any
) -> None:
    write(work, {path: content})
    assert jsonable(forge.config_get("cache.ttl")) == {
        "key": "cache.ttl",
        "value": 42,
        "exists": True,
    }
    assert jsonable(forge.config_show().sources) == [path]


def test_the_forge_section_maps_onto_resolution_and_expands_variables(
    make: Callable[..., ForgeService], work: Path
) -> None:
    write(
        work,
        {
            ".fractary/config.yaml": "forge:\n  registry:\n    global: {enabled: false}\n"
            "    stockyard: {enabled: true, url: '${YARD_URL}'}\n  organization: yes\n"
        },
    )
    forge = make(YARD_URL="https://yard.example.test")
    config = forge.config_show().config
    assert config["resolution"] == {"local": True, "global": False, "stockyard": True}
    assert config["registry"]["stockyard"]["url"] == "${YARD_URL}"  # shown as it is written
    assert forge.workspace().configuration.stockyard.url == "https://yard.example.test"
    assert config["organization"] == "yes"


def test_the_old_stockyard_shape_becomes_a_registry(forge: ForgeService, work: Path) -> None:
    write(work, {".fractary/plugins/forge/config.json": {"stockyard": {"enabled": True}}})
    assert names(forge) == ["stockyard"]


def test_the_cache_variable_wins_over_files(
    make: Callable[..., ForgeService], work: Path, tmp_path: Path
) -> None:
    write(work, {".fractary/config.json": {"cache": {"directory": "elsewhere"}}})
    forge = make(FRACTARY_CACHE_DIR=str(tmp_path / "c"))
    assert forge.config_get("cache.directory").value == str(tmp_path / "c")
    assert forge.cache_stats().location == str(tmp_path / "c")


def test_without_defaults_only_what_was_chosen_is_shown(forge: ForgeService, work: Path) -> None:
    write(work, {".fractary/config.json": {"cache": {"ttl": 5}}})
    shown = forge.config_show(include_defaults=False, layout="yaml")
    assert shown.config == {"registries": [], "cache": {"ttl": 5}, "resolution": {}}
    assert shown.yaml == "registries: []\ncache:\n  ttl: 5\nresolution: {}\n"


@pytest.mark.parametrize(
    ("key", "value", "exists"),
    [
        ("registries.0.url", "https://one.example.test/r.json", True),
        ("registries[0].name", "one", True),
        ("registries.1.url", None, False),
        ("registries.-1", None, False),
        ("registries.0.url.x", None, False),
        ("cache", {"directory": "/c", "ttl": 3600}, True),
        ("nothing.here", None, False),
        ("registries." + "9" * 5000, None, False),
        ("...", None, False),
    ],
)
def test_get_follows_dotted_paths(
    make: Callable[..., ForgeService], work: Path, key: str, value: Any, exists: bool
) -> None:
    write(work, {".fractary/config.json": {"registries": [ONE]}})
    forge = make(FRACTARY_CACHE_DIR="/c")
    assert jsonable(forge.config_get(key)) == {"key": key, "value": value, "exists": exists}


def test_an_empty_key_is_refused(forge: ForgeService) -> None:
    with pytest.raises(ForgeError, match="key is empty"):
        forge.config_get(" ")


def test_secrets_never_show(make: Callable[..., ForgeService], work: Path) -> None:
    write(
        work,
        {
            ".fractary/config.json": {
                "registries": [
                    {
                        "name": "r",
                        "url": "https://user:hunter2@r.example.test/x.json?key=abc123",
                        "auth": {"type": "bearer", "token_env": "R_TOKEN", "token": "tok-in-file"},
                    }
                ],
                "stockyardApiKey": "key-in-file",
            },
            ".fractary/config.yaml": "forge:\n  note: 'uses ${R_TOKEN} here'\n",
        },
    )
    forge = make(R_TOKEN="tok-in-env-1", FRACTARY_REGISTRY_TOKEN="tok-in-env-2")
    text = json.dumps(jsonable([forge.config_show(layout="yaml"), forge.registry_list()]))
    for secret in ("hunter2", "abc123", "tok-in-file", "key-in-file", "tok-in-env"):
        assert secret not in text
    assert forge.config_get("registries.0.auth.token_env").value == "R_TOKEN"
    assert forge.config_get("registries.0.auth.token").value == "***"
    assert forge.config_get("note").value == "uses ${R_TOKEN} here"


def test_authenticated_is_true_for_what_would_be_sent(
    make: Callable[..., ForgeService], work: Path, home: Path
) -> None:
    registries = [
        registry("env", 1, auth={"type": "bearer", "token_env": "ENV_TOKEN"}),
        registry("login", 2),
        registry("expired", 3),
        registry("open", 4),
    ]
    logins = {
        "login": {"type": "basic", "username": "u", "password": "p"},
        "expired": {"type": "token", "token": "t", "expires_at": "2020-01-01T00:00:00Z"},
    }
    write(work, {".fractary/config.json": {"registries": registries}})
    write(home, {".fractary/auth/credentials.json": {"version": "1.0.0", "registries": logins}})
    flags = lambda forge: [each.authenticated for each in forge.registry_list().registries]  # noqa: E731
    assert flags(make(ENV_TOKEN="t")) == [True, True, False, False]
    assert flags(make(FRACTARY_REGISTRY_TOKEN="t")) == [True, True, True, True]
    assert flags(make(vault=MemoryVault())) == [False, True, False, False]


def test_a_broken_file_stops_config_tools_and_only_warns_the_others(
    full: ForgeService, home: Path
) -> None:
    write(home, {".fractary/config.json": '{"registries": [\n  oops'})
    with pytest.raises(ForgeError) as caught:
        full.config_show()
    assert caught.value.code == "CONFIG_ERROR"
    assert "(line 2)" in str(caught.value)
    result = full.listing("agent")
    assert result.total > 5
    assert "config.json: not valid JSON" in result.warnings[0]


@pytest.mark.parametrize(
    ("content", "warned"),
    [
        ({"registries": "x"}, "registries must be an array"),
        ({"registries": [{"url": "https://x.test"}]}, "registries[0].name is missing"),
        (
            {"registries": [{"name": "a", "url": "ftp://x"}]},
            "registries[0].url must be a URL with https://",
        ),
        ({"registries": [{**ONE, "priority": "high"}]}, "priority must be a number"),
        ({"cache": {"ttl": -1}}, "cache.ttl must be a number of seconds"),
        ({"cache": 5}, "cache must be an object"),
        ({"resolution": {"local": "yes"}}, "resolution.local must be true or false"),
    ],
)
def test_a_wrong_value_is_named_and_left_out(
    forge: ForgeService, work: Path, content: Any, warned: str
) -> None:
    write(work, {".fractary/config.json": content})
    result = forge.config_show()
    assert warned in result.warnings[0]
    assert result.config["resolution"] == DEFAULTS["resolution"]
    assert result.config["registries"] == []


@pytest.mark.parametrize(
    "text", ["[]", "null", '{"a": 1, "a": 2}', "{" * 3000, "\x00", '{"a": ' + "9" * 5000 + "}"]
)
def test_unusable_json_is_a_config_error(forge: ForgeService, work: Path, text: str) -> None:
    write(work, {".fractary/config.json": text})
    with pytest.raises(ForgeError) as caught:
        forge.config_show()
    assert caught.value.code == "CONFIG_ERROR"


def test_a_changed_file_counts_at_once(forge: ForgeService, work: Path) -> None:
    for ttl in (1, 22, 333):
        write(work, {".fractary/config.json": {"cache": {"ttl": ttl}}})
        assert forge.config_get("cache.ttl").value == ttl


def test_look_up_never_raises() -> None:
    for key in ("", ".", "a[", "]]", "0"):
        look_up({"a": [1]}, key)
