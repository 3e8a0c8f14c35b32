"""Plans that an agent and CI can rely on: who edited what, what goes, and no slips."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.server import build_server
from tests.deploy.lab import CODEX, Lab, files
from tests.deploy.shell import Shell
from tests.deploy.test_tools import call

USER = {**CODEX, "scope": "user"}


@pytest.fixture
def lab(home: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    lab = Lab(home / "lab")
    lab.targets = {"codex": USER}
    for name in ("one", "two", "three"):
        lab.prompt(name, f"{name}\n")
    lab.enter(monkeypatch)
    return lab


@pytest.fixture
def shell(lab: Lab) -> Shell:
    return Shell(lab)


@pytest.fixture
async def client(lab: Lab) -> AsyncIterator[Client[Any]]:
    async with Client(build_server(Settings.read())) as client:
        yield client


def prompts(lab: Lab) -> Path:
    return lab.user / ".codex/prompts"


def test_an_edit_is_never_overwritten_on_our_advice(shell: Shell) -> None:
    lab = shell.lab
    shell("deploy", "--apply", "--yes")
    edited = prompts(lab) / "one.md"
    edited.write_text("my edit\n")
    status = shell.json("status")["data"]
    (row,) = status["drift"]
    assert (row["kind"], row["cause"], row["module_ids"]) == ("modified", "edited", ["prompt:one"])
    assert status["next_actions"][0].endswith("keep --yes --json")
    assert not [text for text in status["next_actions"] if "deploy" in text]
    (row,) = shell.json("plan")["data"]["changes"]
    assert row["edited_by_hand"] is True and row["update_kind"] == "managed_update"
    assert "(edited by hand: needs --adopt)" in shell("plan").stdout
    error = shell.refusal("deploy", "--apply", "--yes")
    assert error["code"] == "E_ADOPT_CONFIRM_REQUIRED"
    assert error["details"]["reason"] == error["details"]["reason_code"] == "edited_by_hand"
    assert error["details"]["edited_paths"] == [str(edited)]
    assert error["details"]["next_actions"][0] == "keep_edits"
    assert edited.read_text() == "my edit\n"
    answer = shell.json("deploy", "--apply", "--adopt", "--yes")
    assert edited.read_text() == "one\n"
    backups = lab.home_dir / "state/snapshots" / answer["data"]["snapshot_id"] / "backup"
    assert "my edit\n" in [file.read_text() for file in backups.rglob("*") if file.is_file()]


def test_drift_says_who_moved(shell: Shell) -> None:
    lab = shell.lab
    shell("deploy", "--apply", "--yes")
    lab.source("modules/prompts/one.md", "pack\n")
    (prompts(lab) / "two.md").write_text("mine\n")
    lab.source("modules/prompts/three.md", "pack\n")
    (prompts(lab) / "three.md").write_text("mine\n")
    lab.prompt("four", "four\n")
    (prompts(lab) / "five.md").write_text("never ours\n")
    lab.prompt("five", "five\n")
    data = shell.json("status")["data"]
    causes = {Path(row["path"]).stem: row.get("cause") for row in data["drift"]}
    assert causes == {
        "one": "pack_moved",
        "two": "edited",
        "three": "both",
        "four": "pack_moved",
        "five": None,
    }
    assert [row.get("adopts") for row in data["drift"] if "five" in row["path"]] == [True]
    assert [row["action"] for row in data["next_actions_detailed"]] == [
        "keep_edits",
        "diff",
        "deploy_apply",
    ]
    assert data["next_actions"][1:] == [
        "fleet-agentpack diff --json",
        "fleet-agentpack deploy --apply --yes --json",
    ]
    text = shell("status").stdout
    assert "three.md  (the pack moved, and you edited it)" in text


def test_what_left_the_pack_and_was_edited_stays(shell: Shell) -> None:
    lab = shell.lab
    shell("deploy", "--apply", "--yes")
    mine = prompts(lab) / "one.md"
    mine.write_text("mine\n")
    lab.drop("prompt:one")
    lab.drop("prompt:two")
    answer = shell.json("plan")
    assert [Path(row["path"]).name for row in answer["data"]["changes"]] == ["two.md"]
    assert answer["data"]["changes"][0]["module_ids"] == ["prompt:two"]
    assert any(str(mine) in text and "stays" in text for text in answer["warnings"])
    shell("deploy", "--apply", "--yes")
    assert mine.read_text() == "mine\n" and not (prompts(lab) / "two.md").exists()


def test_a_key_that_is_nearly_a_known_one_is_an_error(shell: Shell) -> None:
    lab = shell.lab
    shell("deploy", "--apply", "--yes")
    before = files(lab.outside())
    lab.profiles = {"default": {"include_tag": ["base"]}}
    lab.save()
    error = shell.refusal("deploy", "--apply", "--yes")
    assert error["code"] == "E_CONFIG_INVALID"
    assert "profiles.default.include_tag" in error["message"]
    assert "did you mean include_tags?" in error["message"]
    assert files(lab.outside()) == before


def test_keys_that_mean_nothing_are_named_and_x_is_free(shell: Shell) -> None:
    lab = shell.lab
    lab.profiles = {"default": {"include_tags": ["base"], "x-why": "mine"}}
    lab.targets = {"codex": {**USER, "colour": "red"}}
    lab.modules[0] |= {"owner": "me", "x-owner": "me"}
    lab.modules[1]["source"] = {"local_path": {"path": "modules/prompts/two.md", "x-n": 1}}
    lab.save()
    warnings = shell.json("plan")["warnings"]
    assert [text.partition("agentpack.yaml: ")[2] for text in warnings] == [
        "targets.codex.colour is not a known key and is ignored",
        "modules[0].owner is not a known key and is ignored",
    ]


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        ({"include_tags": ["bsae"]}, "nothing_selected"),
        ({"include_modules": ["prompt:none"]}, "nothing_selected"),
        ({"include_tags": ["other"]}, "target_emptied"),
    ],
)
def test_a_slip_in_a_profile_does_not_delete_everything(
    shell: Shell, profile: dict[str, list[str]], reason: str
) -> None:
    lab = shell.lab
    shell("deploy", "--apply", "--yes")
    before = files(lab.outside())
    lab.command("elsewhere", tags=["other"])
    lab.profiles = {"default": profile}
    lab.save()
    plan = shell.json("plan")
    assert plan["data"]["summary"]["delete"] == 3
    assert any("--allow-mass-delete" in text for text in plan["warnings"])
    error = shell.refusal("deploy", "--apply", "--yes")
    assert error["code"] == "E_MASS_DELETE_CONFIRM_REQUIRED"
    assert error["details"]["reason_code"] == reason and error["details"]["deletes"] == 3
    assert files(lab.outside()) == before
    shell("deploy", "--apply", "--yes", "--allow-mass-delete")
    assert list(prompts(lab).glob("*.md")) == []


async def test_most_files_go_only_with_a_persons_word(client: Client[Any], lab: Lab) -> None:
    for number in range(8):
        lab.prompt(f"more{number}", "x\n")
    await call(client, "deploy_apply", yes=True)
    for number in range(6):
        lab.drop(f"prompt:more{number}")
    error = (await call(client, "deploy_apply", yes=True))["errors"][0]
    assert error["code"] == "E_MASS_DELETE_CONFIRM_REQUIRED"
    assert error["details"]["reason_code"] == "most_files"
    line = "fleet-agentpack deploy --apply --allow-mass-delete"
    assert error["details"]["command_line"] == line and line in error["message"]
    lab.prompt("more0", "x\n")
    assert (await call(client, "deploy_apply", yes=True))["data"]["applied"]  # 5 of 11


def test_check_is_1_when_there_is_something_to_do(shell: Shell) -> None:
    assert "Plan: +3" in shell("plan", "--check", status=1).stdout
    assert shell.json("status", "--check", status=1, ok=True)["data"]["summary"]["missing"] == 3
    shell("deploy", "--apply", "--yes")
    shell("plan", "--check")
    shell("status", "--check")
    (prompts(shell.lab) / "mine.md").write_text("mine\n")
    shell("plan", "--check")
    shell("status", "--check", status=1)
    shell("status", "--check", "--only", "missing,modified")


async def test_an_apply_that_is_not_the_plan_says_so(client: Client[Any], lab: Lab) -> None:
    shown = (await call(client, "plan"))["data"]["plan_id"]
    assert (await call(client, "diff"))["data"]["plan_id"] == shown
    applied = await call(client, "deploy_apply", yes=True)
    assert applied["data"]["plan_id"] == shown and applied["warnings"] == []
    lab.source("modules/prompts/one.md", "1\n")
    shown = (await call(client, "plan"))["data"]["plan_id"]
    lab.source("modules/prompts/two.md", "2\n")
    applied = await call(client, "deploy_apply", yes=True)
    (warning,) = applied["warnings"]
    assert shown in warning and applied["data"]["plan_id"] in warning and "~2" in warning
    lab.source("modules/prompts/two.md", "3\n")
    assert (await call(client, "deploy_apply", yes=True))["warnings"] == []  # nothing was shown


async def test_diff_shows_the_text_and_actions_are_calls(client: Client[Any], lab: Lab) -> None:
    await call(client, "deploy_apply", yes=True)
    lab.source("modules/prompts/one.md", "uno\n")
    lab.source("modules/prompts/two.md", b"\x00")
    data = (await call(client, "diff", target="codex"))["data"]
    path = prompts(lab) / "one.md"
    assert data["text"].startswith(f"--- a{path}\n+++ b{path}\n@@ -1 +1 @@\n-one\n+uno\n")
    assert data["text"].endswith("two.md: binary or not UTF-8: no diff shown\n")
    status = (await call(client, "status", target="codex"))["data"]
    expected = ['diff with target: "codex"', 'deploy_apply with target: "codex", yes: true']
    assert status["next_actions"] == expected
    assert [row["command"] for row in status["next_actions_detailed"]] == expected


def test_a_long_diff_ends_with_a_line(shell: Shell) -> None:
    for name in ("one", "two", "three"):
        lines = "".join(f"ü {n}\n" for n in range(10_000))
        shell.lab.source(f"modules/prompts/{name}.md", lines)
    text = shell.json("diff")["data"]["text"]
    assert 255_000 < len(text.encode()) < 256_100
    assert text.splitlines()[-2].startswith("+ü ")
    assert text.endswith("cut: 2 of 3 file(s) are shown whole\n")


def test_rows_name_the_layer_that_the_text_is_from(shell: Shell) -> None:
    lab = shell.lab
    lab.source("overlays/prompt:one/one.md", "over\n")
    lab.source("overlays/machines/test-machine/prompt:two/two.md", "over\n")
    rows = shell.json("plan")["data"]["changes"]
    found = {Path(row["path"]).stem: (row["layer"], row["module_ids"]) for row in rows}
    assert found == {
        "one": ("global", ["prompt:one"]),
        "two": ("machine", ["prompt:two"]),
        "three": ("upstream", ["prompt:three"]),
    }
    assert max(len(json.dumps(row)) for row in rows) < 600


# What is said to do next can be done as it stands there.


def test_what_a_user_has_beside_the_pack_needs_nothing(shell: Shell) -> None:
    lab = shell.lab
    shell("deploy", "--apply", "--yes")
    (prompts(lab) / "mine.md").write_text("mine\n")
    data = shell.json("status")["data"]
    assert [row["kind"] for row in data["drift"]] == ["extra"] and "next_actions" not in data
    lab.drop("prompt:one")
    assert [row["action"] for row in shell.json("status")["data"]["next_actions_detailed"]] == [
        "diff",
        "deploy_apply",
    ]


def test_a_deleted_file_was_not_edited(shell: Shell) -> None:
    shell("deploy", "--apply", "--yes")
    (prompts(shell.lab) / "one.md").unlink()
    assert "one.md  (you deleted it)" in shell("status").stdout


def test_next_steps_are_for_the_repo_that_was_asked_for(shell: Shell, tmp_path: Path) -> None:
    repo = ("--repo", str(tmp_path / "another pack"))
    words = f"fleet-agentpack --repo '{repo[1]}'"
    assert f"{words} plan shows" in shell("init", *repo).stdout
    shell("deploy", "--apply", "--yes", *repo)
    (shell.lab.project / "AGENTS.md").write_text("mine\n")
    advice = shell("deploy", "--apply", "--yes", *repo, status=1).stderr
    assert f"{words} keep`" in advice and f"{words} diff`" in advice
    assert f"{words} plan shows" in shell("remove", "prompt:draftpr", "--yes", *repo).stdout
    source = {"git": {"url": str(tmp_path / "upstream"), "ref": "main"}}
    manifest = Path(repo[1], "agentpack.yaml")
    row = json.dumps({"id": "skill:g", "type": "skill", "tags": ["base"], "source": source})
    manifest.write_text(manifest.read_text().rstrip("\n") + f"\n- {row}\n")
    refused = shell("plan", *repo, status=1).stderr
    assert f"run `{words} update`" in refused, refused
    missing = shell("plan", "--repo", "/nowhere", status=1).stderr
    assert "`fleet-agentpack --repo /nowhere init`" in missing


def test_the_project_is_named_before_the_command(shell: Shell) -> None:
    refused = shell("plan", "--project", "/x", status=2).stderr
    assert "fleet-agentpack --project DIR plan" in refused and "--profile" not in refused
    shell.lab.targets = {"codex": CODEX}
    shell.lab.save()
    at_the_top = Shell(shell.lab, Path("/"))
    assert "`fleet-agentpack --project DIR`" in at_the_top("plan").stderr
    named = at_the_top.json("--project", str(shell.lab.project), "plan")
    assert "no project" not in "\n".join(named["warnings"])
