"""`fleet-agentpack connect` for every client, on a machine without the clients' programs."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.connect import commands
from fleet_agentpack.connect.client import Machine
from fleet_agentpack.connect.config_file import ConfigFile
from fleet_agentpack.connect.errors import ConnectError
from fleet_agentpack.connect.known_clients import CLIENTS
from fleet_agentpack.kit.keyed_edit import jsonc

Run = Callable[..., tuple[int, str, str]]

PLACES = [
    ("claude", "user", ".claude.json"),
    ("claude", "project", "work/.mcp.json"),
    ("codex", "user", ".codex/config.toml"),
    ("gemini", "user", ".gemini/settings.json"),
    ("gemini", "project", "work/.gemini/settings.json"),
    ("cursor", "user", ".cursor/mcp.json"),
    ("cursor", "project", "work/.cursor/mcp.json"),
    ("vscode", "user", ".config/Code/User/mcp.json"),
    ("vscode", "project", "work/.vscode/mcp.json"),
    ("claude-desktop", "user", ".config/Claude/claude_desktop_config.json"),
]
JSON_BEFORE = """\
{
  // mine
  "TABLE": {
    "other": { "command": "x", "env": { "TOKEN": "hunter2" } } // keep
  }
}
"""
TOML_BEFORE = """\
model = "x" # why

