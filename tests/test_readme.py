"""The README tells the truth: its commands work, its tables match the code, its links lead on."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.rig import ALL_TOOLS, ROOT, SERVE, WITHOUT_FORGE, Stdio, child_environment, run

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SESSION = [
    shlex.split(line.removeprefix("$ "), comments=True)
    for kind, text in BLOCKS
    if kind == "console"
    for line in text.splitlines()
    if line.startswith("$ ")
]
VARIABLE = (
    r"\b(?:(?:FLEET_AGENTPACK|CODER|AGENTPACK|CODEX|ENACT|FRACTARY|CLAUDE_CONFIG|GEMINI_CLI)_[A-Z_]+"
    r"|NO_COLOR|FORCE_COLOR)\b"
)
# Not the user's to set: given to tools that run, taken from agents that run, or for tests.
INTERNAL = {
    "ENACT_EXECUTION_ID",
    "FLEET_AGENTPACK_DEPTH",
    "FLEET_AGENTPACK_FRONT",
    "FLEET_AGENTPACK_TASK",
}


def marked(name: str) -> str:
    """The command under a marker."""
    found = re.search(rf"<!-- {name} command -->\n```sh\n(.*?)\n```", README, re.DOTALL)
    assert found
    return found[1]


def test_the_session_works_from_the_first_to_the_last_command(work: Path) -> None:
    assert len(SESSION) >= 8
    for words in SESSION:
        assert words[0] == "fleet-agentpack"
        assert run(*words[1:], status=0).stdout.strip()


def test_the_entries_for_clients_start_the_server() -> None:
    entries = []
    for kind, text in BLOCKS:
        if kind == "json":
            data = json.loads(text)
            entries += (data.get("mcpServers") or data["servers"]).values()
        elif kind == "toml":
            entries += tomllib.loads(text).get("mcp_servers", {}).values()
    assert len(entries) == 4
    for entry in entries:
        assert entry["command"] == "/path/to/fleet-agentpack/.venv/bin/fleet-agentpack"
    for options in {tuple(entry.get("args", ())) for entry in entries}:
        with Stdio([*SERVE, *options]) as server:
            assert server.hello()["serverInfo"]["name"] == "agentpack"
            assert len(server.ask("tools/list")["result"]["tools"]) in (WITHOUT_FORGE, ALL_TOOLS)


def test_the_checkouts_own_mcp_json_is_an_entry_of_that_kind() -> None:
    ((name, entry),) = json.loads((ROOT / ".mcp.json").read_text())["mcpServers"].items()
    assert name != "agentpack"  # what `connect` writes: in the clone, both can be there
    assert entry["command"] == "uvx"
    assert entry["args"] == ["--from", ".", "fleet-agentpack"]


def test_the_tools_table_is_the_one_that_the_code_makes() -> None:
    path = ROOT / "docs" / "readme_tables.py"
    spec = importlib.util.spec_from_file_location("readme_tables", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.filled(README) == README, "run: python docs/readme_tables.py"


def test_every_variable_is_documented() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "fleet_agentpack").rglob("*.py")
    )
    used = set(re.findall(rf'"({VARIABLE})"', code)) - INTERNAL
    documented = set(re.findall(VARIABLE, README.split("<!-- variables -->")[1]))
    assert used <= documented
    assert documented <= used | {"FRACTARY_TOKEN"}


def test_every_setting_is_documented() -> None:
    from fleet_agentpack.config import ConfigFile
    from fleet_agentpack.kit.shapes import known_keys

    section = README.split("## Configuration")[1].split("## ")[0]
    assert [name for name in known_keys(ConfigFile) if name not in section] == []


def test_every_server_option_is_documented() -> None:
    helped = run("--help").stdout
    options = set(re.findall(r"--[a-z-]+", helped)) - {"--help", "--version"}
    assert [option for option in options if option not in README] == []


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("https://"):
            assert (ROOT / target).exists(), target


def test_fastmcp_inspects_as_the_readme_says() -> None:
    (line,) = [line for line in README.splitlines() if line.startswith(".venv/bin/fastmcp inspect")]
    words = shlex.split(line)[2:]
    done = subprocess.run(
        [sys.executable, "-m", "fastmcp.cli", "inspect", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=child_environment(),
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "agentpack" in done.stdout


def test_unpublished_commands_are_marked() -> None:
    assert len(re.findall(r"uvx fleet-agentpack", README)) == 1
    assert "Once published, `uvx fleet-agentpack`" in README


def test_the_run_command_shows_that_it_is_working() -> None:
    """pip tells of every package while it installs, unless it is told not to."""
    words = marked("run").split()
    assert "install" in words and not {"-q", "-qq", "--quiet", ">/dev/null"} & set(words)


@pytest.mark.slow
def test_the_run_command_works_on_a_clean_clone_in_an_empty_home(
    home: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", marked("run")],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "nothing is left behind" in done.stdout


@pytest.mark.slow
def test_uvx_serves_a_checkout_from_anywhere_and_never_a_stale_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("uvx"):
        pytest.skip("uv is not installed")
    # The machine's own certificates, by uv's name for them of today and of before.
    monkeypatch.setenv("UV_SYSTEM_CERTS", "true")
    monkeypatch.setenv("UV_NATIVE_TLS", "true")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    command = ["uvx", "--from", str(clone), "fleet-agentpack", "--version"]
    first = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert first.returncode == 0, first.stderr
    version = clone / "fleet_agentpack" / "version.py"
    version.write_text(version.read_text().replace('"0.', '"9.'))
    second = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert second.stdout.startswith("fleet-agentpack 9.")
