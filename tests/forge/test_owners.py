"""Whose a definition is: two plugins may ship the same name, and neither hides the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_agentpack.forge.names import Identity, Reference
from fleet_agentpack.forge.service import ForgeService
from tests.forge.tree import agent, plugin_manifest, tool, write


@pytest.fixture
def two(work: Path, forge: ForgeService) -> ForgeService:
    """Plugins `repo` and `work`, each with a `cli-helper`; the second under another folder name."""
    write(
        work / ".fractary/plugins",
        {
            "repo/plugin.json": plugin_manifest("repo"),
            "repo/tools/cli-helper.yaml": tool("cli-helper", description="Of repo"),
            "repo/tools/alone.yaml": tool("alone"),
            "work-folder/plugin.json": plugin_manifest("work"),
            "work-folder/tools/cli-helper.yaml": tool("cli-helper", description="Of work"),
            "work-folder/agents/manager.yaml": agent("manager", tools="cli-helper"),
        },
    )
    return forge


def test_both_owners_of_a_name_are_listed(two: ForgeService) -> None:
    names = {row.name: row.description for row in two.listing("tool").tools}
    assert names == {
        "repo/cli-helper": "Of repo",
        "alone": "Runs alone",
        "work/cli-helper": "Of work",
    }


@pytest.mark.parametrize(
    ("name", "description"),
    [
        ("work/cli-helper", "Of work"),
        ("work-folder/cli-helper", "Of work"),
        ("work:cli-helper", "Of work"),
        ("repo/cli-helper", "Of repo"),
        ("@repo/cli-helper", "Of repo"),
    ],
)
def test_an_owner_can_be_named(two: ForgeService, name: str, description: str) -> None:
    assert two.info("tool", name).description == description


def test_every_plugin_name_in_the_list_owns_its_tools(two: ForgeService) -> None:
    for row in two.plugin_list().plugins:
        assert two.info("tool", f"{row.name}/cli-helper").name == "cli-helper"


def test_every_listed_name_has_its_own_info(two: ForgeService) -> None:
    for row in two.listing("tool").tools:
        assert two.info("tool", row.name).path == row.path


def test_a_bare_name_means_its_own_plugin_first(two: ForgeService, work: Path) -> None:
    resolver = two.workspace().resolver
    manager = resolver.resolve("agent", Reference("manager")).value
    found = resolver.find("tool", Reference("cli-helper"), near=manager).definition
    assert found is not None
    assert found.identity == Identity("tool", "cli-helper", "1.0.0", "work")
    assert found.identity.qualified == "work/cli-helper"
    nobody = resolver.find("tool", Reference("cli-helper")).definition
    assert nobody is not None
    assert nobody.owner == "repo"


def test_the_projects_own_stays_bare_beside_a_plugins(two: ForgeService, work: Path) -> None:
    write(work / ".fractary/tools", {"cli-helper.yaml": tool("cli-helper", description="Ours")})
    names = {row.name: row.description for row in two.listing("tool").tools}
    assert names["cli-helper"] == "Ours"
    assert names["work/cli-helper"] == "Of work"
    assert two.info("tool", "cli-helper").description == "Ours"


def test_a_definition_in_a_directory_is_the_whole_directory(two: ForgeService, work: Path) -> None:
    write(work / ".fractary/tools", {"whole/tool.yaml": tool("whole"), "whole/scripts/run.sh": ""})
    found = two.workspace().resolver.resolve("tool", Reference("whole")).value
    assert found.identity.directory == work / ".fractary/tools/whole"
