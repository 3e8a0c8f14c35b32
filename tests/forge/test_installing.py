"""Installing, updating and removing plugins: whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.installer import Installer
from fleet_agentpack.forge.plugins import Place
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.disk import Disk
from fleet_agentpack.kit.results import UNKNOWN, jsonable
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


def installer(forge: ForgeService) -> Installer:
    workspace = forge.workspace()
    return Installer(workspace.configuration, workspace.plugins, workspace.registries)


def install(forge: ForgeService, plugin: str, scope: Any = "local", **more: Any) -> Any:
    return installer(forge).install(plugin, place(forge, scope), **more).installed


def place(forge: ForgeService, scope: Any = "local", program: Any = "fractary") -> Place:
    return forge.workspace().plugins.place(scope, program)


def test_a_plugin_and_what_it_needs_are_installed(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    assert [each.name for each in install(forge, "@acme/worker")] == [
        "@acme/base",
        "@acme/worker",
    ]
    folder = work / ".fractary/plugins/@acme/worker"
    for name, text in PARTS.items():
        assert (folder / name).read_text() == text
    assert forge.info("agent", "worker").source == "local"
    assert jsonable(forge.plugin_info("@acme/worker").components.hooks) == ["pre"]
    assert forge.plugin_list().total == 2
    assert not (work / ".fractary/plugins/.staging").exists()


def test_global_scope_goes_to_the_home(forge: ForgeService, shop: Site, home: Path) -> None:
    install(forge, "@acme/base", "global")
    assert (home / ".fractary/registry/plugins/@acme/base/plugin.json").is_file()
    assert forge.info("tool", "base-tool").source == "global"


def test_a_second_install_is_a_conflict_unless_forced(forge: ForgeService, shop: Site) -> None:
    install(forge, "@acme/base")
    with pytest.raises(ForgeError) as caught:
        install(forge, "@acme/base")
    assert caught.value.code == "CONFLICT_ERROR"
    install(forge, "@acme/base", force=True)


def test_a_part_with_another_checksum_installs_nothing_at_all(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    shop.put("/@acme/worker/1.0.0/hooks/pre.js", b"evil")
    before = tree(work)
    with pytest.raises(ForgeError) as caught:
        install(forge, "@acme/worker@1.0.0")
    assert caught.value.code == "INTEGRITY_ERROR"
    assert tree(work) == before  # nor is what it needs left behind


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
    dry = installer(forge).update([], dry_run=True)
    assert [each.to for each in dry.updated] == ["1.1.0"]
    assert tree(work / ".fractary/plugins") == before
    assert installer(forge).update(["@acme/worker"]).updated[0].from_ == "1.0.0"
    assert forge.plugin_info("@acme/worker").version == "1.1.0"
    offer(shop, "2.0.0")
    skipped = installer(forge).update([])
    assert skipped.updated == ()
    assert skipped.skipped[0].reason == "breaking"
    assert installer(forge).update([], breaking=True).updated[0].to == "2.0.0"
    assert installer(forge).update([]).updated == ()


def test_an_edited_plugin_is_neither_updated_nor_removed(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    install(forge, "@acme/worker")
    edited = work / ".fractary/plugins/@acme/worker/agents/worker.yaml"
    edited.write_text("mine")
    offer(shop, "1.1.0")
    with pytest.raises(ForgeError) as caught:
        installer(forge).update([])
    assert caught.value.code == "CONFLICT_ERROR"
    assert caught.value.details["edited"] == ["agents/worker.yaml"]
    with pytest.raises(ForgeError):
        installer(forge).uninstall("@acme/worker", None)
    assert edited.read_text() == "mine"
    installer(forge).uninstall("@acme/worker", None, force=True)
    assert not edited.exists()


def test_a_file_that_somebody_added_is_not_lost(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    install(forge, "@acme/worker")
    mine = work / ".fractary/plugins/@acme/worker/agents/mine.yaml"
    mine.write_text("mine")
    offer(shop, "1.1.0")
    for write in (
        lambda: installer(forge).update([]),
        lambda: installer(forge).uninstall("@acme/worker", None),
    ):
        with pytest.raises(ForgeError, match="edited or added") as caught:
            write()
        assert caught.value.details["edited"] == ["agents/mine.yaml"]
    assert mine.read_text() == "mine"


def test_what_is_in_the_place_of_a_plugin_is_not_overwritten(
    forge: ForgeService, site: Site, configure: Callable[..., None], work: Path
) -> None:
    entry = site.put_plugin(plugin_manifest("forge", "1.0.0"), PARTS)
    configure({"name": "shop", "url": site.put_registry(entry), "cache_ttl": 0})
    folder = work / ".fractary/plugins/forge"
    folder.mkdir(parents=True)
    (folder / "lockfile.json").write_text("{}")
    for force in (False, True):
        with pytest.raises(ForgeError, match="nothing was installed") as caught:
            install(forge, "forge", force=force)
        assert caught.value.code == "CONFLICT_ERROR"
    assert [path.name for path in folder.iterdir()] == ["lockfile.json"]
    assert [path.name for path in folder.parent.iterdir()] == ["forge"]


def test_a_broken_plugin_is_installed_again_only_by_force(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    install(forge, "@acme/base")
    manifest = work / ".fractary/plugins/@acme/base/plugin.json"
    manifest.write_text("{")
    with pytest.raises(ForgeError) as caught:
        install(forge, "@acme/base")
    assert caught.value.suggestions == ["Install over it with --force"]
    assert manifest.read_text() == "{"
    install(forge, "@acme/base", force=True)
    assert json.loads(manifest.read_text())["version"] == "1.4.0"


def test_uninstall_refuses_what_others_need(forge: ForgeService, shop: Site) -> None:
    install(forge, "@acme/worker")
    with pytest.raises(ForgeError) as caught:
        installer(forge).uninstall("@acme/base", None)
    assert caught.value.details["neededBy"] == ["@acme/worker"]
    installer(forge).uninstall("@acme/worker", place(forge))
    installer(forge).uninstall("@acme/base", None)
    assert forge.plugin_list().total == 0
    with pytest.raises(ForgeError, match="not installed"):
        installer(forge).uninstall("@acme/base", None)


def interrupt_move(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the given rename into or out of a plugin's place be the last thing that happens."""
    real, count = Disk.rename, 0

    def rename(self: Disk, source: str, target: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise KeyboardInterrupt
        real(self, source, target)

    monkeypatch.setattr(Disk, "rename", rename)


MOVES = range(1, 7)  # the journal, two plugins, each moved aside and replaced, the lockfile


@pytest.fixture
def newer(forge: ForgeService, shop: Site) -> Site:
    """Version 1.0.0 is installed; 2.0.0 needs a newer base, which is installed too."""
    install(forge, "@acme/worker")
    shop.put_registry(
        shop.put_plugin(
            plugin_manifest("@acme/worker", "2.0.0", dependencies={"@acme/base": "^2.0.0"}), PARTS
        ),
        shop.put_plugin(plugin_manifest("@acme/base", "2.0.0")),
    )
    return shop


@pytest.mark.parametrize("number", MOVES)
def test_a_swap_that_fails_leaves_everything_as_it_was(
    forge: ForgeService, newer: Site, work: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    before = tree(work / ".fractary/plugins")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_move(patch, number)
        install(forge, "@acme/worker", force=True)
    assert tree(work / ".fractary/plugins") == before
    assert forge.plugin_list().warnings is UNKNOWN


@pytest.mark.parametrize("number", MOVES)
def test_a_killed_installation_is_finished_or_undone_by_the_next_command(
    forge: ForgeService, newer: Site, work: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("fleet_agentpack.kit.swap.Swap._go_back", lambda *_: None)
        interrupt_move(patch, number)
        install(forge, "@acme/worker", force=True)
    begun = number > 1
    warned = "interrupted" in str(forge.plugin_list().warnings)
    assert warned is begun
    with pytest.raises(ForgeError, match="already installed"):
        install(forge, "@acme/base")
    found = {each.name: each.version for each in forge.plugin_list().plugins}
    old, new = ("1.4.0", "1.0.0"), ("2.0.0", "2.0.0")
    assert (found["@acme/base"], found["@acme/worker"]) == (new if begun else old)
    hidden = [path.name for path in (work / ".fractary/plugins").iterdir() if path.name[0] == "."]
    assert hidden == []


def test_what_was_edited_after_a_kill_is_left_alone_and_named(
    forge: ForgeService, newer: Site, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("fleet_agentpack.kit.swap.Swap._go_back", lambda *_: None)
        interrupt_move(patch, 2)
        install(forge, "@acme/worker", force=True)
    edited = work / ".fractary/plugins/@acme/worker/agents/worker.yaml"
    edited.write_text("mine")
    result = installer(forge).uninstall("@acme/base", place(forge), force=True)
    assert "@acme/worker was changed by another program" in str(result.warnings)
    assert edited.read_text() == "mine"


def test_an_update_brings_what_the_new_version_needs(
    forge: ForgeService, newer: Site, work: Path
) -> None:
    result = installer(forge).update(["@acme/worker"], breaking=True)
    assert [each.to for each in result.updated] == ["2.0.0"]
    assert forge.plugin_info("@acme/base").version == "2.0.0"


def test_an_update_that_fails_names_those_before_it(
    forge: ForgeService, newer: Site, work: Path
) -> None:
    (work / ".fractary/plugins/@acme/worker/agents/worker.yaml").write_text("mine")
    with pytest.raises(ForgeError, match="already updated: @acme/base") as caught:
        installer(forge).update([], breaking=True)
    assert caught.value.code == "CONFLICT_ERROR"
    assert caught.value.details["updated"][0]["to"] == "2.0.0"
    assert forge.plugin_info("@acme/worker").version == "1.0.0"


def test_one_version_has_to_do_for_all(
    forge: ForgeService, site: Site, configure: Callable[..., None], work: Path
) -> None:
    entries = [
        site.put_plugin(plugin_manifest("@a/x", dependencies={"@a/y": "*", "@a/z": "^1.0.0"})),
        site.put_plugin(plugin_manifest("@a/y", dependencies={"@a/z": "^2.0.0"})),
        site.put_plugin(plugin_manifest("@a/z", "1.0.0")),
        site.put_plugin(plugin_manifest("@a/z", "2.0.0")),
    ]
    configure({"name": "r", "url": site.put_registry(*entries)})
    with pytest.raises(
        ForgeError, match=r"@a/y needs @a/z@\^2.0.0, but another plugin needs 1.0.0"
    ) as caught:
        install(forge, "@a/x")
    assert caught.value.code == "DEPENDENCY_ERROR"
    assert not (work / ".fractary/plugins").exists()


def test_a_plugin_for_all_projects_does_not_lean_on_one_of_them(
    forge: ForgeService, shop: Site, home: Path
) -> None:
    install(forge, "@acme/base", "local")
    assert len(install(forge, "@acme/worker", "global")) == 2
    installer(forge).uninstall("@acme/base", place(forge))
    with pytest.raises(ForgeError, match="needs @acme/base"):
        installer(forge).uninstall("@acme/base", place(forge, "global"))


def test_without_automatic_dependencies_they_are_named(
    forge: ForgeService, shop: Site, work: Path
) -> None:
    path = work / ".fractary/config.json"
    config = json.loads(path.read_text())
    config["install"] = {"auto_install_dependencies": False}
    path.write_text(json.dumps(config))
    result = installer(forge).install("@acme/worker", place(forge))
    assert len(result.installed) == 1
    assert "@acme/worker needs @acme/base@^1.0.0, which is not installed" in result.warnings


def test_a_plugin_keeps_the_name_it_was_asked_for_by(
    forge: ForgeService, site: Site, configure: Callable[..., None], work: Path
) -> None:
    def offered(version: str) -> dict[str, Any]:
        manifest = plugin_manifest("plain", "0.0.1")
        return {**site.put_plugin(manifest), "name": "@a/plain", "version": version}

    configure({"name": "r", "url": site.put_registry(offered("1.0.0")), "cache_ttl": 0})
    install(forge, "@a/plain")
    plugins = work / ".fractary/plugins"
    (plugins / "@a/plain").rename(plugins / "moved")
    site.put_registry(offered("1.1.0"))
    assert len(installer(forge).update([]).updated) == 1
    assert installer(forge).update([]).updated == ()
    rows = forge.plugin_list().plugins
    assert [(row.name, row.version) for row in rows] == [("@a/plain", "1.1.0")]
    assert (plugins / "moved/plugin.json").is_file()


def test_the_manifest_on_disk_is_the_registrys(forge: ForgeService, shop: Site, work: Path) -> None:
    install(forge, "@acme/base")
    written = json.loads((work / ".fractary/plugins/@acme/base/plugin.json").read_text())
    assert written["tools"][0]["name"] == "base-tool"
