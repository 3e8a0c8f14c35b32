"""add, remove, explain, outdated, update ID, overlay and watch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.model import module_fs_key
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.kit import yaml12
from tests.deploy.lab import SKILL, Lab
from tests.deploy.shell import Shell
from tests.rig import child_environment

KEY = module_fs_key("instructions:base")


def furnished(tmp_path: Path) -> tuple[Lab, Shell]:
    lab = Lab(tmp_path)
    lab.furnish()
    return lab, Shell(lab)


def upstream(lab: Lab, text: str) -> Path:
    """A git repository with one skill, at a new commit."""
    place = lab.root / "upstream"
    lab.write("upstream/review/SKILL.md", SKILL.format(name="review") + text)
    if not (place / ".git").exists():
        lab.git("init", "--quiet", "--initial-branch=main", cwd=place)
    lab.git("add", ".", cwd=place)
    lab.git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", text, cwd=place)
    return place


def test_a_module_is_added_and_removed_and_comments_stay(tmp_path: Path) -> None:
    lab, shell = furnished(tmp_path)
    manifest = lab.repo / "agentpack.yaml"
    manifest.write_text(f"# mine\n{manifest.read_text()}# the end\n")
    before = manifest.read_text()
    lab.source("modules/prompts/bye.md", "Bye.\n")
    words = ("prompt", "local:modules/prompts/bye.md", "--targets", "codex")
    assert "Added prompt:bye" in shell("add", *words).stdout
    entry = yaml12.load(manifest.read_text())["modules"][-1]
    assert entry == {
        "id": "prompt:bye",
        "type": "prompt",
        "tags": ["base"],
        "targets": ["codex"],
        "source": {"local_path": {"path": "modules/prompts/bye.md"}},
    }
    lines = iter(manifest.read_text().splitlines())
    assert all(line in lines for line in before.splitlines())
    refused = shell.refusal("add", *words, "--yes")
    assert refused["code"] == "E_CONFIG_INVALID" and "used twice" in refused["message"]
    assert shell.refusal("add", *words)["code"] == "E_CONFIRM_REQUIRED"
    shell("remove", "prompt:bye")
    assert manifest.read_text() == before
    assert "prompt:hello" in shell.refusal("remove", "prompt:bye", "--yes")["message"]


@pytest.mark.parametrize(
    "source", ["modules/x.md", "git:", "git:https://x/y.git#branch=a", "ftp:x"]
)
def test_a_source_that_cannot_be_read_says_how_to_write_one(source: str, tmp_path: Path) -> None:
    _, shell = furnished(tmp_path)
    error = shell.refusal("add", "prompt", source, "--yes")
    assert error["code"] == "E_INVALID_ARGUMENTS" and "local:PATH" in error["message"]


def test_explain_says_which_module_and_layer_a_line_is_from(tmp_path: Path) -> None:
    lab, shell = furnished(tmp_path)
    lab.instructions("team", "# Team\n")
    lab.source(f"overlays/{KEY}/AGENTS.md", "# Changed\n")
    data = shell.json("explain", "AGENTS.md")["data"]
    base, team = data["sections"]
    assert (base["module_id"], base["layer"]) == ("instructions:base", "global")
    assert base["file"].endswith(f"overlays/{KEY}/AGENTS.md")
    assert (base["first_line"], base["last_line"]) == (1, 3)
    assert (team["module_id"], team["layer"], team["first_line"]) == (
        "instructions:team",
        "upstream",
        7,
    )
    assert data["state"] == "missing"
    lab.deploy()
    shown = shell("explain", "AGENTS.md").stdout
    assert "as the pack has it" in shown and "instructions:team" in shown
    error = shell.refusal("explain", "README.md")
    assert error["details"]["reason_code"] == "not_in_pack"


def origins(shell: Shell, path: str) -> list[tuple[int, int, str, str]]:
    found = shell.json("explain", path)["data"]["sections"]
    return [(row["first_line"], row["last_line"], row["module_id"], row["layer"]) for row in found]


def test_explain_tells_lines_of_an_overlay_from_those_that_it_copied(tmp_path: Path) -> None:
    lab, shell = furnished(tmp_path)
    own = lab.source("modules/instructions/base/AGENTS.md", "one\ntwo\nthree\nfour\n")
    copy = lab.source(f"overlays/{KEY}/AGENTS.md", "one\nTWO\nthree\nfour\nfive\n")
    base = "instructions:base"
    changed = [
        (1, 1, base, "upstream"),
        (2, 2, base, "global"),
        (3, 4, base, "upstream"),
        (5, 5, base, "global"),
    ]
    assert origins(shell, "AGENTS.md") == changed
    rows = shell.json("explain", "AGENTS.md")["data"]["sections"]
    assert (rows[0]["file"], rows[0]["edit_in"]) == (str(own), str(copy))
    assert rows[1]["file"] == str(copy) and "edit_in" not in rows[1]
    assert "EDIT IN" in shell("explain", "AGENTS.md").stdout

    lab.instructions("team", "# Team\n", targets=["codex"])
    joined = origins(shell, "AGENTS.md")
    assert joined[0] == (1, 2, base, "upstream")  # with the marker before it
    assert joined[3] == (6, 7, base, "global") and joined[4][2] == "instructions:team"
    rule = origins(shell, f".cursor/rules/{KEY}.mdc")
    assert rule[0][:2] == (1, 7) and rule[1] == (8, 8, base, "global")


def test_explain_of_a_patch_on_a_copy_and_of_an_edit_by_hand(tmp_path: Path) -> None:
    lab, shell = furnished(tmp_path)
    lab.source("modules/instructions/base/AGENTS.md", "one\ntwo\nthree\nfour\nfive\n")
    machine = f"overlays/machines/test-machine/{KEY}/.agentpack"
    lab.source(f"{machine}/overlay.json", '{"overlay_kind": "patch"}')
    lines = "--- a/AGENTS.md\n+++ b/AGENTS.md\n@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four\n"
    patch = lab.source(f"{machine}/patches/AGENTS.md.patch", lines)
    lab.deploy()
    layers = [row[3] for row in origins(shell, "AGENTS.md")]
    assert layers == ["upstream", "machine", "upstream"]
    row = shell.json("explain", "AGENTS.md")["data"]["sections"][1]
    assert (row["first_line"], row["file"]) == (3, str(patch))
    (lab.project / "AGENTS.md").write_text("zero\none\ntwo\nTHREE\nfour\nfive\n")
    rows = origins(shell, "AGENTS.md")
    assert [(first, last, layer) for first, last, _, layer in rows] == [
        (1, 1, "by hand"),
        (2, 3, "upstream"),
        (4, 4, "machine"),
        (5, 6, "upstream"),
    ]


def test_explain_of_a_skills_file_that_only_an_overlay_has(tmp_path: Path) -> None:
    lab, shell = furnished(tmp_path)
    key = module_fs_key("skill:tidy")
    lab.source(f"overlays/{key}/more/notes.md", "a\nb\n")
    lab.source(f"projects/ae2752b5775071e2/overlays/{key}/SKILL.md", SKILL.format(name="tidy"))
    found = origins(shell, str(lab.user / ".codex/skills/tidy/more/notes.md"))
    assert found == [(1, 2, "skill:tidy", "global")]
    in_project = shell.json("explain", ".codex/skills/tidy/SKILL.md")["data"]["sections"]
    assert {row["layer"] for row in in_project} == {"upstream"}  # the copy changes nothing
    assert "/projects/" in in_project[0]["edit_in"]


def test_explain_of_a_file_that_two_modules_share(tmp_path: Path) -> None:
    lab, shell = furnished(tmp_path)
    lab.source("modules/prompts/again.md", "Say hello.\n")
    lab.module("prompt", "again", "modules/prompts/again.md", output="hello.md")
    found = origins(shell, str(lab.user / ".codex/prompts/hello.md"))
    assert [row[2] for row in found] == ["prompt:again, prompt:hello"]


def test_outdated_and_the_update_of_one_module(tmp_path: Path) -> None:
    lab, shell = furnished(tmp_path)
    place = upstream(lab, "One.\n")
    for name in ("review", "again"):
        source = {"git": {"url": str(place), "ref": "main", "subdir": "review"}}
        lab.module("skill", name, "", source=source)
    shell("update", "--yes")
    assert shell.json("outdated")["data"]["modules"][0]["outdated"] is False
    upstream(lab, "Two.\n")
    rows = shell.json("outdated", status=1, ok=True)["data"]["modules"]
    assert [row["outdated"] for row in rows] == [True, True]
    shell("update", "skill:review", "--yes")
    rows = shell.json("outdated", status=1, ok=True)["data"]["modules"]
    assert {row["module_id"]: row["outdated"] for row in rows} == {
        "skill:review": False,
        "skill:again": True,
    }
    assert "module" in shell.refusal("update", "skill:none", "--yes")["message"]
    place.rename(tmp_path / "gone")
    rows = shell.json("outdated")["data"]["modules"]
    assert all("git" in row["problem"] for row in rows)


def test_an_overlay_is_made_listed_and_follows_its_module(tmp_path: Path) -> None:
    lab, shell = furnished(tmp_path)
    lab.source("modules/instructions/base/AGENTS.md", "one\ntwo\nthree\nfour\n")
    assert "No overlays" in shell("overlay", "list").stdout
    directory = shell("overlay", "path", "instructions:base").stdout.strip()
    assert directory.endswith(f"overlays/{KEY}") and not os.path.exists(directory)
    made = shell.json("overlay", "edit", "instructions:base", "--yes")["data"]
    assert made["created"] and made["files"] == ["AGENTS.md"]
    assert lab.changes() and "overlay drift" not in shell("plan").stderr
    Path(directory, "AGENTS.md").write_text("ONE\ntwo\nthree\nfour\n")
    assert shell.json("overlay", "edit", "instructions:base", "--yes")["data"]["created"] is False

    lab.source("modules/instructions/base/AGENTS.md", "one\ntwo\nthree\nFOUR\n")
    assert "overlay drift" in shell("plan").stderr
    (row,) = shell.json("overlay", "list")["data"]["overlays"]
    assert row["drift"] == ["AGENTS.md"] and row["scope"] == "global"
    dry = shell.json("overlay", "rebase", "instructions:base", "--dry-run")["data"]
    assert dry["report"]["updated"] == ["AGENTS.md"]
    assert Path(directory, "AGENTS.md").read_text() == "ONE\ntwo\nthree\nfour\n"
    shell("overlay", "rebase", "instructions:base")
    assert Path(directory, "AGENTS.md").read_text() == "ONE\ntwo\nthree\nFOUR\n"
    assert "overlay drift" not in shell("plan").stderr


def test_an_overlay_that_meets_its_module_is_left_as_it_is(tmp_path: Path) -> None:
    lab, shell = furnished(tmp_path)
    shell("overlay", "edit", "instructions:base", "--scope", "machine")
    mine = lab.source(f"overlays/machines/test-machine/{KEY}/AGENTS.md", "# Mine\n")
    lab.source("modules/instructions/base/AGENTS.md", "# Theirs\n")
    words = ("overlay", "rebase", "instructions:base", "--scope", "machine", "--yes")
    error = shell.refusal(*words)
    assert error["code"] == "E_OVERLAY_REBASE_CONFLICT"
    (copy,) = error["details"]["copies"]
    assert "# Mine" in Path(copy).read_text() and "# Theirs" in Path(copy).read_text()
    assert mine.read_text() == "# Mine\n"
    missing = shell.refusal("overlay", "rebase", "prompt:hello", "--yes")
    assert missing["code"] == "E_OVERLAY_NOT_FOUND"


def test_a_patch_follows_its_module(tmp_path: Path) -> None:
    lab, shell = furnished(tmp_path)
    text = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
    lab.source("modules/instructions/base/AGENTS.md", text)
    shell("overlay", "edit", "instructions:base", "--sparse")
    overlay = lab.repo / "overlays" / KEY / ".agentpack"
    (overlay / "overlay.json").write_text('{"overlay_kind": "patch"}')
    lines = "--- a/AGENTS.md\n+++ b/AGENTS.md\n@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n"
    lab.source(f"overlays/{KEY}/.agentpack/patches/AGENTS.md.patch", lines)
    lab.source("modules/instructions/base/AGENTS.md", text.replace("one", "1"))
    with pytest.raises(DeployError, match="does not apply"):
        lab.service().plan(Request())
    now = text.replace("five", "5")
    lab.source("modules/instructions/base/AGENTS.md", now)
    shell("overlay", "rebase", "instructions:base")
    assert "overlay drift" not in shell("plan").stderr
    lab.deploy()
    assert (lab.project / "AGENTS.md").read_text() == now.replace("one", "ONE")


def test_watch_deploys_what_moves_and_reports_what_was_edited(tmp_path: Path) -> None:
    lab, _ = furnished(tmp_path)
    lab.deploy()
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_agentpack", "watch", "--yes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=lab.project,
        env=child_environment(**lab.environ, PYTHONUNBUFFERED="1"),
    )
    assert process.stdout
    try:
        assert process.stdout.readline().startswith("Watching.")
        assert process.stdout.readline() == "No drift\n"
        lab.source("modules/instructions/base/AGENTS.md", "# Second\n")
        assert process.stdout.readline().startswith("Plan: +0 ~")
        while "Applied." not in process.stdout.readline():
            pass
        assert (lab.project / "AGENTS.md").read_text() == "# Second\n"
        assert process.stdout.readline() == "No drift\n"
        lab.write("project/AGENTS.md", "# Mine\n")
        lines = [process.stdout.readline() for _ in range(3)]
        assert "1 modified" in lines[0] and "you edited it" in "".join(lines)
        lab.source("modules/prompts/hello.md", "Say goodbye.\n")
        while "Applied." not in process.stdout.readline():
            pass
        assert (lab.user / ".codex/prompts/hello.md").read_text() == "Say goodbye.\n"
    finally:
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
    assert "Traceback" not in complaint
    assert (lab.project / "AGENTS.md").read_text() == "# Mine\n"
