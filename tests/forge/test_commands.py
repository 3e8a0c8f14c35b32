"""The command line, from an empty directory to an installed plugin."""

from __future__ import annotations

import argparse
import json
import stat
import subprocess
from pathlib import Path

import pytest

from fleet_agentpack.forge import commands
from fleet_agentpack.forge.errors import COMMANDS
from tests.forge import tree
from tests.forge.conftest import Run, answer
from tests.forge.registry import Site


def test_the_command_line_starts_as_a_process(command: list[str], work: Path) -> None:
    tree.write(work, {".fractary/agents/one.yaml": tree.agent("one")})
    done = subprocess.run(
        [*command, "forge", "agent-list", "--json"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["name"] for row in answer(done)["agents"]] == ["one"]


def test_the_command_line_does_not_load_the_server(command: list[str]) -> None:
    code = (
        "import sys; from fleet_agentpack import cli; cli.run(['forge', 'agent-list']); "
        "sys.exit(any(name in sys.modules for name in ('fastmcp', 'mcp', 'httpx', 'pydantic')))"
    )
    done = subprocess.run([command[0], "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_from_nothing_to_a_valid_agent(run: Run, work: Path) -> None:
    run("init")
    assert json.loads((work / ".fractary/config.json").read_text())["registries"] == []
    run("init", status=1)
    run("tool-create", "count-lines", "--description", "Counts lines", "--command", "wc -l")
    run("agent-create", "notes", "--description", "Writes notes", "--tool", "count-lines")
    for kind, name in (("tool", "count-lines"), ("agent", "notes")):
        verdict = answer(run(f"{kind}-validate", "--name", name, "--strict", "--json"))
        assert verdict["valid"] is True
        assert verdict["errors"] == []
    refused = run("agent-create", "notes", "--description", "Again", status=1)
    assert "already exists" in refused.stderr
    missing = answer(
        run("agent-create", "x", "--description", "d", "--tool", "no", "--json", status=1)
    )
    assert missing["code"] == "VALIDATION_ERROR"
    assert not (work / ".fractary/agents/x").exists()
    run("agent-create", "../evil", "--description", "d", status=1)
    listing = answer(run("agent-list", "--json"))
    assert [row["name"] for row in listing["agents"]] == ["notes"]


@pytest.mark.parametrize("form", ["md", "yaml"])
def test_odd_descriptions_survive_creation(run: Run, form: str) -> None:
    odd = "yes: 'quoted' # not a comment\n--- and 1.0"
    run("agent-create", "odd", "--description", odd, "--format", form)
    assert answer(run("agent-info", "odd", "--json"))["description"] == odd
    run("agent-validate", "--name", "odd", "--strict")


def test_a_plugin_from_registry_to_removal(run: Run, site: Site, work: Path) -> None:
    parts = {"agents/worker.yaml": tree.agent("worker")}
    entry = site.put_plugin(tree.plugin_manifest("@acme/worker", "1.0.0"), parts)
    url = site.put_registry(entry)
    run("registry", "add", "shop", url, "--priority", "3")
    run("registry", "add", "shop", url, status=1)
    assert "shop" in run("registry", "list").stdout
    assert "@acme/worker" in run("search", "worker").stdout
    run("install", "@acme/worker", "--scope", "local")
    assert answer(run("info", "@acme/worker", "--json"))["components"]["agents"] == ["worker"]
    assert answer(run("list", "--json"))["plugins"][0]["scope"] == "local"
    assert "worker" in run("agent-list").stdout
    run("lock")
    run("lock", "--check")
    newer = site.put_plugin(tree.plugin_manifest("@acme/worker", "1.1.0"), parts)
    site.put_registry(newer)
    run("cache", "clear")
    assert "1.0.0 → 1.1.0" in run("update", "--dry-run").stdout
    run("update")
    assert answer(run("list", "--json"))["plugins"][0]["version"] == "1.1.0"
    run("uninstall", "@acme/worker")
    assert answer(run("list", "--json"))["total"] == 0
    run("registry", "remove", "shop")
    run("registry", "remove", "shop", status=1)
    assert json.loads((work / ".fractary/config.json").read_text())["registries"] == []


def test_forks_from_copy_to_merge(run: Run, home: Path, work: Path) -> None:
    tree.build(work, home)
    run("fork", "create", "base-triage@1.0.0", "ours")
    assert "ours" in run("fork", "list").stdout
    assert "+++ ours@1.0.0" in run("fork", "diff", "ours").stdout
    assert answer(run("fork", "check", "ours", "--json"))["updates"][0]["breakingChanges"] is True
    path = work / ".fractary/agents/ours/agent.yaml"
    path.write_text(path.read_text().replace("Base triage", "Mine"))
    before = path.read_bytes()
    conflict = answer(run("merge", "ours", "--json", status=1))
    assert conflict["code"] == "CONFLICT_ERROR"
    assert path.read_bytes() == before
    run("merge", "ours", "--ours", "--dry-run")
    assert path.read_bytes() == before
    run("merge", "ours", "--theirs")
    assert answer(run("fork", "info", "ours", "--json"))["hasUpstreamUpdate"] is False
    assert "is up to date" in run("merge", "ours").stdout


def test_login_keeps_the_token_where_only_its_owner_can_read_it(run: Run, home: Path) -> None:
    backend = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    done = run("login", "shop", "--token-stdin", stdin="s3cret-token\n", **backend)
    assert "s3cret" not in done.stdout + done.stderr
    path = home / ".fractary/auth/credentials.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text())["registries"]["shop"]["token"] == "s3cret-token"
    run("logout", "shop", **backend)
    assert "s3cret" not in path.read_text()
    assert "not logged in" in run("logout", "shop", **backend).stdout
    run("login", "shop", "--token-stdin", stdin=" \n", status=1)
    run("login", "shop", "--token-stdin", stdin="x" * 10_001, status=1)
    assert "not logged in" in run("logout", "shop", **backend).stdout
    run("login", "shop", status=1)


def test_errors_go_to_stderr_with_what_to_do_next(run: Run) -> None:
    done = run("agent-info", "nobody", status=1)
    assert done.stdout == ""
    assert "No agent 'nobody'" in done.stderr
    assert "fleet-agentpack forge agent-list" in done.stderr
    run("agent-list", "--limit", "0", status=2)
    run("config", "get", "nothing", status=1)
    assert run("config", "get", "cache.ttl").stdout == "3600\n"


def test_terminal_escapes_in_definitions_are_made_visible(run: Run, work: Path) -> None:
    text = tree.agent("evil").replace("Does evil", '"\\e[31mred\\a"')
    tree.write(work, {".fractary/agents/evil.yaml": text})
    for arguments in (("agent-list",), ("agent-info", "evil")):
        assert "\x1b" not in run(*arguments).stdout
        assert "\x07" not in run(*arguments).stdout


def test_a_person_may_validate_any_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.yaml"
    path.write_text(tree.agent("elsewhere"))
    assert "valid" in run("agent-validate", str(path)).stdout
    path.write_text("name: elsewhere\n")
    assert "error  version: required" in run("agent-validate", str(path), status=1).stdout


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://x.test/r.json", "must start with"),
        ("http://x.example.test/r.json", "needs https"),
        ("https://u:p@x.example.test/r.json", "password"),
        ("not a url", "no address of a registry"),
    ],
)
def test_unfit_registry_urls_are_refused(run: Run, work: Path, url: str, message: str) -> None:
    assert message in run("registry", "add", "x", url, status=1).stderr
    assert not (work / ".fractary/config.json").exists()


def test_a_broken_configuration_is_left_alone(run: Run, work: Path) -> None:
    tree.write(work, {".fractary/config.json": "{broken"})
    for arguments in (("registry", "add", "x", "https://x.test/r.json"), ("init",)):
        run(*arguments, status=1)
    assert (work / ".fractary/config.json").read_text() == "{broken"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["agent-info", "nobody"], "forge agent-list"),
        (["tool-validate", "gone.yaml"], "forge tool-list"),
        (["info", "@no/body"], "forge info PLUGIN --remote"),
        (["info", "@no/body"], "forge registry list"),
        (["fork", "info", "nobody"], "forge fork list"),
        (["config", "get", " "], "forge config show"),
    ],
)
def test_people_are_told_commands_and_programs_tools(
    run: Run, work: Path, arguments: list[str], command: str
) -> None:
    told = run(*arguments, status=1).stderr
    assert f"fleet-agentpack {command}" in told
    assert "fractary_forge_" not in told
    assert "fractary_forge_" in run(*arguments, "--json", status=1).stdout


@pytest.mark.parametrize("pattern", COMMANDS.values(), ids=COMMANDS)
def test_the_command_line_of_a_tool_exists(pattern: str) -> None:
    parser = argparse.ArgumentParser()
    commands.add(parser, "forge")
    words = pattern.split()[1:]
    assert parser.parse_args(words).handler
