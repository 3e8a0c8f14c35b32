"""Definitions that are valid text and still made to cost time or memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet_agentpack.forge import resolver, validation
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import jsonable
from tests.forge import tree
from tests.forge.registry import Site


def write(work: Path, kind: str, name: str, more: str = "", tools: str = "") -> None:
    path = work / f".fractary/{kind}s/{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = tree.AGENT if kind == "agent" else tree.TOOL
    fields = {"name": name, "description": "d", "version": "1.0.0", "tags": "x"}
    path.write_text(text.format(**fields, more=more, tools=tools))


def test_thousands_of_references_are_not_all_looked_up(
    forge: ForgeService, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sought: list[str] = []
    find = resolver.Resolver.find
    monkeypatch.setattr(
        resolver.Resolver,
        "find",
        lambda self, kind, reference, near=None: (
            sought.append(reference.name),
            find(self, kind, reference, near),
        )[1],
    )
    for index in range(100):
        write(work, "tool", f"tool-{index}")
    write(work, "agent", "many", tools=", ".join(f"t{index}" for index in range(20_000)))
    info = jsonable(forge.info("agent", "many"))
    result = forge.validate("agent", name="many")
    calls, kinds = 2, 2  # each reference may be a tool or an agent
    assert 0 < len(sought) <= calls * kinds * resolver.MOST_LOOKED_UP
    assert len(info["dependencies"]) == 20_000
    assert "Too many tools: the last 19800 were not looked up" in info["warnings"]
    assert "Only the first 200 tools were looked up (line 8)" in [
        each.message for each in result.warnings
    ]


def test_a_wide_graph_of_tools_is_followed_only_so_far(
    forge: ForgeService, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 3 * resolver.MOST_LOOKED_UP
    for index in range(size):
        needs = ", ".join(f"tool-{other}" for other in range(index + 1, min(index + 21, size)))
        write(work, "tool", f"tool-{index}", more=f"depends_on: [{needs}]\n")
    opened: list[Path] = []
    read = resolver.read_data
    monkeypatch.setattr(
        resolver,
        "read_data",
        lambda path, kind, **how: (opened.append(path), read(path, kind, **how))[1],
    )
    assert jsonable(forge.info("tool", "tool-0"))["name"] == "tool-0"
    assert len(opened) == len(set(opened))  # each file once
    assert len(opened) < 2 * resolver.MOST_LOOKED_UP


def test_a_long_list_of_faults_is_cut_short(forge: ForgeService, work: Path) -> None:
    path = work / "tool.yaml"
    faulty = "".join(f"  p{index}: {{}}\n" for index in range(2_000))
    path.write_text(tree.TOOL.format(name="t", description="d", version="1.0.0", tags="", more=""))
    path.write_text(path.read_text().replace("parameters:\n", f"parameters:\n{faulty}"))
    result = forge.validate("tool", path="tool.yaml")
    assert not result.valid
    assert len(result.errors) == validation.MOST_ISSUES + 1
    assert jsonable(result.errors[-1]) == {
        "field": "",
        "message": "… and 3900 more errors",
        "severity": "error",
    }
    assert len(result.warnings) == validation.MOST_ISSUES + 1
    assert len(json.dumps(jsonable(result))) < 50_000


def test_a_directory_whose_definition_is_a_link_outside_is_denied(
    forge: ForgeService, work: Path, home: Path
) -> None:
    home.joinpath("private.md").write_text("---\nkey: private\n---\n")
    (work / "agent-dir").mkdir()
    (work / "agent-dir/agent.md").symlink_to(home / "private.md")
    with pytest.raises(ForgeError, match="outside the project"):
        forge.validate("agent", path="agent-dir")


def test_a_key_of_a_million_dots_is_not_there(forge: ForgeService) -> None:
    assert forge.config_get("." * 1_000_000).exists is False


def test_json_that_is_nested_too_deeply_is_named(
    forge: ForgeService, work: Path, site: Site, configure: Callable[..., None]
) -> None:
    path = work / ".fractary/config.json"
    path.parent.mkdir()
    for depth in (101, 600, 5_000):
        path.write_text('{"a":' * depth + "1" + "}" * depth)
        with pytest.raises(ForgeError, match="nested") as caught:
            forge.config_show()
        assert caught.value.code == "CONFIG_ERROR"
        assert "nested" in forge.listing("agent").warnings[0]
    path.write_text('{"a":' * 100 + "1" + "}" * 100)
    assert forge.config_show().config["a"]
    site.put("/deep.json", b'{"plugins":' + b"[" * 900 + b"]" * 900 + b"}")
    configure({"name": "deep", "url": f"{site.url}/deep.json"})
    with pytest.raises(ForgeError, match="nested"):
        forge.plugin_search("x")


@pytest.mark.parametrize(
    "url", ["https://h:port/x", "https://h:99999/x", "https://[::1/x", "https://h\n/"]
)
def test_a_broken_url_is_a_warning_wherever_it_stands(
    forge: ForgeService, site: Site, configure: Callable[..., None], url: str
) -> None:
    configure({"name": "bad", "url": url}, registry={"stockyard": {"enabled": True, "url": url}})
    warnings = forge.registry_list().warnings
    assert any("registries[0].url must be a URL" in each for each in warnings)
    assert any("registry.stockyard.url must be a URL" in each for each in warnings)
    entry = {"name": "x", "version": "1.0.0", "manifest_url": url}
    configure({"name": "r", "url": site.put_registry(entry)})
    warning = "1 of 1 entries left out: x has no usable manifest_url"
    assert warning in forge.plugin_search("x").warnings[0]


@pytest.mark.parametrize("moment", ["1e300", "NaN", "Infinity", "-5", "0", '"x"', "null"])
def test_a_cached_manifest_of_no_known_time_is_done_without(
    forge: ForgeService, home: Path, configure: Callable[..., None], moment: str
) -> None:
    url = "http://127.0.0.1:1/registry.json"
    configure({"name": "r", "url": url})
    path = home / ".fractary/cache/manifests/r.json"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'{{"url": "{url}", "manifest": {{"plugins": []}}, "fetched_at": {moment}, "ttl": 9}}'
    )
    with pytest.raises(ForgeError, match="No registry could be read"):
        forge.plugin_search("x")
    assert forge.cache_stats().manifests.count == 1
