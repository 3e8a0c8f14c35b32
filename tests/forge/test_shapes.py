"""Every answer against the contract's output schemas, field by field, whatever the tree holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from fleet_agentpack.forge.names import Format
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import jsonable
from tests.forge import tree
from tests.forge.registry import Site

# A set is a choice of texts, a list the shape of its items, `?` marks an optional field,
# `object` any value, `*` any name. Numbers and truth values are told apart.
TIER = {"local", "global", "stockyard"}
KIND = {"agent", "tool"}
FORMAT = set(get_args(Format))
ROW = {
    "name": str,
    "version": str,
    "description?": str,
    "tags?": [str],
    "source": TIER,
    "path": str,
    "format?": FORMAT,
}
PAGE = {"total": int, "limit": int, "offset": int}
DETAILS = {**ROW, "author?": str, "license?": str}
VERDICT = {
    "valid": bool,
    "path": str,
    "errors": [{"field": str, "message": str, "severity": {"error", "warning"}}],
    "warnings": [{"field": str, "message": str}],
    "schema_version": str,
}
AGENT = {
    **DETAILS,
    "tools?": [str],
    "extends?": str,
    "prompt?": str,
    "dependencies?": [{"name": str, "version": str, "type": KIND}],
}
TOOL = {**DETAILS, "inputSchema?": {"*": object}, "outputSchema?": {"*": object}}
PLUGINS = {
    "plugins": [
        {
            "name": str,
            "version": str,
            "scope": {"global", "local"},
            "path": str,
            "hasUpdate?": bool,
            "latestVersion?": str,
            "format?": FORMAT,
        }
    ],
    "total": int,
}
PLUGIN = {
    "name": str,
    "version": str,
    "description?": str,
    "author?": str,
    "license?": str,
    "homepage?": str,
    "repository?": str,
    "keywords?": [str],
    "components": {
        **{kind: [str] for kind in ("agents", "tools", "workflows", "hooks", "commands")},
        "mcpServers?": [str],
        "instructions?": [str],
    },
    "format?": FORMAT,
    "dependencies?": {"*": str},
    "installed?": {"scope": {"global", "local"}, "path": str, "installedVersion": str},
    "availableVersions?": [str],
}
SEARCH = {
    "results": [
        {
            "name": str,
            "version": str,
            "description?": str,
            "author?": str,
            "tags?": [str],
            "downloads?": int,
            "registry": str,
        }
    ],
    "total": int,
    "query": str,
}
CONFIG = {
    "config": {
        "registries": [{"name": str, "url": str, "priority": int, "*": object}],
        "cache": {"directory": str, "ttl": int},
        "resolution": {"local": bool, "global": bool, "stockyard": bool},
        "*": object,
    },
    "sources": [str],
    "yaml?": str,
}
REGISTRIES = {
    "registries": [{"name": str, "url": str, "priority": int, "authenticated": bool}],
}
STATS = {
    "manifests": {"count": int, "size": str, "oldestEntry": str, "newestEntry": str},
    "downloads": {"count": int, "size": str},
    "totalSize": str,
    "location": str,
}
CLEARED = {"success": bool, "cleared": {"manifests": int, "downloads": int, "totalSize": str}}
FORKS = {
    "forks": [
        {
            "name": str,
            "type": KIND,
            "upstream": {"name": str, "version": str},
            "localVersion": str,
            "path": str,
            "hasUpstreamUpdate": bool,
        }
    ],
    "total": int,
}
FORK = {
    "name": str,
    "type": KIND,
    "path": str,
    "upstream": {"name": str, "version": str, "currentVersion": str},
    "localVersion": str,
    "createdAt": str,
    "lastMerged?": str,
    "hasUpstreamUpdate": bool,
}
DIFF = {
    "name": str,
    "upstreamVersion": str,
    "localVersion": str,
    "differences": [
        {
            "field": str,
            "local": object,
            "upstream": object,
            "changeType": {"added", "removed", "modified"},
        }
    ],
    "summary": {"added": int, "removed": int, "modified": int},
    "unified?": str,
}
UPDATES = {
    "updates": [
        {
            "name": str,
            "type": KIND,
            "localVersion": str,
            "upstreamVersion": str,
            "breakingChanges": bool,
        }
    ],
    "total": int,
    "hasUpdates": bool,
}


def check(value: Any, shape: Any, place: str) -> None:
    """Fail at the place where a value is not of the shape."""
    if isinstance(shape, set):
        assert value in shape, place
    elif isinstance(shape, list):
        assert isinstance(value, list), place
        for index, item in enumerate(value):
            check(item, shape[0], f"{place}.{index}")
    elif isinstance(shape, dict):
        assert isinstance(value, dict), place
        _check_fields(value, shape, place)
    elif shape is not object:
        assert type(value) is shape, place


def _check_fields(value: dict[str, Any], shape: dict[str, Any], place: str) -> None:
    for field, inner in shape.items():
        name = field.removesuffix("?")
        if name == "*":
            continue
        assert name in value or field.endswith("?"), f"{place}.{name} is missing"
        if name in value:
            check(value[name], inner, f"{place}.{name}")
    for name in value.keys() - {field.removesuffix("?") for field in shape}:
        assert "*" in shape, f"{place}.{name} is not in the contract"
        check(value[name], shape["*"], f"{place}.{name}")


def answer(result: Any, shape: dict[str, Any]) -> Any:
    """Check an answer, which may carry warnings in words beside the contract's fields."""
    plain = jsonable(result)
    if "warnings" not in shape:
        check(plain.pop("warnings", []), [str], "warnings")
    check(plain, shape, "")
    return plain


