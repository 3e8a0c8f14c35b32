"""Installing, updating and removing plugins: whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.installing import Installer
from fleet_agentpack.forge.service import ForgeService
from tests.forge.registry import Site
from tests.forge.tree import agent, plugin_manifest, tool

PARTS = {
    "agents/worker.yaml": agent("worker"),
    "tools/hammer.yaml": tool("hammer"),
    "commands/go.md": "# go\n",
    "hooks/pre.js": "// pre\n",
}


@pytest.fixture
def shop(site: Site, configure: Callable[..., None]) -> Site:
    entries = [
        site.put_plugin(
            plugin_manifest("@acme/worker", "1.0.0", dependencies={"@acme/base": "^1.0.0"}), PARTS
        ),
        site.put_plugin(
            plugin_manifest("@acme/base", "1.4.0"), {"tools/base-tool.yaml": tool("base-tool")}
        ),
    ]
    configure({"name": "shop", "url": site.put_registry(*entries), "cache_ttl": 0})
    return site


def offer(site: Site, *versions: str, **more: Any) -> None:
    entries = [site.put_plugin(plugin_manifest("@acme/worker", v, **more), PARTS) for v in versions]
    site.put_registry(*entries)


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".forge.lock"
    }


def install(forge: ForgeService, plugin: str, scope: Any = "local", **more: Any) -> Any:
    return Installer(forge.desk()).install(plugin, scope, **more)


def test_a_plugin_and_what_it_needs_are_installed(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    assert [each["name"] for each in install(forge, "@acme/worker")] == [
        "@acme/base",
        "@acme/worker",
    ]
    folder = work / ".fractary/plugins/@acme/worker"
    for name, text in PARTS.items():
        assert (folder / name).read_text() == text
    assert forge.info("agent", "worker")["source"] == "local"
    assert forge.plugin_info("@acme/worker")["components"]["hooks"] == ["pre"]
    assert forge.plugin_list()["total"] == 2
    assert not (work / ".fractary/plugins/.staging").exists()


def test_global_scope_goes_to_the_home(forge: ForgeService, shop: Site, home: Path) -> None:
    install(forge, "@acme/base", "global")
    assert (home / ".fractary/registry/plugins/@acme/base/plugin.json").is_file()
    assert forge.info("tool", "base-tool")["source"] == "global"


def test_a_second_install_is_a_conflict_unless_forced(forge: ForgeService, shop: Site) -> None:
    install(forge, "@acme/base")
    with pytest.raises(ForgeError) as caught:
        install(forge, "@acme/base")
    assert caught.value.code == "CONFLICT_ERROR"
    install(forge, "@acme/base", force=True)


def test_a_part_with_another_checksum_installs_nothing(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    shop.put("/@acme/worker/1.0.0/hooks/pre.js", b"evil")
    before = tree(work)
    with pytest.raises(ForgeError) as caught:
        install(forge, "@acme/worker@1.0.0")
    assert caught.value.code == "INTEGRITY_ERROR"
    left = {name for name in tree(work) if name not in before and "@acme/base" not in name}
    assert left == set()


@pytest.mark.parametrize(
    "part",
    [
        {"name": "../../evil", "source": "x.yaml"},
        {"name": "a/b", "source": "x.yaml"},
        {"name": "ok"},
        {"name": "ok", "source": "file:///etc/passwd"},
        "just-a-name",
    ],
)
def test_hostile_parts_are_refused(
    forge: ForgeService, site: Site, configure: Callable[..., None], work: Path, part: Any
) -> None:
    entry = site.put_plugin(plugin_manifest("@a/evil", agents=[part]))
    configure({"name": "r", "url": site.put_registry(entry)})
    with pytest.raises(ForgeError):
        install(forge, "@a/evil")
    assert not (work / ".fractary/plugins/@a").exists()


def test_a_part_without_checksum_is_refused(
    forge: ForgeService, site: Site, configure: Callable[..., None]
) -> None:
    site.put("/x.yaml", b"name: x")
    part = {"name": "x", "source": f"{site.url}/x.yaml"}
    entry = site.put_plugin(plugin_manifest("@a/b", agents=[part]))
    configure({"name": "r", "url": site.put_registry(entry)})
    with pytest.raises(ForgeError) as caught:
        install(forge, "@a/b")
    assert caught.value.code == "INTEGRITY_ERROR"


def test_a_missing_dependency_installs_nothing(
    forge: ForgeService, site: Site, configure: Callable[..., None], work: Path
) -> None:
    entry = site.put_plugin(plugin_manifest("@a/b", dependencies={"@a/gone": "^1.0.0"}))
    configure({"name": "r", "url": site.put_registry(entry)})
    with pytest.raises(ForgeError) as caught:
        install(forge, "@a/b")
    assert caught.value.code == "DEPENDENCY_ERROR"
    assert not (work / ".fractary/plugins").exists()


def test_plugins_that_need_each_other_are_both_installed(
    forge: ForgeService, site: Site, configure: Callable[..., None]
) -> None:
    entries = [
        site.put_plugin(plugin_manifest("@a/x", dependencies={"@a/y": "*"})),
        site.put_plugin(plugin_manifest("@a/y", dependencies={"@a/x": "*"})),
    ]
    configure({"name": "r", "url": site.put_registry(*entries)})
    assert len(install(forge, "@a/x")) == 2


def test_update_takes_minor_steps_and_leaves_major_ones(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    install(forge, "@acme/worker")
    offer(shop, "1.1.0")
    before = tree(work / ".fractary/plugins")
    dry = Installer(forge.desk()).update([], dry_run=True)
    assert [each["to"] for each in dry["updated"]] == ["1.1.0"]
    assert tree(work / ".fractary/plugins") == before
    assert Installer(forge.desk()).update(["@acme/worker"])["updated"][0]["from"] == "1.0.0"
    assert forge.plugin_info("@acme/worker")["version"] == "1.1.0"
    offer(shop, "2.0.0")
    skipped = Installer(forge.desk()).update([])
    assert skipped["updated"] == []
    assert skipped["skipped"][0]["reason"] == "breaking"
    assert Installer(forge.desk()).update([], breaking=True)["updated"][0]["to"] == "2.0.0"
    assert Installer(forge.desk()).update([])["updated"] == []


def test_an_edited_plugin_is_neither_updated_nor_removed(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    install(forge, "@acme/worker")
    edited = work / ".fractary/plugins/@acme/worker/agents/worker.yaml"
    edited.write_text("mine")
    offer(shop, "1.1.0")
    with pytest.raises(ForgeError) as caught:
        Installer(forge.desk()).update([])
    assert caught.value.code == "CONFLICT_ERROR"
    assert caught.value.details["edited"] == ["agents/worker.yaml"]
    with pytest.raises(ForgeError):
        Installer(forge.desk()).uninstall("@acme/worker", None)
    assert edited.read_text() == "mine"
    Installer(forge.desk()).uninstall("@acme/worker", None, force=True)
    assert not edited.exists()


def test_uninstall_refuses_what_others_need(forge: ForgeService, shop: Site) -> None:
    install(forge, "@acme/worker")
    with pytest.raises(ForgeError) as caught:
        Installer(forge.desk()).uninstall("@acme/base", None)
    assert caught.value.details["neededBy"] == ["@acme/worker"]
    Installer(forge.desk()).uninstall("@acme/worker", "local")
    Installer(forge.desk()).uninstall("@acme/base", None)
    assert forge.plugin_list()["total"] == 0
    with pytest.raises(ForgeError, match="not installed"):
        Installer(forge.desk()).uninstall("@acme/base", None)


def test_a_swap_that_fails_puts_the_old_plugin_back(
    forge: ForgeService, shop: Site, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(forge, "@acme/worker")
    before = tree(work / ".fractary/plugins")
    offer(shop, "1.1.0")
    real = Path.rename

    def fail(self: Path, target: Any) -> Any:
        if ".staging" in str(self):
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        Installer(forge.desk()).update([])
    assert tree(work / ".fractary/plugins") == before


def test_a_swap_that_was_killed_is_undone_by_the_next_command(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    install(forge, "@acme/worker")
    plugins = work / ".fractary/plugins"
    before = tree(plugins)
    (plugins / ".replaced/@acme").mkdir(parents=True)
    (plugins / "@acme/worker").rename(plugins / ".replaced/@acme/worker")
    (plugins / ".staging/half").mkdir(parents=True)
    assert forge.plugin_list()["total"] == 1
    with pytest.raises(ForgeError, match="already installed"):
        install(forge, "@acme/worker")
    assert tree(plugins) == before


def test_the_manifest_on_disk_is_the_registrys(forge: ForgeService, shop: Site, work: Path) -> None:
    install(forge, "@acme/base")
    written = json.loads((work / ".fractary/plugins/@acme/base/plugin.json").read_text())
    assert written["tools"][0]["name"] == "base-tool"
