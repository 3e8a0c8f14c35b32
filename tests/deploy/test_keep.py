"""Edits of deployed files go back to where they came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_agentpack.deploy.importing.importer import ImportRequest
from fleet_agentpack.deploy.keeping.destinations import To
from fleet_agentpack.deploy.keeping.keeper import KeepRequest
from fleet_agentpack.deploy.keeping.results import KeepData
from fleet_agentpack.deploy.model import module_fs_key
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.uninstall import UninstallRequest
from fleet_agentpack.kit.results import Unknown
from tests.deploy.existing import HOMES, furnish
from tests.deploy.lab import Lab, files
from tests.deploy.shell import Shell

RULE = f"project/.cursor/rules/{module_fs_key('instructions:base')}.mdc"


def keep(lab: Lab, *paths: str, to: To | None = None, dry_run: bool = False) -> KeepData:
    places = tuple(str(lab.root / path) for path in paths)
    return lab.service().keeper.run(KeepRequest(Request(), places, to, dry_run)).data


def furnished(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.furnish()
    lab.deploy()
    return lab


def append(path: Path, text: str) -> None:
    path.write_bytes(path.read_bytes() + text.encode())


def is_clean(lab: Lab) -> bool:
    return not lab.status().drift


@pytest.mark.parametrize("name", HOMES)
def test_an_imported_file_that_was_edited_is_kept(name: str, tmp_path: Path) -> None:
    lab = furnish(tmp_path, name)
    before = lab.outside()
    done = lab.service().importer.run(ImportRequest()).data
    lab.deploy()
    for row in done.modules:
        top = Path(row.sources[0])
        append(top / "SKILL.md" if top.is_dir() else top, "# An edit.\n")
    found = keep(lab)
    assert found.applied and not found.conflicts
    assert {row.module_id for row in found.kept} == {row.id for row in done.modules}
    assert is_clean(lab)
    assert lab.service().deploy(Request()).data.reason == "no_changes"  # all of it is recorded
    edited = {Path(row.path) for row in found.kept}
    for row in done.modules:  # every tool that has the same module has the edit now
        for source in row.sources:
            place = Path(source)
            text = (place / "SKILL.md" if place.is_dir() else place).read_bytes()
            assert text.endswith(b"An edit.\n")
    lab.service().back.uninstall(UninstallRequest())
    after = lab.outside()
    kept_edits = {str(path.relative_to(lab.root)) for path in edited}
    assert {path: state for path, state in after.items() if path not in kept_edits} == {
        path: state for path, state in before.items() if path not in kept_edits
    }
    for path in edited:
        assert path.read_bytes().endswith(b"An edit.\n")


def test_an_edit_goes_into_the_module_and_the_other_tools_follow(tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    append(lab.project / "AGENTS.md", "- more\n")
    before = lab.outside()
    dry = keep(lab, dry_run=True)
    assert dry.reason == "dry_run" and lab.outside() == before and not is_clean(lab)

    done = keep(lab)
    (row,) = done.kept
    assert (row.module_id, row.layer) == ("instructions:base", "upstream")
    assert (lab.repo / "modules/instructions/base/AGENTS.md").read_text() == "# Base\n- more\n"
    assert is_clean(lab) and lab.changes() == []
    assert (lab.user / ".codex/AGENTS.md").read_text() == "# Base\n- more\n"
    assert (lab.root / RULE).read_text().endswith("# Base\n- more\n")
    assert str(lab.root / RULE) in done.updated


def test_a_combined_file_is_split_at_its_markers(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.instructions("a", "first")
    lab.instructions("b", "second\n")
    lab.deploy(target="codex")
    path = lab.project / "AGENTS.md"
    path.write_text(path.read_text().replace("first", "FIRST").replace("second", "SECOND"))
    keep(lab, "project/AGENTS.md")
    assert (lab.repo / "modules/instructions/a/AGENTS.md").read_text() == "FIRST"
    assert (lab.repo / "modules/instructions/b/AGENTS.md").read_text() == "SECOND\n"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda text: f"{text}\nbelow\n", "text outside the markers"),
        (lambda text: text.replace("<!-- /agentpack -->", "", 1), "markers"),
        (lambda text: text.replace("instructions:a", "instructions:c"), "markers"),
    ],
)
def test_a_combined_file_that_cannot_be_split_is_a_conflict(
    edit: object, reason: str, tmp_path: Path
) -> None:
    lab = Lab(tmp_path)
    lab.instructions("a", "first\n")
    lab.instructions("b", "second\n")
    lab.deploy(target="codex")
    path = lab.project / "AGENTS.md"
    path.write_text(edit(path.read_text()))  # type: ignore[operator]
    done = keep(lab)
    (conflict,) = done.conflicts
    assert reason in conflict.reason and not done.applied
    assert (lab.repo / "modules/instructions/a/AGENTS.md").read_text() == "first\n"


def test_a_rule_keeps_its_generated_header(tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    append(lab.root / RULE, "- in Cursor\n")
    keep(lab, RULE)
    assert (lab.repo / "modules/instructions/base/AGENTS.md").read_text() == "# Base\n- in Cursor\n"
    assert is_clean(lab)
    rule = lab.root / RULE
    rule.write_text(rule.read_text().replace("alwaysApply: true", "alwaysApply: false"))
    (conflict,) = keep(lab).conflicts
    assert "header" in conflict.reason


def test_two_edits_of_one_module_must_agree(tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    append(lab.project / "AGENTS.md", "- one\n")
    append(lab.user / ".codex/AGENTS.md", "- other\n")
    done = keep(lab)
    assert not done.applied and "edited differently" in done.conflicts[0].reason
    assert (lab.repo / "modules/instructions/base/AGENTS.md").read_text() == "# Base\n"
    (lab.user / ".codex/AGENTS.md").write_text("# Base\n- one\n")
    assert keep(lab).applied and is_clean(lab)


def test_a_git_module_gets_an_overlay(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    upstream = tmp_path / "upstream"
    lab.write("upstream/review/SKILL.md", "---\nname: review\ndescription: d\n---\nOne.\n")
    lab.git("init", "--quiet", "--initial-branch=main", cwd=upstream)
    lab.git("add", ".", cwd=upstream)
    lab.git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x", cwd=upstream)
    source = {"git": {"url": str(upstream), "ref": "main", "subdir": "review"}}
    lab.module("skill", "review", "", source=source)
    lab.service().upkeep.update(Request())
    lab.deploy()
    append(lab.user / ".codex/skills/review/SKILL.md", "Two.\n")
    done = keep(lab)
    (row,) = done.kept
    overlay = lab.repo / "overlays" / module_fs_key("skill:review")
    assert row.layer == "global" and row.file == str(overlay / "SKILL.md")
    assert (overlay / "SKILL.md").read_text().endswith("One.\nTwo.\n")
    assert (overlay / ".agentpack/baseline.json").exists() and is_clean(lab)


@pytest.mark.parametrize("to", ["overlay", "machine", "project"])
def test_an_edit_can_go_to_an_overlay(to: To, tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    append(lab.project / "AGENTS.md", "- here\n")
    done = keep(lab, "project/AGENTS.md", to=to)
    assert done.applied and is_clean(lab)
    assert (lab.repo / "modules/instructions/base/AGENTS.md").read_text() == "# Base\n"
    text = (lab.user / ".codex/AGENTS.md").read_text()
    assert text == ("# Base\n" if to == "project" else "# Base\n- here\n")
    # A second edit goes to the overlay that covers the file, without being told.
    append(lab.project / "AGENTS.md", "- again\n")
    assert keep(lab).kept[0].layer == done.kept[0].layer and is_clean(lab)


def test_where_an_edit_cannot_go_is_said(tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    append(lab.user / ".codex/AGENTS.md", "- mine\n")
    assert "never changes the user's own files" in keep(lab, to="project").conflicts[0].reason
    keep(lab, to="machine")
    append(lab.user / ".codex/AGENTS.md", "- more\n")
    assert "--to machine" in keep(lab, to="module").conflicts[0].reason


def test_the_pack_changed_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.instructions("base", "one\ntwo\nthree\nfour\nfive\n")
    lab.deploy()
    (lab.project / "AGENTS.md").write_text("ONE\ntwo\nthree\nfour\nfive\n")
    lab.source("modules/instructions/base/AGENTS.md", "one\ntwo\nthree\nfour\nFIVE\n")
    assert keep(lab, "project/AGENTS.md").applied
    merged = "ONE\ntwo\nthree\nfour\nFIVE\n"
    assert (lab.repo / "modules/instructions/base/AGENTS.md").read_text() == merged
    assert (lab.project / "AGENTS.md").read_text() == merged and is_clean(lab)
    assert (lab.user / ".codex/AGENTS.md").read_text() == merged


def test_a_merged_edit_is_there_though_something_else_waits(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.instructions("base", "one\ntwo\nthree\nfour\nfive\n")
    lab.prompt("hello", "Hello.\n")
    lab.prompt("gone", "Gone.\n")
    lab.deploy()
    (lab.project / "AGENTS.md").write_text("ONE\ntwo\nthree\nfour\nfive\n")
    lab.source("modules/instructions/base/AGENTS.md", "one\ntwo\nthree\nfour\nFIVE\n")
    lab.source("modules/prompts/hello.md", "Hello again.\n")
    lab.prompt("new", "New.\n")
    lab.drop("prompt:gone")
    waiting = [row for row in lab.changes() if "prompts" in row[2]]
    assert {op for op, _, _ in waiting} == {"create", "update", "delete"}

    done = keep(lab)
    merged = "ONE\ntwo\nthree\nfour\nFIVE\n"
    assert done.applied and not isinstance(done.next_actions, Unknown)
    for place in (lab.project / "AGENTS.md", lab.user / ".codex/AGENTS.md"):
        assert place.read_text() == merged and str(place) in done.updated
    assert lab.changes() == waiting  # none of it was deployed
    assert (lab.user / ".codex/prompts/hello.md").read_text() == "Hello.\n"
    lab.source("modules/instructions/base/AGENTS.md", "two\n")  # the record has what was kept
    assert not [row for row in lab.plan().changes if row.edited_by_hand is True]
    lab.deploy()
    assert not lab.status().drift
    lab.service().back.uninstall(UninstallRequest())
    assert files(lab.outside()) == {}


def test_what_waits_in_the_file_of_two_modules_is_not_deployed_by_a_keep(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.instructions("a", "first\n")
    lab.instructions("b", "second\n")
    lab.deploy()
    rule = lab.project / f".cursor/rules/{module_fs_key('instructions:a')}.mdc"
    append(rule, "- in Cursor\n")
    lab.source("modules/instructions/b/AGENTS.md", "SECOND\n")
    assert keep(lab).applied
    assert (lab.repo / "modules/instructions/a/AGENTS.md").read_text() == "first\n- in Cursor\n"
    assert "in Cursor" not in (lab.project / "AGENTS.md").read_text()  # it has b, which waits
    assert {row.cause for row in lab.status().drift} == {"pack_moved"}


def test_both_changed_the_same_lines(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.instructions("base", "one\ntwo\n")
    lab.deploy()
    (lab.project / "AGENTS.md").write_text("one\nmine\n")
    lab.source("modules/instructions/base/AGENTS.md", "one\nyours\n")
    before = lab.outside()
    done = keep(lab, "project/AGENTS.md")
    (conflict,) = done.conflicts
    assert not done.applied and isinstance(conflict.copy, str)
    text = Path(conflict.copy).read_text()
    assert "<<<<<<< edited\nmine\n" in text and "yours\n>>>>>>> the pack" in text
    assert lab.outside() == before
    assert (lab.repo / "modules/instructions/base/AGENTS.md").read_text() == "one\nyours\n"


def test_status_names_keep_first_and_the_command_does_it(tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    shell = Shell(lab)
    append(lab.project / "AGENTS.md", "- more\n")
    status = shell.json("status")["data"]
    assert status["next_actions"][0].endswith("keep --yes --json")
    assert status["next_actions_detailed"][0]["action"] == "keep_edits"
    assert "nothing was written" in shell("keep").stdout
    done = shell("keep", "AGENTS.md", "--yes").stdout
    assert "Kept 1 edit(s)" in done and "also updated" in done
    assert shell("keep", "--yes").stdout == "No edits to keep\n"
    assert "no edit to keep" in shell.refusal("keep", "AGENTS.md", "--yes")["message"]


def test_an_edit_that_no_tool_could_take_is_a_conflict(tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    skill = lab.user / ".codex/skills/tidy/SKILL.md"
    skill.write_text("no header any more\n")
    done = keep(lab)
    assert not done.applied and "front matter" in done.conflicts[0].reason
    assert "name: tidy" in (lab.repo / "modules/skills/tidy/SKILL.md").read_text()


def test_an_edit_is_found_by_any_name_of_its_file(tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    append(lab.project / "AGENTS.md", "- more\n")
    (lab.root / "alias").symlink_to("project")
    (lab.project / "CLAUDE.md").symlink_to("AGENTS.md")
    for name in ("alias/AGENTS.md", "alias", "project/CLAUDE.md"):
        assert [row.path for row in keep(lab, name, dry_run=True).kept] == [
            str(lab.project / "AGENTS.md")
        ]
    said = Shell(lab)("explain", str(lab.root / "alias/CLAUDE.md")).stdout
    assert "edited by hand" in said and "by hand" in said.splitlines()[-1]


def test_an_edit_that_is_no_text_is_a_conflict(tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    (lab.project / "AGENTS.md").write_bytes(b"\xff\xfe\0")
    done = keep(lab)
    assert not done.applied and "not UTF-8" in done.conflicts[0].reason


def test_executable_bits_and_line_ends_stay(tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    script = lab.user / ".codex/skills/tidy/scripts/run.sh"
    script.write_bytes(b"#!/bin/sh\r\necho two\n")
    keep(lab)
    source = lab.repo / "modules/skills/tidy/scripts/run.sh"
    assert source.read_bytes() == b"#!/bin/sh\r\necho two\n" and source.stat().st_mode & 0o111
    assert is_clean(lab)
