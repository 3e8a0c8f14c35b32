"""What is already there comes into a pack, and nothing changes by it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.importing.importer import ImportRequest
from fleet_agentpack.deploy.importing.places import unread_areas
from fleet_agentpack.deploy.importing.results import ImportData
from fleet_agentpack.deploy.importing.secrets import secret_keys, secret_lines
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.uninstall import UninstallRequest
from fleet_agentpack.kit import yaml12
from tests.console.pseudo import OnTerminal
from tests.deploy.existing import HOMES, TOKEN, furnish
from tests.deploy.lab import COMMAND, Lab, tree
from tests.deploy.shell import QuickShell, Shell


def bring_in(lab: Lab, **request: object) -> ImportData:
    return lab.service().importer.run(ImportRequest(**request)).data  # type: ignore[arg-type]


def modules(data: ImportData) -> dict[str, tuple[str, ...]]:
    return {row.id: tuple(row.targets) for row in data.modules}


def reason(data: ImportData, ending: str) -> str:
    (found,) = [row.reason for row in data.skipped if row.path.endswith(ending)]
    return found


@pytest.mark.parametrize("name", HOMES)
def test_right_after_an_import_there_is_nothing_to_deploy(name: str, tmp_path: Path) -> None:
    lab = furnish(tmp_path, name)
    before = lab.outside()
    dry = bring_in(lab, dry_run=True)
    assert not dry.applied and not lab.repo.joinpath("agentpack.yaml").exists()

    done = bring_in(lab)
    assert done.applied and done.modules and modules(done) == modules(dry)
    assert lab.outside() == before
    assert lab.changes() == []
    lab.deploy()
    assert lab.status().drift == []
    kept = {
        path: state for path, state in lab.outside().items() if "agentpack.manifest" not in path
    }
    assert kept == before

    again = bring_in(lab)
    assert not again.applied and again.reason == "no_changes" and not again.modules
    assert again.already >= len(done.modules)


def test_all_kinds_of_users_at_once(tmp_path: Path) -> None:
    names = ("claude_user", "codex_user", "cursor_project", "copilot_project", "whole_team_project")
    lab = furnish(tmp_path, *names)
    before = lab.outside()
    bring_in(lab)
    assert lab.changes() == [] and lab.outside() == before


def test_equal_files_of_several_tools_are_one_module(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "same_for_both")
    assert modules(bring_in(lab)) == {
        "instructions:user": ("claude_code", "codex", "gemini"),
        "skill:shared": ("agents", "claude_code", "codex"),
    }


def test_nearly_equal_files_are_two_modules_and_are_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    text = "".join(f"- rule {n}\n" for n in range(20))
    lab.write("user/.codex/AGENTS.md", text)
    lab.write("user/.claude/CLAUDE.md", f"{text}- one more\n")
    answer = lab.service().importer.run(ImportRequest())
    assert set(modules(answer.data)) == {"instructions:user", "instructions:user-claude-code"}
    (warning,) = [each for each in answer.warnings if "the same" in each]
    assert "AGENTS.md" in warning and "CLAUDE.md" in warning and "98%" in warning


def test_rules_with_the_text_of_the_instructions_are_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    for name in ("AGENTS.md", "CLAUDE.md", ".cursorrules"):
        lab.write(f"project/{name}", "- one\n- two\n")
    answer = lab.service().importer.run(ImportRequest())
    targets = {tuple(row.targets) for row in answer.data.modules}
    assert targets == {("claude_code", "codex"), ("cursor",)}
    named = [each for each in answer.warnings if "are the same" in each]
    assert named and all(".cursorrules" in each for each in named)


def test_a_pack_that_was_imported_stays_itself_in_another_place(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "codex_user")
    bring_in(lab)
    lab.deploy()
    shutil.copytree(lab.repo, tmp_path / "clone")
    answer = QuickShell(lab).json("--repo", str(tmp_path / "clone"), "plan")
    assert answer["data"]["changes"] == [] and answer["warnings"] == []


def test_ids_and_places_are_those_of_the_original(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "codex_user", "whole_team_project")
    lab.write("user/.claude/commands/My Cmd.md", COMMAND.format(name="x"))
    found = {row.id: row.path for row in bring_in(lab).modules}
    project = next(name for name in found if name.startswith("instructions:project-"))
    pid = project.removeprefix("instructions:project-")
    assert len(pid) == 16
    assert found == {
        "instructions:user": "modules/instructions/imported/user",
        project: f"modules/instructions/imported/{pid}",
        "prompt:draft-pr": "modules/prompts/imported/Draft PR.md",
        "skill:deep-review": "modules/skills/imported/Deep.Review",
        "command:my-cmd": "modules/claude-commands/imported/user/My Cmd.md",
        f"command:project-{pid}-deploy": (
            f"modules/claude-commands/imported/project-{pid}/deploy.md"
        ),
        f"skill:project-{pid}-release": f"modules/skills/imported/project-{pid}/release",
    }


def test_links_stay_links(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "links_everywhere")
    data = bring_in(lab)
    assert reason(data, "project/CLAUDE.md") == "a link to AGENTS.md, which stays a link"
    assert "stays a link" in reason(data, ".claude/skills/linked")
    lab.deploy()
    assert (lab.project / "CLAUDE.md").is_symlink()
    assert (lab.user / ".claude/skills/linked").is_symlink()


def test_secrets_stay_where_they_are_and_are_named_without_their_value(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "codex_user", "whole_team_project", "odd_files")
    answer = lab.service().importer.run(ImportRequest())
    data = answer.data
    found = {(Path(row.path).name, row.key) for row in data.secrets}
    assert found == {(".mcp.json", "mcpServers.x.env.KEY"), ("SKILL.md", "line 7")}
    assert "secret" in reason(data, "skills/leaky")
    written = [path.read_bytes() for path in lab.repo.rglob("*") if path.is_file()]
    assert written and not any(TOKEN.encode() in data for data in written)
    assert TOKEN not in repr(data)


def test_what_a_pack_cannot_hold_is_listed_with_the_reason(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user", "cursor_project", "copilot_project")
    data = bring_in(lab, dry_run=True)
    told = {Path(row.path).name: (row.what, row.reason) for row in data.skipped}
    assert told["helper.md"] == ("subagent", "a pack cannot hold subagents")
    assert told["one.agent.md"][0] == "subagent"
    assert told["settings.json"] == ("hook Stop", "a pack cannot hold hooks")
    assert told["mcp.json"][0] == "MCP server a"
    assert told[".claude"] == (
        "caches and state",
        "the program keeps these for itself: projects",
    )


def test_nothing_in_a_programs_own_directory_is_passed_over(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "gemini_user", "claude_project", "codex_user")
    lab.write("user/.codex/sessions/2026/x.jsonl", "{}\n")
    lab.write("user/.codex/auth.json", json.dumps({"OPENAI_API_KEY": "Zx81qPw0Zx81qPw0"}))
    lab.write("user/.gemini/gemini-credentials.json", "{}")
    lab.write("user/.codex/skills/loose.txt", "not a skill\n")
    lab.write("user/.codex/skills/Deep.Review/__pycache__/a.pyc", b"\0")
    lab.write("user/.codex/skills/Deep.Review/.env", "DB_PASSWORD=hunter2\n")
    before = lab.outside()
    data = bring_in(lab)
    told = {(row.path.removeprefix(f"{lab.root}/"), row.what): row.reason for row in data.skipped}
    own = "the program keeps these for itself: "
    assert told["user/.codex", "caches and state"] == f"{own}sessions"
    assert told["user/.gemini", "caches and state"] == f"{own}history, tmp"
    assert told["user/.codex/auth.json", "settings"] == "it holds credentials"
    assert told["user/.codex/config.toml", "setting model"] == "a pack cannot hold settings"
    assert "program's own" in told["user/.codex/skills/.system", "skill"]
    assert told["user/.codex/skills/loose.txt", "skill"].startswith("not a directory")
    assert told["user/.codex/skills/Deep.Review/__pycache__", "part of a skill"] == "a cache"
    assert told["project/.claude/hooks", "hook"] == "a pack cannot hold hooks"
    assert "broken.toml" in told["user/.gemini/commands/broken.toml", "command"]
    secrets = {(row.path.removeprefix(f"{lab.root}/"), row.key) for row in data.secrets}
    assert secrets == {
        ("user/.codex/auth.json", "OPENAI_API_KEY"),
        ("user/.codex/config.toml", "mcp_servers.gh.env.TOKEN"),
        ("user/.codex/skills/Deep.Review/.env", ""),
        ("user/.gemini/gemini-credentials.json", ""),
        ("user/.gemini/oauth_creds.json", "refresh_token"),
    }
    assert not list(lab.repo.rglob(".env")) and lab.changes() == []
    lab.deploy()
    lab.service().back.uninstall(UninstallRequest())
    assert lab.outside() == before


def test_what_an_import_leaves_is_no_drift_and_what_comes_later_is(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "codex_user", "odd_files", "links_everywhere")
    lab.write("user/.codex/skills/.DS_Store", b"\0")
    lab.write("user/.codex/skills/loose.txt", "not a skill\n")
    lab.write("user/.codex/skills/Deep.Review/__pycache__/a.pyc", b"\0")
    lab.write("user/.codex/skills/Deep.Review/.env", "DB_PASSWORD=hunter2\n")
    bring_in(lab)
    lab.deploy()
    shell = QuickShell(lab)
    assert shell("status", "--check").stdout.startswith("No drift")
    lab.write("user/.codex/skills/.system/newer/SKILL.md", "its program's own\n")
    lab.write("user/.codex/prompts/later.txt", "mine\n")
    assert lab.drift() == [("extra", "user/.codex/prompts/later.txt")]
    assert bring_in(lab, dry_run=True).reason == "dry_run" and lab.drift() != []
    again = bring_in(lab)
    assert not again.applied and reason(again, "later.txt").startswith("not a *.md file")
    assert lab.drift() == []


def test_a_list_of_what_was_left_that_cannot_be_read_hides_nothing(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "codex_user")
    bring_in(lab)
    lab.deploy()
    lab.write("agentpack/state/left-out.json", "[not json")
    assert ("extra", "user/.codex/skills/.system/own/SKILL.md") in lab.drift()


def test_what_copilot_and_others_keep_is_listed(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "copilot_project")
    lab.write("project/.vscode/settings.json", '{"chat.agent.enabled": true, "editor.tabSize": 2}')
    lab.write("project/.github/hooks/check.json", "{}")
    lab.write("project/.geminiignore", "x\n")
    lab.write("user/.copilot/mcp-config.json", '{"mcpServers": {"here": {"command": "x"}}}')
    lab.write("user/.copilot/agents/one.agent.md", "x\n")
    lab.write("user/.copilot/config.json", "{}")
    lab.write("user/.gemini/settings.json", '{"hooks": {"BeforeTool": []}}')
    lab.write("user/.claude/docs/style.md", "style\n")
    lab.write("user/.claude/plans/a.md", "a plan\n")
    told = {(Path(row.path).name, row.what): row.reason for row in bring_in(lab).skipped}
    assert told["settings.json", "setting chat.agent.enabled"] == "a pack cannot hold settings"
    assert ("settings.json", "setting editor.tabSize") not in told
    assert told["check.json", "hook"] == told["settings.json", "hook BeforeTool"]
    assert told["mcp-config.json", "MCP server here"].startswith("a pack cannot hold MCP servers")
    assert told["one.agent.md", "subagent"] == "a pack cannot hold subagents"
    assert told[".copilot", "caches and state"].endswith(": config.json")
    assert told["docs", "configuration"] == told[".geminiignore", "configuration"]
    assert told[".claude", "caches and state"].endswith(": plans")


def test_what_is_for_a_part_of_the_project_is_listed(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "whole_team_project")
    for name in ("site/CLAUDE.md", "site/api/AGENTS.md", "site/.cursor/rules/a.mdc"):
        lab.write(f"project/{name}", "part\n")
    for name in ("site/node_modules/x/AGENTS.md", "other/.git/HEAD", "other/AGENTS.md"):
        lab.write(f"project/{name}", "not the project's\n")
    (lab.project / "site/loop").symlink_to("..")
    told = {row.path.removeprefix(f"{lab.project}/"): row for row in bring_in(lab).skipped}
    found = {name for name, row in told.items() if "a part of the project" in row.reason}
    assert found == {"site/CLAUDE.md", "site/api/AGENTS.md", "site/.cursor"}
    only = bring_in(lab, targets=("codex",), dry_run=True)
    assert [row.path for row in only.skipped if "a part of" in row.reason] == [
        str(lab.project / "site/api/AGENTS.md")
    ]


def test_what_claude_md_takes_in_comes_in_from_claudes_own_directory(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user", "claude_project")
    data = bring_in(lab)
    found = {source: row for row in data.modules for source in row.sources}
    for name in ("docs/style.md", "docs/more.md", "CLAUDE.md", "rules/api/rest.md"):
        row = found[str(lab.project / ".claude" / name)]
        assert (row.type, tuple(row.targets)) == ("instructions", ("claude_code",))
    assert found[str(lab.user / ".claude/docs/style.md")].id == "instructions:docs-style"
    assert f"{lab.project / 'CLAUDE.md'} takes it in with @" in reason(data, "README.md")


def test_commands_without_front_matter_come_in_as_prompts(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_project", "codex_user")
    found = {row.id: tuple(row.targets) for row in bring_in(lab).modules}
    plain = {name: targets for name, targets in found.items() if name.endswith("plain")}
    assert [name.partition(":")[0] for name in plain] == ["prompt", "prompt"]
    assert set(plain.values()) == {("claude_code",)} and found["prompt:draft-pr"] == ("codex",)


def test_a_pack_that_cannot_be_read_in_part_is_not_imported_into_twice(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user", "codex_user")
    first = bring_in(lab)
    skill = next(row for row in first.modules if row.id == "skill:tidy")
    (lab.repo / skill.path / "SKILL.md").write_text("no header any more\n")
    again = bring_in(lab)
    assert not again.modules
    assert "mend the pack first" in reason(again, ".claude/CLAUDE.md")


def test_an_imported_module_may_change_its_file_without_adopt(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user")
    before = lab.outside()
    bring_in(lab)
    lab.deploy()
    lab.source("modules/instructions/imported/user/AGENTS.md", "# Moved on\n")
    assert [row.cause for row in lab.status().drift if row.kind != "extra"] == ["pack_moved"]
    lab.deploy()
    assert (lab.user / ".claude/CLAUDE.md").read_text() == "# Moved on\n"
    lab.service().back.uninstall(UninstallRequest())
    assert lab.outside() == before


def test_another_module_joins_an_imported_file_without_adopt(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "codex_user")
    before = lab.outside()
    bring_in(lab)
    lab.deploy()
    lab.source("modules/instructions/extra/AGENTS.md", "# Extra\n")
    Shell(lab)("add", "instructions", "local:modules/instructions/extra", "--yes")
    plan = lab.plan()
    (joined,) = [row for row in plan.changes if row.path == str(lab.user / ".codex/AGENTS.md")]
    assert joined.update_kind == "managed_update"
    lab.deploy()
    assert "# Extra" in (lab.user / ".codex/AGENTS.md").read_text()
    lab.service().back.uninstall(UninstallRequest())
    assert lab.outside() == before


def test_a_module_that_found_its_file_needs_adopt_for_an_imported_one(tmp_path: Path) -> None:
    """The file is as somebody else left it; that another module is imported says nothing of it."""
    lab = Lab(tmp_path)
    lab.write("user/.codex/AGENTS.md", "# Same\n")
    lab.instructions("base", "# Same\n", targets=["codex"])
    lab.deploy()
    lab.instructions("more", "# More\n", targets=["codex"], tags=["base", "imported"])
    rows = [row for row in lab.plan().changes if row.path.endswith("user/.codex/AGENTS.md")]
    assert [row.update_kind for row in rows] == ["adopt_update"]


def test_an_import_of_a_project_alone_is_followed_by_no_warning(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "cursor_project")
    bring_in(lab)
    assert lab.service().plan(Request()).warnings == ()
    lab.source("modules/instructions/mine/AGENTS.md", "mine\n")
    Shell(lab)("add", "instructions", "local:modules/instructions/mine", "--tags", "bse", "--yes")
    assert any("no module has the tag base" in w for w in lab.service().plan(Request()).warnings)


def test_a_file_that_does_not_fit_is_left_and_the_others_come_in(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "odd_files")
    data = bring_in(lab)
    assert "command:ok" in modules(data) and "prompt:private" in modules(data)
    assert "prompt:bare" in modules(data)  # no command to a pack, which needs front matter
    assert "SKILL.md" in reason(data, "skills/empty")
    assert reason(data, "config.toml") == "it cannot be parsed"


def test_homes_that_variables_name(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.write("elsewhere/codex/AGENTS.md", "# Codex\n")
    lab.write("elsewhere/claude/CLAUDE.md", "# Claude\n")
    places = {"CODEX_HOME": f"{tmp_path}/elsewhere/codex"}
    shell, more = Shell(lab), {**places, "CLAUDE_CONFIG_DIR": f"{tmp_path}/elsewhere/claude"}
    assert len(shell.json("import", "--yes", **more)["data"]["modules"]) == 2
    assert shell.json("plan", **more)["data"]["changes"] == []


def test_only_some_tools_and_only_the_project(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user", "codex_user", "whole_team_project")
    only = bring_in(lab, targets=("codex",), scope="project", dry_run=True)
    assert {row.scope for row in only.modules} == {"project"}
    assert {target for row in only.modules for target in row.targets} == {"codex"}
    refused = Shell(lab).refusal("import", "--from", "emacs")
    assert refused["code"] == "E_TARGET_UNSUPPORTED" and "gemini" in refused["message"]


def test_comments_and_order_of_a_manifest_stay(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user")
    text = (
        "# my pack\nversion: 1\nprofiles:\n  default: {include_tags: [base]}  # all\n"
        "targets:\n  codex:\n    mode: files\n    scope: both\n"
        "modules:\n  # the first\n  - id: prompt:hi\n    type: prompt\n    tags: [base]\n"
        "    source: {local_path: {path: modules/hi.md}}\n"
    )
    lab.source("agentpack.yaml", text)
    lab.source("modules/hi.md", "hi\n")
    lab.deploy()
    bring_in(lab)
    after = lab.repo.joinpath("agentpack.yaml").read_text()
    lines = iter(after.splitlines())
    assert all(line in lines for line in text.splitlines()), after
    document = yaml12.load(after)
    assert document["targets"]["claude_code"]["options"]["write_claude_md"] is True
    assert lab.changes() == []


def test_what_the_pack_writes_already_is_not_imported_again(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "codex_user")
    lab.instructions("base", "# Another text\n")
    data = bring_in(lab)
    assert "instructions:base of the pack goes there" in reason(data, ".codex/AGENTS.md")
    assert "instructions:user" not in modules(data)


def test_switching_a_place_on_must_not_deploy_something_else(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user")
    lab.targets = {"codex": {"mode": "files", "scope": "both", "options": {}}}
    lab.instructions("base", "# Base\n")
    lab.deploy()
    data = bring_in(lab)
    assert reason(data, ".claude/CLAUDE.md") == (
        "instructions:base would be deployed there, too;"
        " set targets.claude_code.options.write_claude_md to true first"
    )
    assert lab.changes() == []


def test_a_kill_in_the_middle_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleet_agentpack.kit.swap import Swap

    lab = furnish(tmp_path, "claude_user")
    steps = 0

    def die(self: Swap, *arguments: object) -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            raise KeyboardInterrupt
        put(self, *arguments)

    put = Swap._put
    monkeypatch.setattr(Swap, "_put", die)
    with pytest.raises(KeyboardInterrupt):
        bring_in(lab)
    assert tree(lab.repo) == {}
    assert bring_in(lab).applied and lab.changes() == []


def test_the_command_line_previews_and_asks_for_yes(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user", "whole_team_project")
    shell = Shell(lab)
    shown = shell("import").stdout
    assert "instructions:user" in shown and "nothing was written" in shown
    assert not lab.repo.joinpath("agentpack.yaml").exists()
    done = shell("import", "--yes").stdout
    assert "Imported" in done and "it changes no file" in done
    assert shell("deploy", "--apply", "--yes").stdout.startswith("Plan: +0 ~0 -0\nNo changes")
    assert json.loads(shell("import", "--json", "--dry-run").stdout)["data"]["reason"] == "dry_run"


def test_a_missing_pack_names_the_import(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user")
    error = Shell(lab).refusal("plan")
    assert error["code"] == "E_CONFIG_MISSING"
    assert "import_config" in error["details"]["hint"] and "import" in error["details"]["hint"]
    assert error["details"]["next_actions"][0] == "import_config"


def test_every_area_of_every_target_can_be_read_back() -> None:
    assert unread_areas() == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"env": {"API_KEY": "${API_KEY}"}}, []),
        ({"env": {"API_KEY": "$API_KEY"}}, []),
        ({"env": {"API_KEY": "<your key>"}}, []),
        ({"env": {"API_KEY": "Zx81qPw0"}}, ["env.API_KEY"]),
        ({"headers": {"Authorization": "Bearer abcdef123456"}}, ["headers.Authorization"]),
        ({"headers": {"Authorization": "Bearer ${input:t}"}}, []),
        ({"args": ["--token", TOKEN]}, ["args.1"]),
        ({"args": ["--api-key", "plainword", "--port", "80801234"]}, ["args.1"]),
        ({"args": ["-e", "API_KEY=Zx81qPw0Zx81"]}, ["args.1"]),
        ({"args": ["-e", "API_KEY", "--header", "Authorization: Bearer ab12cd34ef56"]}, ["args.3"]),
        ({"url": "https://me:s3cr3tpw@host/x"}, ["url"]),
        ({"url": "https://host/x?api_key=ab12cd34"}, ["url"]),
        ({"url": "https://host/x?api_key=${KEY}"}, []),
        ({"allow": ["Bash(curl -H 'Authorization: Bearer ab12cd34ef56')"]}, ["allow.0"]),
        ({"SSL_KEY": "/etc/ssl/private.pem", "authType": "oauth-personal"}, []),
        ({"env": {"EDITOR": "emacs-nox"}, "command": "server"}, []),
        ({"env": {"K": "Zx81qPw0Zx81qPw0Zx81qPw0"}}, ["env.K"]),
        ({"env": {"NODE_OPTIONS": "--max-old-space-size=4096", "V": "v20.11.1"}}, []),
        ({"env": {"URL": "https://example.com/a/b/c1/d2/e3", "DIR": "/opt/a1b2/c3d4/e5f6g7"}}, []),
        ({"model_providers": {"x": {"env_key": "LOOPBACK_KEY"}}}, []),
        ({"bearer_token_env_var": "REMOTE_TOKEN"}, []),
        ({"bearer_token_env_var": TOKEN}, ["bearer_token_env_var"]),
        ({"env_http_headers": {"X-Api-Key": "REMOTE_KEY"}}, []),
    ],
)
def test_secrets_are_found_by_name_and_by_form(data: object, expected: list[str]) -> None:
    assert list(secret_keys(data)) == expected


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a plain sentence about sk- and ghp_ tokens", []),
        ("one\nDB_PASSWORD=hunter2hunter2\n", [2]),
        ("password: required, api_key: string, token = get_token_v2(x)\n", []),
        ('api_key = "your-api-key-1234"\npassword: secret123\n', []),
        ('client_secret: "9f8e7d6c5b4a39281706"\n', [1]),
        (f"use\n{TOKEN}\nor\n-----BEGIN RSA PRIVATE KEY-----\n", [2, 4]),
    ],
)
def test_secrets_in_a_text_are_found_by_line(text: str, lines: list[int]) -> None:
    assert secret_lines(text) == lines


def test_a_profile_of_the_project_leaves_the_users_files_alone(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "codex_user", "whole_team_project")
    bring_in(lab)
    other = tmp_path / "other"
    other.mkdir()
    plan = lab.service(other).plan(Request()).data
    assert plan.changes == []


@pytest.mark.parametrize("answer", [b"y\n", b"n\n"])
def test_init_offers_what_is_there(answer: bytes, tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user")
    with OnTerminal("--project", str(lab.project), "init", **lab.environ) as terminal:
        terminal.wait_for("instead of from the examples?")
        terminal.press(answer)
        assert terminal.end() == 0
    text = lab.repo.joinpath("agentpack.yaml").read_text()
    assert ("instructions:user" in text) is (answer == b"y\n")
    assert ("instructions:base" in text) is (answer == b"n\n")
    assert ("Imported" in terminal.text) is (answer == b"y\n")


def test_init_that_does_not_ask_names_the_import(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "claude_user", "codex_user")
    shell = QuickShell(lab)
    assert "import brings them in" in shell("init", "--yes").stdout
    assert "import brings" not in shell("init", "--yes").stdout  # the pack is there now
    assert "remove" in reason(bring_in(lab, dry_run=True), ".codex/AGENTS.md")
    for name in ("instructions:base", "prompt:draftpr", "command:ap-plan"):
        shell.json("remove", name, "--yes")
    assert "instructions:user" in modules(bring_in(lab)) and lab.changes() == []


def test_on_the_command_line_next_actions_are_commands(tmp_path: Path) -> None:
    lab = furnish(tmp_path, "codex_user")
    shell = QuickShell(lab)
    (action,) = shell.json("init", "--yes")["data"]["next_actions"]
    assert action.endswith("fleet-agentpack import --yes --json")
    lab.repo.joinpath("agentpack.yaml").unlink()
    (action,) = shell.json("import", "--yes")["data"]["next_actions"]
    assert action.endswith("fleet-agentpack deploy --apply --yes --json")
    lab.deploy()
    lab.write("user/.codex/prompts/Draft PR.md", "Draft it.\n")
    lab.source("modules/instructions/imported/user/AGENTS.md", "# Moved on\n")
    (action,) = shell.json("keep", "--yes")["data"]["next_actions"]
    assert action.endswith("fleet-agentpack deploy --apply --yes --json")


def test_init_in_an_empty_home_names_no_import(tmp_path: Path) -> None:
    answer = QuickShell(Lab(tmp_path, git=False)).json("init", "--yes")
    assert "next_actions" not in answer["data"]


def test_instructions_go_to_claude_code_where_the_repo_says_so(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.targets["claude_code"] = {
        "mode": "files",
        "scope": "both",
        "options": {"write_claude_md": True},
    }
    lab.instructions("a", "first\n")
    lab.instructions("b", "second\n")
    lab.write("project/CLAUDE.md", "mine\n")
    with pytest.raises(DeployError, match="not managed"):
        lab.deploy()
    lab.deploy(adopt=True)
    joined = (lab.project / "AGENTS.md").read_text()
    assert "agentpack:module=instructions:a" in joined
    assert (lab.project / "CLAUDE.md").read_text() == joined
    assert (lab.user / ".claude/CLAUDE.md").read_text() == joined
    lab.service().back.uninstall(UninstallRequest())
    assert (lab.project / "CLAUDE.md").read_text() == "mine\n"
