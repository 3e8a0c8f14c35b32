"""Definitions that are valid text and still made to cost time or memory."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fleet_agentpack.forge import inheritance, resolver, validation
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.support.results import jsonable
from tests.forge import tree

SECONDS = 20.0  # far more than is needed on a busy machine, far less than without a bound


def write(work: Path, kind: str, name: str, more: str = "", tools: str = "") -> None:
    path = work / f".fractary/{kind}s/{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = tree.AGENT if kind == "agent" else tree.TOOL
    fields = {"name": name, "description": "d", "version": "1.0.0", "tags": "x"}
    path.write_text(text.format(**fields, more=more, tools=tools))


def test_thousands_of_references_are_not_all_looked_up(forge: ForgeService, work: Path) -> None:
    for index in range(100):
        write(work, "tool", f"tool-{index}")
    write(work, "agent", "many", tools=", ".join(f"t{index}" for index in range(20_000)))
    started = time.monotonic()
    info = jsonable(forge.info("agent", "many"))
    result = forge.validate("agent", name="many")
    assert time.monotonic() - started < SECONDS
    assert len(info["dependencies"]) == 20_000
    assert "The last 19800 tools were not looked up: there are too many" in info["warnings"]
    assert "Only the first 200 tools were looked up (line 8)" in [
        each["message"] for each in result["warnings"]
    ]


def test_a_wide_graph_of_tools_is_followed_only_so_far(
    forge: ForgeService, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 3 * inheritance.MOST_LOOKED_UP
    for index in range(size):
        needs = ", ".join(f"tool-{other}" for other in range(index + 1, min(index + 21, size)))
        write(work, "tool", f"tool-{index}", more=f"depends_on: [{needs}]\n")
    opened: list[Path] = []
    read = resolver.read_data
    monkeypatch.setattr(
        resolver, "read_data", lambda path, kind: (opened.append(path), read(path, kind))[1]
    )
    assert jsonable(forge.info("tool", "tool-0"))["name"] == "tool-0"
    assert len(opened) == len(set(opened))  # each file once
    assert len(opened) < 2 * inheritance.MOST_LOOKED_UP


def test_a_long_list_of_faults_is_cut_short(forge: ForgeService, work: Path) -> None:
    path = work / "tool.yaml"
    faulty = "".join(f"  p{index}: {{}}\n" for index in range(2_000))
    path.write_text(tree.TOOL.format(name="t", description="d", version="1.0.0", tags="", more=""))
    path.write_text(path.read_text().replace("parameters:\n", f"parameters:\n{faulty}"))
    result = forge.validate("tool", path="tool.yaml")
    assert not result["valid"]
    assert len(result["errors"]) == validation.MOST_ISSUES + 1
    assert result["errors"][-1] == {
        "field": "",
        "message": "… and 3900 more errors",
        "severity": "error",
    }
    assert len(result["warnings"]) == validation.MOST_ISSUES + 1
    assert len(json.dumps(result)) < 50_000


def test_a_directory_whose_definition_is_a_link_outside_is_denied(
    forge: ForgeService, work: Path, home: Path
) -> None:
    home.joinpath("private.md").write_text("---\nkey: private\n---\n")
    (work / "agent-dir").mkdir()
    (work / "agent-dir/agent.md").symlink_to(home / "private.md")
    with pytest.raises(ForgeError, match="leads out"):
        forge.validate("agent", path="agent-dir")


def test_a_key_of_a_million_dots_is_not_there(forge: ForgeService) -> None:
    assert forge.config_get("." * 1_000_000)["exists"] is False
