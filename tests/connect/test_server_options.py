"""What `connect` writes into an entry: the project in the client's words, tools, an address."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack import domains
from fleet_agentpack.connect.client import Entry
from fleet_agentpack.connect.errors import ConnectError
from fleet_agentpack.connect.known_clients import CLIENTS
from fleet_agentpack.connect.remote import address
from fleet_agentpack.wire.provider import EXTRA
from tests.connect.test_connect import PLACES, entry_in
from tests.rig import Http, Stdio

Run = Callable[..., tuple[int, str, str]]
FOLDER = "${workspaceFolder}"
TOKEN = "a-token-for-this-test"

pytestmark = pytest.mark.usefixtures("programs")


@pytest.mark.parametrize(("client", "scope", "place"), PLACES)
def test_a_server_starts_in_the_project_by_the_client_s_own_words(
    client: str, scope: str, place: str, home: Path, work: Path, connect: Run
) -> None:
    """As the clients start it: in the home or in the folder, with their variable filled in."""
    status, out, err = connect(client, "--scope", scope, "--yes")
    assert (status, err) == (0, "")
    row = CLIENTS[client]
    entry = Entry.of(entry_in(home / place, client))
    assert entry
    assert (FOLDER in entry.args) == (client in ("cursor", "vscode"))
    if client == "claude-desktop":
        assert "opens no folder, so there is no project; --project DIR" in " ".join(out.split())
    start = home if row.workspace else work if row.has_folder else Path("/")
    expected = f"The project is {work}."
    if not row.has_folder:
        expected = "There is no project: / is the root directory;"
    with Stdio(entry.filled(row.workspace, work).argv, cwd=start) as server:
        assert server.hello()["instructions"].splitlines()[-1].startswith(expected)


@pytest.mark.usefixtures("quick_server")
def test_a_project_that_is_named_is_written_as_it_is(home: Path, work: Path, connect: Run) -> None:
    assert connect("claude-desktop", "--project", ".", "--yes")[0] == 0
    written = entry_in(home / ".config/Claude/claude_desktop_config.json", "claude-desktop")
    assert written["args"] == ["--project", str(work)]
    assert connect("cursor", "--project", "~", "--only", "climpt", "--yes")[0] == 0
    assert entry_in(home / ".cursor/mcp.json", "cursor")["args"] == [
        *("--only", "climpt", "--project", str(home))
    ]


@pytest.mark.usefixtures("quick_server")
def test_the_choice_of_tools_becomes_part_of_the_entry(home: Path, connect: Run) -> None:
    words = ["--tools", "plan,diff", "--without", "diff", "--prefix", "our", "--no-extras"]
    assert connect("codex", *words, "--read-only", "--ask", "risky", "--yes")[0] == 0
    assert entry_in(home / ".codex/config.toml", "codex")["args"] == [
        *("--tools", "plan,diff", "--without", "diff", "--read-only"),
        *("--no-extras", "--prefix", "our_", "--ask", "risky"),
    ]
    status, _, err = connect("codex", "--tools", "plam", "--yes")
    assert status == 2 and "there is no tool 'plam'" in err and "did you mean plan?" in err


@pytest.mark.usefixtures("quick_server")
def test_a_choice_that_fits_a_client_needs_no_fewer_domains(home: Path, connect: Run) -> None:
    rooms = [room.tools.items() for room in domains.select()]
    extras = [name for tools in rooms for name, tool in tools if EXTRA in tool.tags]
    without = ",".join(["reload", "enact__run", "describe", *extras])
    status, out, _ = connect("cursor", "--without", without, "--yes")
    assert status == 0 and "takes at most" not in out
    assert "--only" not in entry_in(home / ".cursor/mcp.json", "cursor")["args"]


# A server at an address

FORMS: dict[str, dict[str, Any]] = {
    "claude": {"type": "http", "url": "URL", "headers": {"Authorization": "Bearer ${MY_TOKEN}"}},
    "codex": {"url": "URL", "bearer_token_env_var": "MY_TOKEN"},
    "gemini": {"type": "http", "url": "URL", "headers": {"Authorization": "Bearer ${MY_TOKEN}"}},
    "cursor": {"url": "URL", "headers": {"Authorization": "Bearer ${env:MY_TOKEN}"}},
    "vscode": {
        "type": "http",
        "url": "URL",
        "headers": {"Authorization": "Bearer ${env:MY_TOKEN}"},
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.conftest import enter_empty_home

    with pytest.MonkeyPatch.context() as patch:
        enter_empty_home(tmp_path_factory.mktemp("http"), patch)
        with Http("--only", "climpt", FLEET_AGENTPACK_TOKEN=TOKEN) as running:
            yield running


@pytest.mark.parametrize(("client", "place"), [(c, p) for c, s, p in PLACES if s == "user"])
def test_each_client_gets_an_address_in_its_own_form(
    client: str,
    place: str,
    home: Path,
    connect: Run,
    server: Http,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"http://127.0.0.1:{server.port}"
    words = [client, "--url", url, "--token-env", "MY_TOKEN", "--yes"]
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    status, out, err = connect(*words)
    if client == "claude-desktop":
        assert status == 1 and "takes only servers that it starts itself" in err
        return
    assert (status, err) == (0, "")
    assert "✓ The server answers: 4 tools in" in out
    assert TOKEN not in out + (home / place).read_text()
    expected = json.loads(json.dumps(FORMS[client]).replace("URL", f"{url}/mcp"))
    assert entry_in(home / place, client) == expected
    assert "has this entry already" in connect(*words)[1]

    status, _, err = connect(client, "--remove", "--yes")
    assert status == 1 and "--url with the address" in err
    assert connect(client, "--remove", "--url", url, "--yes")[0] == 0
    assert entry_in(home / place, client) is None


def test_an_entry_that_started_a_server_becomes_an_address(
    home: Path, connect: Run, server: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    path = home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text(
        '[mcp_servers.agentpack]\ncommand = "/x/fleet-agentpack"\nenv = { A = "b" }\n'
        "tool_timeout_sec = 9 # mine\n"
    )
    url = f"http://127.0.0.1:{server.port}/mcp"
    assert connect("codex", "--url", url, "--token-env", "MY_TOKEN", "--yes")[0] == 0
    assert entry_in(path, "codex") == {
        "url": url,
        "bearer_token_env_var": "MY_TOKEN",
        "tool_timeout_sec": 9,
    }


def test_a_server_that_does_not_answer_is_told_plainly(
    home: Path, connect: Run, server: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{server.port}/mcp"
    status, out, _ = connect("cursor", "--url", url, "--token-env", "MY_TOKEN", "--yes")
    assert status == 0 and "was not checked: MY_TOKEN is not set here" in out
    status, _, err = connect("cursor", "--url", url, "--name", "bare", "--yes")
    assert status == 1 and "answered 401: it requires a token: --token-env NAME" in err
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    status, _, err = connect("cursor", "--url", f"{url}/no", "--token-env", "MY_TOKEN", "--yes")
    assert status == 1 and "answered 404: there is no MCP server at this path" in err
    status, _, err = connect("cursor", "--url", "http://127.0.0.1:1/mcp", "--yes")
    assert status == 1 and "nothing answers at http://127.0.0.1:1/mcp" in err
    assert "fleet-agentpack --http" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--url", "http://x/mcp", "--read-only"], "--read-only belongs to the server at"),
        (["--url", "http://x/mcp", "--ask", "risky"], "--ask belongs to the server at"),
        (["--url", "ftp://x"], "is not an address of a server"),
        (["--url", "http://me:secret@x"], "is not an address of a server"),
        (["--url", "http://x", "--token-env", "s3cret-token"], "never the token itself"),
        (["--token-env", "NAME"], "it needs --url"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    words: list[str], problem: str, home: Path, connect: Run
) -> None:
    status, _, err = connect("cursor", *words, "--yes")
    assert status == 1 and problem in err
    assert not (home / ".cursor").exists()


def test_an_address_may_name_a_project() -> None:
    assert address("http://127.0.0.1:3000") == "http://127.0.0.1:3000/mcp"
    assert address("https://x.test/p/mcp?a=b#c", "/my/pro ject") == (
        "https://x.test/p/mcp?a=b&project=/my/pro%20ject"
    )
    assert address("http://x/mcp", FOLDER) == "http://x/mcp?project=${workspaceFolder}"
    with pytest.raises(ConnectError):
        address("127.0.0.1:3000/mcp")


def test_a_client_s_own_command_adds_an_address(
    home: Path, connect: Run, fake: Callable[[str, str], Path]
) -> None:
    log = home / "said.json"
    body = f"import json, sys; json.dump(sys.argv[1:], open({str(log)!r}, 'w'))"
    fake("claude", body)
    out = connect("claude", "--url", "http://127.0.0.1:9/mcp", "--token-env", "T", "--print")[1]
    assert (
        "claude mcp add --transport http --scope user agentpack http://127.0.0.1:9/mcp"
        " --header 'Authorization: Bearer ${T}'" in out
    )
    connect("claude", "--url", "http://127.0.0.1:9/mcp", "--yes")
    assert json.loads(log.read_text()) == [
        *("mcp", "add", "--transport", "http", "--scope", "user", "agentpack"),
        "http://127.0.0.1:9/mcp",
    ]
