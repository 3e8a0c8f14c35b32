"""Records are joined from rows that were written before; nobody can tell by their bytes."""

from __future__ import annotations

import hashlib
import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.indented_json import indented, rows_text, with_rows
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.service import DeployService
from tests.deploy.lab import Lab

ODD = 'quote " slash \\ ümläut 🎉 \u2028 {a}, [b]'
PRETENDED = 'x\n  "managed_files": []\n'

texts = st.text() | st.sampled_from([ODD, PRETENDED])
rows = st.lists(st.fixed_dictionaries({"path": texts, "module_ids": st.lists(texts)}), min_size=1)


def plainly(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


@settings(max_examples=50)
@given(texts, st.lists(rows), texts)
def test_a_joined_document_is_the_one_written_at_once(
    before: str, parts: list[list[dict[str, Any]]], after: str
) -> None:
    document: dict[str, Any] = {"before": before, "managed_files": [], "after": {after: [after]}}
    joined = with_rows(document, "managed_files", [rows_text(part) for part in parts])
    document["managed_files"] = [row for part in parts for row in part]
    assert joined == indented(document)
    assert json.loads(joined) == document


def test_a_row_looks_as_json_writes_it() -> None:
    rows = [{"path": ODD, "module_ids": []}, {"path": PRETENDED, "module_ids": [ODD, ""]}]
    document = {"a": PRETENDED, "managed_files": rows}
    assert with_rows(document, "managed_files", [rows_text(rows)]) == plainly(document)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.furnish()
    return lab


def deployed(lab: Lab, running: DeployService) -> dict[str, list[str]]:
    """Deploy, and look at every record: what it says of which files, and how it is written.

    Returns the modules of each file.
    """
    lab.source("modules/instructions/base/AGENTS.md", f"# Base {lab.modules}\n")
    newest = lab.deploy(running).data.snapshot_id
    outside = [path for top in (lab.user, lab.project) for path in top.rglob("*")]
    manifests = [path for path in outside if path.name.startswith(".agentpack.manifest.")]
    managed = {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in outside
        if path.is_file() and path not in manifests and ".git" not in path.parts
    }
    record = rows_of(lab.home_dir / f"state/snapshots/{newest}.json")
    listed = [(path, row) for path in manifests for row in rows_of(path)]
    found = {str(path.parent / row["path"]): row for path, row in listed}
    for every in (record, found.values()):
        assert sorted(row["sha256"] for row in every) == sorted(managed.values())
    assert {row["path"]: row["sha256"] for row in record} == managed
    assert {path: row["sha256"] for path, row in found.items()} == managed
    return {path: row["module_ids"] for path, row in found.items()}


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a record, which are in order and written as `json` would."""
    document = json.loads(path.read_bytes())
    assert path.read_bytes() == plainly(document)
    rows: list[dict[str, Any]] = document["managed_files"]
    places = [(row.get("target", ""), row["path"]) for row in rows]
    assert places == sorted(set(places))
    return rows


def test_a_running_process_lists_what_is_there(lab: Lab) -> None:
    running = lab.service()
    deployed(lab, running)
    for name in ("tidy-more", "tidy.more", "tidy0", "ümläut"):  # around `/` in the order
        lab.skill(name, {ODD.replace("/", ""): "odd\n"})
        deployed(lab, running)
    lab.source("modules/skills/tidy/scripts/run.sh", "#!/bin/sh\n", 0o755)
    deployed(lab, running)
    lab.drop("skill:tidy.more")
    assert "skill:tidy.more" not in chain(*deployed(lab, running).values())


def test_a_skill_inside_another_is_listed_in_its_place(lab: Lab) -> None:
    running = lab.service()
    deployed(lab, running)
    lab.skill("inner", output="tidy/inner")
    found = {path.rpartition("/skills/")[2] for path in deployed(lab, running)}
    assert {"tidy/SKILL.md", "tidy/inner/SKILL.md", "tidy/scripts/run.sh"} <= found


def test_a_file_of_two_modules_is_listed_once_with_both(lab: Lab) -> None:
    running = lab.service()
    deployed(lab, running)
    lab.module("skill", "twin", "modules/skills/tidy", output="tidy")
    assert ["skill:tidy", "skill:twin"] in deployed(lab, running).values()
    lab.drop("skill:twin")
    assert ["skill:tidy"] in deployed(lab, running).values()


def test_a_root_that_is_left_empty_lists_nothing(lab: Lab) -> None:
    running = lab.service()
    deployed(lab, running)
    lab.drop("prompt:hello")
    deployed(lab, running)
    assert rows_of(lab.user / ".codex/prompts/.agentpack.manifest.codex.json") == []


def test_a_running_process_sees_new_paths_and_clashes(lab: Lab) -> None:
    running = lab.service()
    deployed(lab, running)
    for name in ("scripts/more.sh", "more/inside.sh"):
        lab.source(f"modules/skills/tidy/{name}", f"# {name}\n")
        assert any(path.endswith(f"tidy/{name}") for path in deployed(lab, running))
    (lab.repo / "modules/skills/tidy/scripts/run.sh").unlink()
    assert not any(path.endswith("run.sh") for path in deployed(lab, running))
    for output in ("tidy", "tidy/scripts/more.sh"):
        lab.skill("other", output=output)
        with pytest.raises(DeployError) as raised:
            running.plan(Request())
        assert raised.value.code == "E_DESIRED_STATE_CONFLICT"
        lab.drop("skill:other")