[TABLE.other]
command = "x"
env = { TOKEN = "hunter2" } # keep
"""

pytestmark = pytest.mark.usefixtures("programs")


def before(client: str) -> str:
    text = TOML_BEFORE if client == "codex" else JSON_BEFORE
    return text.replace("TABLE", CLIENTS[client].table)


def entry_in(path: Path, client: str, name: str = "agentpack") -> Any:
    row = CLIENTS[client]
    return row.format.parse(path.read_text()).get(row.table, {}).get(name)


def tree(home: Path) -> dict[str, bytes]:
    return {
        path.relative_to(home).as_posix(): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and path.name != "connect.lock"
    }


@pytest.mark.parametrize(("client", "scope", "place"), PLACES)
def test_an_entry_comes_and_goes_and_nothing_else_changes(
    client: str, scope: str, place: str, home: Path, connect: Run, request: pytest.FixtureRequest
) -> None:
    if place not in (".codex/config.toml", ".cursor/mcp.json"):  # the real server for each format
        request.getfixturevalue("quick_server")
    path = home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before(client))
    path.chmod(0o600)

    status, out, err = connect(client, "--scope", scope, "--yes")
    assert (status, err) == (0, "")
    assert re.search(r"✓ The server starts from this entry: \d+ tools in \d+\.\d s", out)
    assert "hunter2" not in out
    assert int(re.findall(r"(\d+) tools in", out)[0]) <= (CLIENTS[client].tool_limit or 100)
    assert Path(entry_in(path, client)["command"]).is_absolute()
    assert entry_in(path, client, "other")["env"] == {"TOKEN": "hunter2"}
    assert path.stat().st_mode & 0o777 == 0o600
    (backup,) = path.parent.glob(f"{path.name}.*.bak")
    assert backup.read_text() == before(client)
    assert backup.stat().st_mode & 0o777 == 0o600
    assert str(backup) in out

    assert connect(client, "--scope", scope, "--remove", "--yes")[0] == 0
    assert path.read_text() == before(client)


@pytest.mark.parametrize(
    ("words", "source"),
    [
        (["/bin/uvx", "fleet-agentpack"], "fleet-agentpack"),
        (["/bin/uvx", "--from", "/clone", "fleet-agentpack"], "/clone"),
    ],
)
def test_a_start_by_uvx_comes_with_its_price(
    words: list[str], source: str, connect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "by uvx" not in connect("cursor", "--print")[1]
    monkeypatch.setattr(commands, "launch_words", lambda _: [*words])
    said = " ".join(connect("cursor", "--print")[1].split())
    assert "fails without a network" in said and f"/bin/uv tool install {source}," in said


@pytest.mark.parametrize(("client", "scope", "place"), PLACES)
def test_print_shows_the_exact_entry_and_writes_nothing(
    client: str, scope: str, place: str, home: Path, connect: Run
) -> None:
    status, out, err = connect(client, "--scope", scope, "--print", "--name", "pack")
    assert (status, err, tree(home)) == (0, "", {})
    assert f"into {home / place}" in out
    row = CLIENTS[client]
    snippet = re.search(r"^(\{\n.*\n\}|\[mcp_servers.*?)\n\n", out, re.M | re.S)
    assert snippet
    shown = row.format.parse(snippet[1])[row.table]["pack"]
    assert shown["command"].startswith("/") and ("type" in shown) == ("type" in row.fields)
    own = {
        "claude": f"claude mcp add --scope {scope} pack -- ",
        "codex": "codex mcp add pack -- ",
        "gemini": f"gemini mcp add --scope {scope} pack ",
        "vscode": "code --add-mcp " if scope == "user" else "",
    }.get(client, "")
    assert bool(own) == ("\nRun\n" in f"\n{out}") and own in out

    status, out, _ = connect(client, "--scope", scope, "--print", "--remove")
    assert status == 0 and f"elete {row.table}.agentpack in {home / place}" in out
    assert tree(home) == {}


@pytest.mark.usefixtures("quick_server")
def test_the_same_entry_is_not_written_twice(home: Path, connect: Run) -> None:
    connect("cursor", "--yes")
    first = tree(home)
    status, out, _ = connect("cursor")  # needs no confirmation, since nothing is to be done
    assert status == 0 and "has this entry already" in out and "✓" in out
    assert tree(home) == first


@pytest.mark.usefixtures("quick_server")
def test_another_entry_of_the_name_is_shown_changed_and_backed_up(home: Path, connect: Run) -> None:
    path = home / ".cursor/mcp.json"
    path.parent.mkdir()
    old = """{"mcpServers": {
  "agentpack": {
    // pinned
    "url": "https://example.test/mcp",
    "command": "/old/fleet-agentpack", // since May
    "args": ["--read-only"],
    "env": {"CODER_SESSION_TOKEN": "hunter2"}
  }
}}"""
    path.write_text(old)
    status, out, err = connect("cursor")
    assert status == 1 and "--yes" in err and path.read_text() == old
    assert "- command: /old/fleet-agentpack" in out and "- args: --read-only" in out
    assert "- url: https://example.test/mcp" in out and "env: stays as it is" in out

    status, out, _ = connect("cursor", "--yes")
    assert status == 0 and "hunter2" not in out
    entry = entry_in(path, "cursor")
    assert "url" not in entry and entry["env"] == {"CODER_SESSION_TOKEN": "hunter2"}
    assert "// pinned" in path.read_text() and "// since May" in path.read_text()
    (backup,) = path.parent.glob("*.bak")
    assert backup.read_text() == old


def test_without_a_terminal_and_without_yes_nothing_is_written(home: Path, connect: Run) -> None:
    for words in (["codex"], ["vscode", "--scope", "project"]):
        status, out, err = connect(*words)
        assert status == 1 and "nothing was changed" in err and "+ command:" in out
    assert tree(home) == {}


@pytest.mark.parametrize("client", ["cursor", "codex"])
@pytest.mark.parametrize("meanwhile", ["changed", "removed"])
def test_a_file_that_another_program_changed_meanwhile_is_left_alone(
    client: str, meanwhile: str, home: Path, connect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / {"cursor": ".cursor/mcp.json", "codex": ".codex/config.toml"}[client]
    path.parent.mkdir()
    path.write_text(before(client))

    def change_then_agree(*_: object) -> bool:
        path.unlink()
        if meanwhile == "changed":
            path.write_text(before(client).replace("other", "theirs"))
        return True

    monkeypatch.setattr(commands, "confirm", change_then_agree)
    status, _, err = connect(client)
    assert status == 1 and "was changed by another program" in err
    theirs = {path.relative_to(home).as_posix(): before(client).replace("other", "theirs").encode()}
    assert tree(home) == (theirs if meanwhile == "changed" else {})


def test_the_file_must_be_as_the_clients_own_command_left_it(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    read = ConfigFile.read(path, jsonc)
    path.write_text('{"theirs": 1}')
    left = ConfigFile.read(path, jsonc)
    path.write_text('{"theirs": 2}')
    with pytest.raises(ConnectError, match="was changed by another program"):
        read.save('{"ours": 1}', over=left)
    assert path.read_text() == '{"theirs": 2}'
    read.save('{"ours": 1}', over=ConfigFile.read(path, jsonc))
    assert path.read_text() == '{"ours": 1}'


@pytest.mark.parametrize(
    ("client", "place", "text"),
    [
        ("codex", ".codex/config.toml", b"broken = \n"),
        ("cursor", ".cursor/mcp.json", b'{"mcpServers": {'),
        ("cursor", ".cursor/mcp.json", b'{"mcpServers": []}'),
        ("cursor", ".cursor/mcp.json", b'{"mcpServers": {}, "mcpServers": {}}'),
        ("gemini", ".gemini/settings.json", b'{"a": "\xff"}'),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", b"[]"),
    ],
)
@pytest.mark.parametrize("more", [["--yes"], ["--yes", "--remove"]])
def test_a_file_that_cannot_be_edited_is_named_and_left_alone(
    client: str, place: str, text: bytes, more: list[str], home: Path, connect: Run
) -> None:
    path = home / place
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    status, _, err = connect(client, *more)
    if "--remove" in more and b"mcpServers" in text and text.endswith(b"}"):
        assert status == 0  # nothing of ours is in it
    else:
        assert status == 1 and str(path) in err and "by hand" in err
    assert tree(home) == {place: text}


def test_remove_leaves_a_stranger_of_the_same_name(home: Path, connect: Run) -> None:
    path = home / ".cursor/mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"agentpack": {"command": "agentpack", "args": ["mcp"]}}}')
    kept = tree(home)
    status, _, err = connect("cursor", "--remove", "--yes")
    assert status == 1 and "is not fleet-agentpack" in err and "--name" in err
    assert tree(home) == kept


@pytest.mark.usefixtures("quick_server")
def test_remove_of_nothing_says_so_and_where_there_is_one(home: Path, connect: Run) -> None:
    status, out, _ = connect("cursor", "--remove")
    assert status == 0 and "has no 'agentpack'" in out and tree(home) == {}
    connect("cursor", "--scope", "project", "--yes")
    status, out, _ = connect("cursor", "--remove")
    assert status == 0 and "--remove --scope project" in out


@pytest.mark.usefixtures("quick_server")
def test_byte_order_mark_line_ends_and_links_survive(home: Path, connect: Run) -> None:
    real = home / "dotfiles/mcp.json"
    real.parent.mkdir()
    original = "\ufeff" + before("cursor").replace("\n", "\r\n")
    real.write_bytes(original.encode())
    link = home / ".cursor/mcp.json"
    link.parent.mkdir()
    link.symlink_to(real)
    assert connect("cursor", "--yes")[0] == 0
    written = real.read_bytes().decode()
    assert link.is_symlink() and written.startswith("\ufeff{")
    assert "\n" not in written.replace("\r\n", "")
    assert connect("cursor", "--yes", "--remove")[0] == 0
    assert real.read_bytes().decode() == original


def test_a_server_that_does_not_start_is_told_with_what_to_do(home: Path, connect: Run) -> None:
    broken = home / ".config/fleet-agentpack/config.toml"
    path = home / ".cursor/mcp.json"
    connect("cursor", "--yes")
    entry = entry_in(path, "cursor")
    entry["env"] = {"FLEET_AGENTPACK_CONFIG": str(broken)}
    path.write_text(json.dumps({"mcpServers": {"agentpack": entry}}))
    status, _, err = connect("cursor", "--yes")
    assert status == 1 and "does not start from it" in err and str(broken) in err
    assert "connect cursor --remove" in err


def test_cursor_gets_at_most_forty_tools_and_is_told_why(
    connect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, _ = connect("cursor", "--print")
    assert '"--only",' in out and '"agentpack,fleet,enact,climpt"' in out
    assert "Cursor takes at most 40 tools" in out and "--all" in out
    _, out, _ = connect("cursor", "--print", "--all")
    assert "--only" not in out and "at most" not in out
    _, out, _ = connect("codex", "--print")
    assert "--only" not in out
    monkeypatch.setenv("FLEET_AGENTPACK_ONLY", "forge,climpt")
    _, out, _ = connect("cursor", "--print")
    assert '"forge,climpt"' in out and "at most" not in out


def test_what_fits_without_the_tools_that_write_is_served_whole(connect: Run) -> None:
    status, out, _ = connect("cursor", "--read-only", "--print")
    assert status == 0
    assert "--read-only" in out
    assert "--only" not in out


def test_the_servers_options_count_after_the_command_too(connect: Run) -> None:
    status, out, _ = connect("codex", "--only", "fleet,climpt", "--print")
    assert status == 0
    assert '"--only", "fleet,climpt"' in out
    assert connect("codex", "--only", "flet", "--print")[0] == 2


def test_asking_is_offered_and_explained(connect: Run) -> None:
    _, plain, _ = connect("claude", "--print")
    assert "With --ask risky, Claude Code also asks you" in plain and '"--ask"' not in plain
    _, asked, _ = connect("claude", "--print", "--ask", "risky")
    assert "You are asked before files of yours are deleted" in asked
    assert "Where Claude Code runs without you, it answers no for you." in asked
    assert re.search(r'"--ask",\s*"risky"', asked)
    _, blind, _ = connect("gemini", "--print", "--ask", "require")
    assert "Gemini CLI does not show such questions, so the server refuses all of it." in blind
    assert "--ask" not in connect("cursor", "--print")[1]


@pytest.mark.parametrize("name", ["", "-x", "a b", "a.b", "é", "x" * 65, "../x", "a\n"])
def test_a_name_that_a_client_would_refuse_is_refused(name: str, connect: Run) -> None:
    status, _, err = connect("codex", f"--name={name}", "--yes")
    assert status == 1 and "not a usable name" in err


@pytest.mark.parametrize("client", ["codex", "claude-desktop"])
def test_a_scope_that_the_client_lacks_is_refused(client: str, connect: Run, home: Path) -> None:
    status, _, err = connect(client, "--scope", "project", "--yes")
    assert status == 1 and "has no project scope" in err and tree(home) == {}


@pytest.mark.parametrize(
    ("variable", "client", "place"),
    [
        ("CODEX_HOME", "codex", "else/config.toml"),
        ("CLAUDE_CONFIG_DIR", "claude", "else/.claude.json"),
        ("GEMINI_CLI_HOME", "gemini", "else/.gemini/settings.json"),
        ("XDG_CONFIG_HOME", "vscode", "else/Code/User/mcp.json"),
    ],
)
def test_a_client_that_was_moved_is_found(
    variable: str,
    client: str,
    place: str,
    home: Path,
    connect: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, str(home / "else"))
    _, out, _ = connect(client, "--print")
    assert str(home / place) in out


def test_the_places_of_other_systems() -> None:
    mac = Machine(Path("/Users/u"), Path("/p"), {}, "darwin")
    template = CLIENTS["claude-desktop"].files["user"]
    support = "/Users/u/Library/Application Support"
    assert str(mac.path(template)) == f"{support}/Claude/claude_desktop_config.json"
    windows = Machine(Path("/U"), Path("/p"), {"APPDATA": "/U/roaming"}, "win32")
    assert str(windows.path(template)) == "/U/roaming/Claude/claude_desktop_config.json"


@pytest.mark.parametrize(("answer", "written"), [(b"y\n", True), (b"\n", False), (b"\x04", False)])
def test_on_a_terminal_it_asks(answer: bytes, written: bool, home: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_agentpack", "connect", "codex"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    os.write(ours, answer)
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert b"Go ahead? [y/N]" in out
    assert process.returncode == (0 if written else 1), out
    config = home / ".codex/config.toml"
    assert config.exists() == written
    if written:
        assert "agentpack" in tomllib.loads(config.read_text())["mcp_servers"]
