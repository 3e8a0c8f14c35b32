"""A client's own command is used where it is installed, and never trusted with the rest."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleet_agentpack.connect import connection

Run = Callable[..., tuple[int, str, str]]
Fake = Callable[[str, str], Path]

# Writes the entry as VS Code does: into the user's file, after it has returned and been looked for.
CODE = """
import json, os, subprocess, sys, pathlib
assert sys.argv[1] == "--add-mcp"
entry = json.loads(sys.argv[2])
path = pathlib.Path(os.environ["XDG_CONFIG_HOME"], "Code/User/mcp.json")
value = {"servers": {entry.pop("name"): entry}, "inputs": []}
parent = os.getpid()
if os.fork() == 0:
    os.setsid()
    for stream in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    import time
    while os.getppid() == parent or not pathlib.Path.home().joinpath("looked").exists():
        time.sleep(0.01)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=4))
"""

# Appends or cuts a table at the end of the file, like Codex; drops the comments if told to.
CODEX = """
import json, os, pathlib, re, sys
path = pathlib.Path(os.environ["HOME"], ".codex/config.toml")
path.parent.mkdir(exist_ok=True)
text = path.read_text() if path.exists() else ""
if FORGETFUL:
    text = re.sub(r" *#.*", "", text)
words = sys.argv[1:]
path.with_name("called").write_text(json.dumps(words))
if words[:2] == ["mcp", "add"]:
    name, _, command, *args = words[2:]
    text += f"[mcp_servers.{name}]\\ncommand = {json.dumps(command)}\\nargs = {json.dumps(args)}\\n"
else:
    text = text[: text.index(f"[mcp_servers.{words[2]}]")]
path.write_text(text)
"""

pytestmark = pytest.mark.usefixtures("quick_server")
BEFORE = 'model = "x" # why\n# end\n'


def codex(forgetful: bool) -> str:
    return f"FORGETFUL = {forgetful}\n{CODEX}"


def test_the_clients_own_command_does_the_work(home: Path, fake: Fake, connect: Run) -> None:
    program = fake("codex", codex(forgetful=False))
    config = home / ".codex/config.toml"
    config.parent.mkdir()
    config.write_text(BEFORE)
    status, out, _ = connect("codex", "--yes")
    assert status == 0 and f"by {program} mcp add agentpack -- " in out and "✓" in out
    called = json.loads((home / ".codex/called").read_text())
    assert called[:4] == ["mcp", "add", "agentpack", "--"]
    assert config.read_text().startswith(BEFORE + "[mcp_servers.agentpack]")

    assert connect("codex", "--yes", "--remove")[0] == 0
    assert json.loads((home / ".codex/called").read_text()) == ["mcp", "remove", "agentpack"]
    assert config.read_text() == BEFORE
    assert not list(home.rglob("*.bak"))


def test_a_command_that_forgets_comments_is_overruled(home: Path, fake: Fake, connect: Run) -> None:
    fake("codex", codex(forgetful=True))
    config = home / ".codex/config.toml"
    config.parent.mkdir()
    config.write_text(BEFORE)
    status, out, _ = connect("codex", "--yes")
    assert status == 0 and "merged here instead" in out and "✓" in out
    assert config.read_text().startswith(BEFORE + "\n[mcp_servers.agentpack]")
    (backup,) = config.parent.glob("*.bak")
    assert backup.read_text() == BEFORE

    status, out, _ = connect("codex", "--yes", "--remove")
    assert status == 0 and config.read_text() == BEFORE


def test_a_command_that_forgets_settings_is_overruled(work: Path, fake: Fake, connect: Run) -> None:
    fake(
        "claude",
        "import json, sys\n"
        "command, *args = sys.argv[sys.argv.index('--') + 1:]\n"
        "entry = {'type': 'stdio', 'command': command, 'args': args, 'env': {}}\n"
        "open('.mcp.json', 'w').write(json.dumps({'mcpServers': {'agentpack': entry}}))",
    )
    (work / ".mcp.json").write_text('{"mcpServers": {}, "z": 1}')
    assert connect("claude", "--scope", "project", "--yes")[0] == 0
    after = json.loads((work / ".mcp.json").read_text())
    assert after["z"] == 1 and "agentpack" in after["mcpServers"]


def test_a_command_that_fails_is_quoted_and_nothing_changes(
    home: Path, fake: Fake, connect: Run
) -> None:
    fake(
        "gemini",
        "import sys; sys.exit('\\x1b[31msettings.json: no trailing commas, please\\x1b[0m')",
    )
    settings = home / ".gemini/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"a": 1,}')
    status, _, err = connect("gemini", "--yes")
    assert status == 1 and "no trailing commas, please" in err and "--print" in err
    assert "\x1b" not in err
    assert settings.read_text() == '{"a": 1,}'


def test_a_command_that_does_nothing_is_not_believed(home: Path, fake: Fake, connect: Run) -> None:
    fake("claude", "")
    (home / ".claude.json").write_text('{"numStartups": 7}')
    status, _, err = connect("claude", "--yes")
    assert status == 1 and "reported success" in err and str(home / ".claude.json") in err
    assert (home / ".claude.json").read_text() == '{"numStartups": 7}'


def test_an_entry_that_differs_is_merged_so_that_the_users_fields_stay(
    home: Path, fake: Fake, connect: Run
) -> None:
    fake("codex", "import sys; sys.exit('must not be called')")
    config = home / ".codex/config.toml"
    config.parent.mkdir()
    config.write_text(
        '[mcp_servers.agentpack]\ncommand = "/old"\nstartup_timeout_sec = 30 # slow\n'
    )
    status, out, _ = connect("codex", "--yes")
    assert status == 0 and "startup_timeout_sec: stays as it is" in out
    assert "startup_timeout_sec = 30 # slow" in config.read_text()


def test_vscode_answers_late(
    home: Path, fake: Fake, connect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        (home / "looked").touch()
        time.sleep(seconds)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(connection, "time", clock)
    fake("code", CODE)
    status, out, _ = connect("vscode", "--yes")
    assert status == 0 and "--add-mcp" in out and "merged" not in out
    written = json.loads((home / ".config/Code/User/mcp.json").read_text())
    assert written["inputs"] == [] and "agentpack" in written["servers"]


@pytest.mark.parametrize("scope", ["user", "project"])
def test_print_needs_no_program_and_runs_none(
    scope: str, fake: Fake, connect: Run, home: Path
) -> None:
    fake("claude", "import pathlib; pathlib.Path.home().joinpath('called').touch()")
    status, out, _ = connect("claude", "--print", "--scope", scope)
    assert status == 0 and f"claude mcp add --scope {scope} agentpack -- /" in out
    assert not (home / "called").exists()
