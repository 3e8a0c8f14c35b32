"""Claude Code, Codex and Gemini from npm: connect, their own list shows it, remove, gone."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connect.scripted_model import SAYS, scripted_model
from tests.rig import ALL_TOOLS, Http, eventually

pytestmark = pytest.mark.clients

Run = Callable[..., tuple[int, str, str]]

CODEX = """\
# my codex
model = "x"   # why

[mcp_servers.other]  # not ours
command = "/bin/false"
env = { TOKEN = "hunter2" }
# end
"""
GEMINI = """\
{
  // keep me
  "ui": { "theme": "GitHub" }, // why
  "mcpServers": {
    "other": { "command": "/bin/false" } /* not ours */
  }
}
"""
PROJECT = """\
{
    "mcpServers": {
        "other": {"command": "/bin/false", "args": []}
    },
    "notes": ["Claude Code's own command drops this key"]
}
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A PATH with one client and what it needs, so that nothing else decides the outcome."""

    def use(name: str) -> None:
        program, node = shutil.which(name), shutil.which("node")
        if not program or not node:
            pytest.skip(f"{name} is not on PATH; npm installs it")
        directory = tmp_path / "programs"
        directory.mkdir()
        (directory / name).symlink_to(Path(program).resolve())
        (directory / "node").symlink_to(Path(node).resolve())
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")

    return use


def ask(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_claude_connects_and_forgets(
    home: Path, installed: Callable[[str], None], connect: Run
) -> None:
    installed("claude")
    status, out, err = connect("claude", "--yes")
    assert status == 0, err
    assert "claude mcp add --scope user agentpack -- " in out and "✓" in out
    assert "✔ Connected" in ask("claude", "mcp", "list")
    own = json.loads((home / ".claude.json").read_text())

    assert connect("claude", "--yes")[1].startswith("Claude Code has this entry already")
    status, out, err = connect("claude", "--yes", "--remove")
    assert status == 0 and "claude mcp remove" in out, err
    assert "agentpack" not in ask("claude", "mcp", "list")
    left = json.loads((home / ".claude.json").read_text())
    assert left["mcpServers"] == {} and left["userID"] == own["userID"]
    assert not list(home.rglob("*.bak"))


def test_the_tools_are_in_claudes_first_request_every_time(
    installed: Callable[[str], None], connect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the model within a second, and leaves out servers that have not answered by then."""
    installed("claude")
    assert connect("claude", "--yes")[0] == 0
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    for _ in range(10):
        with scripted_model() as model:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
            assert SAYS in ask("claude", "-p", "hello")
        ours = [name for name in model.tools_offered()[0] if name.startswith("mcp__agentpack__")]
        assert len(ours) == ALL_TOOLS


def test_claude_changes_an_entry_and_keeps_its_variables(
    home: Path, installed: Callable[[str], None], connect: Run
) -> None:
    installed("claude")
    words = ["--scope", "user", "agentpack", "-e", "KEY=v", "--", "/old/fleet-agentpack"]
    ask("claude", "mcp", "add", *words)
    status, out, err = connect("claude", "--yes")
    assert status == 0 and "- command: /old/fleet-agentpack" in out, err
    assert "✔ Connected" in ask("claude", "mcp", "list")
    entry = json.loads((home / ".claude.json").read_text())["mcpServers"]["agentpack"]
    assert entry["env"] == {"KEY": "v"}


def test_claude_in_a_project_keeps_the_rest_of_the_file(
    work: Path, installed: Callable[[str], None], connect: Run
) -> None:
    installed("claude")
    path = put(work / ".mcp.json", PROJECT)
    status, out, err = connect("claude", "--scope", "project", "--yes")
    assert status == 0 and "merged here instead" in out, err
    assert "agentpack: " in ask("claude", "mcp", "list")
    assert json.loads(path.read_text())["notes"] == json.loads(PROJECT)["notes"]
    assert connect("claude", "--scope", "project", "--yes", "--remove")[0] == 0
    assert "agentpack: " not in ask("claude", "mcp", "list")
    assert path.read_text() == PROJECT


def test_codex_lists_and_forgets_and_keeps_comments(
    home: Path, installed: Callable[[str], None], connect: Run
) -> None:
    installed("codex")
    path = put(home / ".codex/config.toml", CODEX)
    status, out, err = connect("codex", "--yes")
    assert status == 0 and "✓" in out and "hunter2" not in out, err
    entry = tomllib.loads(path.read_text())["mcp_servers"]["agentpack"]
    assert path.read_text().startswith(CODEX)
    listed = ask("codex", "mcp", "list")
    assert "agentpack" in listed and entry["command"] in listed
    shown = json.loads(ask("codex", "mcp", "get", "agentpack", "--json").split("\nWARNING")[0])
    assert shown["transport"]["command"] == entry["command"]
    assert connect("codex", "--yes", "--remove")[0] == 0
    assert "agentpack" not in ask("codex", "mcp", "list")
    assert path.read_text() == CODEX


