"""The commands `tool` and `mcp`, run as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet_agentpack.cli import run
from tests.enact.kit import add_tool, use_directory


@pytest.fixture
def tools(home: Path) -> Path:
    folder = home / "registry"
    add_tool(folder, "alice/hello", description="Says hello", scripts={"run": "cat hello.txt"})
    add_tool(folder, "alice/echo", scripts={"run": "printf %s-%s {{text}} {{n}}"})
    use_directory(home, folder, execution={"default": "local"})
    return folder


def fleet(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = run(words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_session_at_the_command_line(
    capsys: pytest.CaptureFixture[str], tools: Path, work: Path
) -> None:
    status, out, _ = fleet(capsys, "tool", "search", "says", "hello")
    assert status == 0 and "alice/hello  1.0.0    Says hello" in out
    status, out, _ = fleet(capsys, "tool", "learn", "alice/hello")
    assert "## Calling alice/hello" in out
    status, out, err = fleet(capsys, "tool", "install", "alice/hello")
    assert (status, out) == (0, "✓ Installed alice/hello@1.0.0\n")
    assert "not attested" in err
    status, out, _ = fleet(capsys, "tool", "list")
    assert out.splitlines()[1].split() == ["alice/hello", "1.0.0", "alice__hello"]
    status, out, _ = fleet(capsys, "tool", "run", "alice/hello")
    assert out == "hello from alice/hello\n"
    status, out, _ = fleet(
        capsys, "tool", "run", "alice/echo", "--args", '{"text": "a"}', "--input", 'n="7"'
    )
    assert (status, out) == (0, "a-7\n")
    status, out, _ = fleet(capsys, "tool", "uninstall", "alice/hello")
    assert out == "✓ Uninstalled alice/hello@1.0.0\n"
    assert fleet(capsys, "tool", "list")[1] == "Nothing is installed.\n"


def test_advice_is_for_a_person_and_not_for_an_agent(
    capsys: pytest.CaptureFixture[str], work: Path, home: Path
) -> None:
    status, out, err = fleet(capsys, "tool", "learn", "alice/nothing")
    assert (status, out) == (1, "")
    assert "fleet-agentpack tool search" in err
    assert f"set registry.url in {home}" in err
    assert "enact__" not in err and "ask the user" not in err


def test_toolsets_at_the_command_line(capsys: pytest.CaptureFixture[str], tools: Path) -> None:
    assert fleet(capsys, "mcp", "toolsets")[1] == "There are no toolsets.\n"
    for name in ("alice/hello", "alice/echo"):
        fleet(capsys, "tool", "install", name)
    assert fleet(capsys, "mcp", "toolset", "create", "both")[1] == "✓ Created both with 2 tools\n"
    fleet(capsys, "mcp", "toolset", "remove", "both", "alice/echo")
    fleet(capsys, "mcp", "use", "both")
    status, out, _ = fleet(capsys, "mcp", "toolsets", "--json")
    assert json.loads(out) == [{"name": "both", "tools": ["alice/hello"], "isActive": True}]
    assert "→ both" in fleet(capsys, "mcp", "toolsets")[1]
    fleet(capsys, "mcp", "toolset", "add", "both", "alice/echo")
    assert json.loads(fleet(capsys, "mcp", "use", "--all", "--json")[1])["activeToolset"] is None
    assert fleet(capsys, "mcp", "toolset", "delete", "both")[1] == "✓ Deleted both\n"
    status, _, err = fleet(capsys, "mcp", "use", "both")
    assert status == 1 and "there is no toolset both" in err
    with pytest.raises(SystemExit):
        run(["mcp", "use"])


def test_json_carries_results_and_errors(capsys: pytest.CaptureFixture[str], tools: Path) -> None:
    status, out, err = fleet(capsys, "tool", "install", "alice/hello", "--json")
    assert json.loads(out)["message"] == "Installed alice/hello@1.0.0"
    assert err == ""
    status, out, _ = fleet(capsys, "tool", "run", "alice/hello", "--json")
    assert list(json.loads(out)) == ["output", "exit_code", "duration_ms", "provider"]
    status, out, _ = fleet(capsys, "tool", "run", "alice/nothing", "--json")
    assert status == 1
    assert json.loads(out)["error"]["code"] == "TOOL_NOT_FOUND"
    status, _, err = fleet(capsys, "tool", "run", "../x")
    assert status == 1 and "not a tool's name" in err and "Traceback" not in err
    for words in (("--args", "{"), ("--args", "[]"), ("--input", "x")):
        status, _, err = fleet(capsys, "tool", "run", "alice/hello", *words)
        assert status == 1 and words[0] in err


def test_a_project_at_the_command_line(
    capsys: pytest.CaptureFixture[str], tools: Path, work: Path
) -> None:
    fleet(capsys, "tool", "install", "alice/hello", "--project")
    assert "alice/hello" in fleet(capsys, "tool", "list", "--project")[1]
    assert fleet(capsys, "tool", "list")[1] == "Nothing is installed.\n"
    out = fleet(capsys, "tool", "install", "--project")[1]
    assert out == "✓ Installed alice/hello@1.0.0\n"
    assert fleet(capsys, "tool", "install")[0] == 1
    fleet(capsys, "tool", "uninstall", "alice/hello", "--project")
    assert json.loads((work / ".enact/tools.json").read_text()) == {"tools": {}}


def test_what_a_registry_says_cannot_play_with_the_terminal(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    folder = home / "registry"
    add_tool(folder, "a/b", description="red \x1b[31m alert\nsecond line", command="true")
    use_directory(home, folder)
    out = fleet(capsys, "tool", "search", "red")[1]
    assert "\x1b" not in out and len(out.splitlines()) == 2
