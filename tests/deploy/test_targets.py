"""One conformance suite for all targets, then their details."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.model import module_fs_key
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.targets import NAMES
from tests.deploy.lab import ALL_TARGETS, SKILL, Lab


@dataclass(frozen=True)
class Case:
    target: str
    manifests: tuple[str, ...]
    output: str  # a file that changes with its module
    source: str
    extra: str


CASES = [
    Case(
        "codex",
        ("user/.codex", "user/.codex/prompts", "user/.codex/skills", "project"),
        "user/.codex/prompts/hello.md",
        "modules/prompts/hello.md",
        "user/.codex/prompts/mine.md",
    ),
    Case(
        "claude_code",
        ("user/.claude/commands", "project/.claude/commands", "project/.claude/skills"),
        "project/.claude/skills/tidy/scripts/run.sh",
        "modules/skills/tidy/scripts/run.sh",
        "project/.claude/commands/mine.md",
    ),
    Case(
        "cursor",
        ("project/.cursor/rules",),
        f"project/.cursor/rules/{module_fs_key('instructions:base')}.mdc",
        "modules/instructions/base/AGENTS.md",
        "project/.cursor/rules/mine.mdc",
    ),
    Case(
        "vscode",
        ("project/.github", "project/.github/prompts"),
        "project/.github/prompts/hello.prompt.md",
        "modules/prompts/hello.md",
        "project/.github/prompts/mine.prompt.md",
    ),
]


def test_every_target_is_in_the_suite() -> None:
    assert {case.target for case in CASES} == set(ALL_TARGETS) == set(NAMES) - {"agents", "gemini"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.target)
def test_conformance(case: Case, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.furnish()
    target = case.target

    first = lab.deploy(target=target)
    assert first.command == "deploy" and first.command_id == "deploy --apply"
    assert first.data.applied and first.data.targets == [target]
    for root in case.manifests:
        manifest = json.loads((tmp_path / root / f".agentpack.manifest.{target}.json").read_text())
        assert manifest["schema_version"] == 1 and manifest["tool"] == target
        assert manifest["snapshot_id"] == first.data.snapshot_id
    output = tmp_path / case.output
    deployed = output.read_text()
    assert not [name for _, other, name in lab.changes() if other == target]

    lab.write(case.output, "edited\n")
    mine = lab.write(case.extra, "mine\n")
    assert set(lab.drift(target=target)) == {("modified", case.output), ("extra", case.extra)}

    lab.deploy(target=target, adopt=True)
    assert output.read_text() == deployed and mine.read_text() == "mine\n"

    lab.source(case.source, "second version\n")
    lab.deploy(target=target)
    assert "second version\n" in output.read_text()

    lab.service().rollback(first.data.snapshot_id)
    assert output.read_text() == deployed and mine.read_text() == "mine\n"


def test_the_files_of_every_target(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.furnish()
    rule = f"project/.cursor/rules/{module_fs_key('instructions:base')}.mdc"
    assert rule.endswith("instructions_base--d39861fff1.mdc")
    assert [(target, path) for _, target, path in lab.changes()] == [
        ("claude_code", "project/.claude/commands/go.md"),
        ("claude_code", "project/.claude/skills/tidy/SKILL.md"),
        ("claude_code", "project/.claude/skills/tidy/scripts/run.sh"),
        ("claude_code", "user/.claude/commands/go.md"),
        ("claude_code", "user/.claude/skills/tidy/SKILL.md"),
        ("claude_code", "user/.claude/skills/tidy/scripts/run.sh"),
        ("codex", "project/.codex/skills/tidy/SKILL.md"),
        ("codex", "project/.codex/skills/tidy/scripts/run.sh"),
        ("codex", "project/AGENTS.md"),
        ("codex", "user/.codex/AGENTS.md"),
        ("codex", "user/.codex/prompts/hello.md"),
        ("codex", "user/.codex/skills/tidy/SKILL.md"),
        ("codex", "user/.codex/skills/tidy/scripts/run.sh"),
        ("cursor", rule),
        ("vscode", "project/.github/copilot-instructions.md"),
        ("vscode", "project/.github/prompts/hello.prompt.md"),
    ]


def test_cursor_wraps_instructions_as_a_rule(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.instructions("base", "# Base")
    lab.deploy(target="cursor")
    (rule,) = (tmp_path / "project/.cursor/rules").glob("*.mdc")
    assert rule.read_text() == (
        '---\ndescription: "agentpack: instructions:base"\nglobs: []\nalwaysApply: true\n---\n\n'
        "# Base\n"
    )


def test_several_instructions_are_joined_with_markers_in_id_order(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.instructions("zeta", "last")
    lab.instructions("alpha", "first\n")
    lab.deploy()
    expected = (
        "<!-- agentpack:module=instructions:alpha -->\nfirst\n<!-- /agentpack -->\n\n---\n\n"
        "<!-- agentpack:module=instructions:zeta -->\nlast\n<!-- /agentpack -->"
    )
    for name in ("user/.codex/AGENTS.md", "project/AGENTS.md"):
        assert (tmp_path / name).read_text() == expected
    assert (tmp_path / "project/.github/copilot-instructions.md").read_text() == expected
    manifest = json.loads((tmp_path / "project/.agentpack.manifest.codex.json").read_text())
    assert manifest["managed_files"][0]["module_ids"] == ["instructions:alpha", "instructions:zeta"]


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        ({"write_agents_global": False}, "user/.codex/AGENTS.md"),
        ({"write_user_prompts": "no"}, "user/.codex/prompts/hello.md"),
        ({"write_user_skills": " FALSE "}, "user/.codex/skills/tidy/SKILL.md"),
        ({"write_agents_repo_root": "0"}, "project/AGENTS.md"),
        ({"write_repo_skills": False}, "project/.codex/skills/tidy/SKILL.md"),
    ],
)
def test_codex_options_switch_their_outputs_off(
    tmp_path: Path, options: dict[str, object], gone: str
) -> None:
    lab = Lab(tmp_path)
    lab.furnish()
    every = {path for _, _, path in lab.changes(target="codex")}
    lab.targets["codex"] = {"mode": "files", "scope": "both", "options": options}
    lab.save()
    left = {path for _, _, path in lab.changes(target="codex")}
    assert gone in every and gone not in left
    lab.targets["codex"]["options"] = dict.fromkeys(options, "off")  # a word that means nothing
    lab.save()
    assert {path for _, _, path in lab.changes(target="codex")} == every


@pytest.mark.parametrize(("scope", "prefix"), [("user", "user/"), ("project", "project/")])
def test_a_scope_keeps_to_its_side(tmp_path: Path, scope: str, prefix: str) -> None:
    lab = Lab(tmp_path)
    lab.targets["codex"] = {"mode": "files", "scope": scope, "options": {}}
    lab.furnish()
    assert all(path.startswith(prefix) for _, _, path in lab.changes(target="codex"))


def test_codex_home_comes_from_the_option_then_the_variable(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.targets = {"codex": {"mode": "files", "scope": "user", "options": {}}}
    lab.instructions("base", "x\n")

    def place(**variables: str) -> str:
        from fleet_agentpack.deploy.service import DeployService

        answer = DeployService(lab.home(**variables)).plan(Request())
        return str(answer.data.changes[0].path)

    elsewhere = str(tmp_path / "elsewhere")
    assert place(CODEX_HOME=elsewhere) == f"{elsewhere}/AGENTS.md"
    assert place() == f"{lab.user}/.codex/AGENTS.md"
    lab.targets["codex"]["options"] = {"codex_home": "~/chosen//"}
    lab.save()
    assert place(CODEX_HOME=elsewhere) == f"{lab.user}/chosen/AGENTS.md"


def test_a_module_goes_only_to_its_targets(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.instructions("base", "x\n", targets=["cursor"])
    assert {target for _, target, _ in lab.changes()} == {"cursor"}


def test_two_modules_may_want_the_same_bytes_but_not_different_ones(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.prompt("hello", "same\n")
    lab.source("modules/other/hello.md", "same\n")
    lab.module("prompt", "again", "modules/other/hello.md")
    lab.deploy(target="codex")
    manifest = json.loads(
        (tmp_path / "user/.codex/prompts/.agentpack.manifest.codex.json").read_text()
    )
    assert manifest["managed_files"][0]["module_ids"] == ["prompt:again", "prompt:hello"]
    lab.source("modules/other/hello.md", "different\n")
    for act in (lab.plan, lab.status, lab.deploy):
        with pytest.raises(DeployError) as raised:
            act()
        error = raised.value
        assert error.code == "E_DESIRED_STATE_CONFLICT"
        assert error.details["existing"]["module_ids"] == ["prompt:again"]
        assert error.details["new"]["module_ids"] == ["prompt:hello"]
        assert error.details["reason_code"] == "desired_state_conflict"


def test_a_file_and_a_directory_cannot_share_a_name(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.skill("a", {"b": "a file\n"})
    lab.source("modules/skills/other/SKILL.md", SKILL.format(name="other"))
    lab.module("skill", "a/b", "modules/skills/other")
    with pytest.raises(DeployError) as raised:
        lab.plan()
    assert raised.value.code == "E_DESIRED_STATE_CONFLICT"


def test_every_configured_target_is_in_the_answer(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.save()
    assert lab.plan().targets == sorted(ALL_TARGETS)