@pytest.fixture
def stocked(
    full: ForgeService, site: Site, configure: Callable[..., None], work: Path
) -> ForgeService:
    helper = site.put_plugin(tree.plugin_manifest("@acme/helper", "1.3.0"))
    bare = {"name": "bare", "version": "0.1.0", "manifest_url": helper["manifest_url"]}
    configure({"name": "main", "url": site.put_registry(helper, bare), "priority": 1})
    odd = {
        "version": 2,
        "description": ["no text"],
        "tags": "x",
        "author": {"name": "A"},
        "tools": 1,
    }
    tree.write(work / ".fractary", {"agents/odd.yaml": odd, "tools/odd.yaml": odd})
    return full


def test_definitions_of_any_kind_fit(stocked: ForgeService) -> None:
    listed = answer(stocked.listing("agent", limit=1000), {"agents": [ROW], **PAGE})["agents"]
    for row in listed:
        answer(stocked.info("agent", row["name"]), AGENT)
        answer(stocked.validate("agent", name=row["name"], strict=True), VERDICT)
    assert "odd" in [row["name"] for row in listed]
    listed = answer(stocked.listing("tool", limit=1000), {"tools": [ROW], **PAGE})["tools"]
    for row in listed:
        answer(stocked.info("tool", row["name"]), TOOL)
        answer(stocked.validate("tool", name=row["name"]), VERDICT)
    assert "odd" in [row["name"] for row in listed]


def test_plugins_fit(stocked: ForgeService) -> None:
    answer(stocked.plugin_list(outdated=True), PLUGINS)
    for row in answer(stocked.plugin_list(), PLUGINS)["plugins"]:
        answer(stocked.plugin_info(row["name"]), PLUGIN)
    found = answer(stocked.plugin_search(""), SEARCH)
    assert found["total"] == 2
    assert "availableVersions" in answer(stocked.plugin_info("@acme/helper", remote=True), PLUGIN)


def test_configuration_and_cache_fit(stocked: ForgeService) -> None:
    answer(stocked.config_show(layout="yaml"), CONFIG)
    answer(stocked.config_get("cache"), {"key": str, "value": object, "exists": bool})
    answer(stocked.registry_list(), REGISTRIES)
    answer(stocked.cache_stats(), STATS)
    stocked.plugin_search("")
    assert answer(stocked.cache_stats(), STATS)["manifests"]["count"] == 1
    assert answer(stocked.cache_clear(), CLEARED)["cleared"]["manifests"] == 1


def test_forks_fit(stocked: ForgeService) -> None:
    for row in answer(stocked.fork_list(), FORKS)["forks"]:
        answer(stocked.fork_info(row["name"]), FORK)
        answer(stocked.fork_diff(row["name"]), DIFF)
        assert "unified" not in answer(stocked.fork_diff(row["name"], "json"), DIFF)
    assert answer(stocked.fork_check(), UPDATES)["total"] == 3