def test_codex_makes_a_new_file_by_its_own_command(
    home: Path, installed: Callable[[str], None], connect: Run
) -> None:
    installed("codex")
    status, out, err = connect("codex", "--yes")
    assert status == 0 and "codex mcp add agentpack -- " in out and "merged" not in out, err
    assert "agentpack" in ask("codex", "mcp", "list")
    assert not list(home.rglob("*.bak"))


def gemini_line() -> str:
    """What Gemini says of the entry; it waits 5 s for a server, which a busy machine may need."""
    for _ in range(4):
        listed = ask("gemini", "mcp", "list").splitlines()
        (line,) = [line for line in listed if "agentpack:" in line]
        if line.endswith(" - Connected"):
            break
    return line


@pytest.mark.parametrize("scope", ["user", "project"])
def test_gemini_connects_and_forgets_and_keeps_comments(
    scope: str, home: Path, work: Path, installed: Callable[[str], None], connect: Run
) -> None:
    installed("gemini")
    put(home / ".gemini/trustedFolders.json", json.dumps({str(work): "TRUST_FOLDER"}))
    path = put((home if scope == "user" else work) / ".gemini/settings.json", GEMINI)
    status, out, err = connect("gemini", "--scope", scope, "--yes")
    assert status == 0 and "gemini mcp add" in out and "✓" in out, err
    assert gemini_line().startswith("✓ agentpack: ")
    assert connect("gemini", "--scope", scope, "--yes", "--remove")[0] == 0
    assert "agentpack:" not in ask("gemini", "mcp", "list")
    assert path.read_text() == GEMINI


def test_options_of_the_server_reach_the_client(
    home: Path, installed: Callable[[str], None], connect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemini's command line has options of its own and must not take ours for them."""
    installed("gemini")
    monkeypatch.setenv("FLEET_AGENTPACK_ONLY", "climpt")
    status, out, err = connect("gemini", "--yes")
    assert status == 0 and "4 tools" in out, err
    entry = json.loads((home / ".gemini/settings.json").read_text())["mcpServers"]["agentpack"]
    assert entry["args"][-2:] == ["--only", "climpt"]


TOKEN = "a-token-for-this-test"
WRITES_ITS_PLACE = "#!/bin/sh\npwd > {}\nexit 1\n"


@pytest.mark.parametrize("client", ["claude", "codex", "gemini"])
def test_terminal_clients_start_a_server_in_the_project(
    client: str,
    home: Path,
    work: Path,
    installed: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which is why `connect` writes no project for them."""
    installed(client)
    place = home / "place"
    program = put(home / "program", WRITES_ITS_PLACE.format(place))
    program.chmod(0o755)
    words = {
        "claude": ["mcp", "add", "--scope", "user", "x", "--", str(program)],
        "codex": ["mcp", "add", "x", "--", str(program)],
        "gemini": ["mcp", "add", "--scope", "user", "x", str(program)],
    }[client]
    (home / ".codex").mkdir()
    put(home / ".gemini/trustedFolders.json", json.dumps({str(work): "TRUST_FOLDER"}))
    ask(client, *words)
    if client == "codex":  # its list starts nothing; a run does, before it asks a model
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        running = subprocess.Popen(
            ["codex", "exec", "--skip-git-repo-check", "hello"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            eventually(place.exists, 60)
        finally:
            running.kill()
            running.wait()
    else:
        subprocess.run([client, "mcp", "list"], capture_output=True, timeout=120)
    eventually(lambda: place.read_text().strip() == str(work))


@pytest.mark.parametrize("client", ["claude", "gemini", "codex"])
def test_clients_reach_a_server_at_an_address_with_a_token(
    client: str,
    home: Path,
    work: Path,
    installed: Callable[[str], None],
    connect: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed(client)
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    put(home / ".gemini/trustedFolders.json", json.dumps({str(work): "TRUST_FOLDER"}))
    with Http(FLEET_AGENTPACK_TOKEN=TOKEN) as server:
        url = f"http://127.0.0.1:{server.port}/mcp"
        status, out, err = connect(client, "--url", url, "--token-env", "MY_TOKEN", "--yes")
        assert status == 0 and f"✓ The server answers: {ALL_TOOLS} tools" in out, err
        listed = ask(client, "mcp", "list")
    assert url in listed
    assert ("MY_TOKEN" if client == "codex" else "Connected") in listed
