"""The project of a server: where it starts, what it is told, and what an address names."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.climpt.project import write
from tests.rig import SERVE, Http, Stdio, child_environment, initialize, modern_meta, run

HOW = "start the server in a project, or name one with --project DIR."
CONFIG = "[http]\nprojects = [{}]\n"


@pytest.fixture
def project(home: Path) -> Path:
    """A git repository with prompt commands, a definition, a pinned tool and a file."""
    folder = home / "src" / "shop"
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", folder], check=True)
    run("--project", str(folder), "climpt", "init", status=0)
    write(folder, ".fractary/agents/notes/agent.yaml", AGENT)
    (folder / "data.csv").write_text("a,b\n1,2\n")
    return folder


AGENT = """\
name: notes
type: agent
description: Writes release notes
llm: {provider: anthropic, model: claude}
system_prompt: Write release notes.
version: 1.0.0
"""


def answers(server: Stdio) -> dict[str, Any]:
    """What the domains say that depends on the project."""
    greeting = server.hello()
    found = server.call("search", query="group changes and commit")
    listed = server.call("fractary_forge_agent_list")["structuredContent"]
    projects = server.call("list_agent_projects")["structuredContent"]
    ran = server.call("enact__run", tool="agentpack/csv/stats", args={"file": "data.csv"})
    return {
        "place": greeting["instructions"].splitlines()[-1],
        "climpt": found["structuredContent"],
        "forge": [each["name"] for each in listed["agents"]],
        "forge_warnings": listed.get("warnings", []),
        "fleet": [each["name"] for each in projects["projects"]],
        "fleet_warnings": projects.get("warnings", []),
        "enact": ran["structuredContent"],
    }


def assert_there_is_none(told: dict[str, Any], reason: str) -> None:
    advice = f"There is no project: {reason}; {HOW}"
    assert told["place"] == advice
    assert told["climpt"] == {
        "error": "Failed to load registry",
        "path": ".agent/climpt/registry.json",
        "details": "File not found",
        "hint": advice,
    }
    assert told["forge"] == []
    assert told["forge_warnings"] == [advice]
    assert told["fleet"] == []
    assert told["fleet_warnings"][0].startswith(f"There are no projects: {reason}. Start")
    problem = told["enact"]["error"]
    assert problem["code"] == "INVALID_ARGUMENTS"
    assert problem["message"].startswith("file: 'data.csv' is a relative path. There is no project")


def assert_it_is(told: dict[str, Any], project: Path) -> None:
    assert told["place"] == f"The project is {project}."
    assert told["climpt"]["results"][0]["c2"] == "group-commit"
    assert told["forge"] == ["notes"]
    assert told["forge_warnings"] == []
    assert told["fleet"] == ["shop"]
    assert "error" not in told["enact"]


@pytest.mark.parametrize("place", ["/", "~"])
def test_a_server_started_at_the_root_or_in_the_home_has_no_project(home: Path, place: str) -> None:
    start = home if place == "~" else Path("/")
    what = "the home directory" if place == "~" else "the root directory"
    with Stdio(cwd=start) as server:
        assert_there_is_none(answers(server), f"{start} is {what}")


def test_a_project_that_is_named_is_the_project(project: Path) -> None:
    with Stdio([*SERVE, "--project", str(project)], cwd=Path("/")) as server:
        assert_it_is(answers(server), project)


def place_of(words: list[str], cwd: Path, **variables: str) -> str:
    """What a server says of its project."""
    with Stdio([*SERVE, *words], cwd=cwd, **variables) as server:
        return str(server.hello()["instructions"].splitlines()[-1])


@pytest.mark.parametrize("front", ["on", "off"])
def test_a_project_can_be_named_in_several_ways(home: Path, project: Path, front: str) -> None:
    (home / "link").symlink_to(project)
    root, expected = Path("/"), f"The project is {project}."
    switch = {"FLEET_AGENTPACK_FRONT": front}
    assert place_of([f"--project={project}"], root, **switch) == expected
    assert place_of(["--project", "~/src/shop"], root, **switch) == expected
    assert place_of(["--project", f"{home}/link"], root, **switch) == expected
    assert place_of(["--project", f"{project}/.git/.."], root, **switch) == expected
    assert place_of(["--project", "shop"], home / "src", **switch) == expected
    assert place_of([], root, FLEET_AGENTPACK_PROJECT=str(project), **switch) == expected
    assert place_of([], project, **switch) == expected


@pytest.mark.parametrize("front", ["on", "off"])
def test_what_cannot_be_a_project_is_none_and_the_server_still_serves(
    home: Path, project: Path, front: str
) -> None:
    for given, reason in {
        "${workspaceFolder}": "${workspaceFolder} does not exist",
        "/": "/ is the root directory",
        "~": f"{home} is the home directory",
        f"{home}/src/..": f"{home} is the home directory",
        f"{home}/none": f"{home}/none does not exist",
        "data.csv": f"{project}/data.csv is not a directory",
    }.items():
        place = place_of(["--project", given], project, FLEET_AGENTPACK_FRONT=front)
        assert place == f"There is no project: {reason}; {HOW}"


def test_the_working_directory_may_be_gone(home: Path) -> None:
    gone = home / "gone"
    gone.mkdir()
    script = f'rmdir "{gone}"; exec "$@"'
    with Stdio(["sh", "-c", script, "sh", *SERVE], cwd=gone) as server:
        assert_there_is_none(answers(server), "the working directory no longer exists")


def test_paths_may_begin_with_a_known_variable(home: Path, project: Path) -> None:
    with Stdio([*SERVE, "--project", str(project)], cwd=Path("/")) as server:
        server.hello()

        def stats(path: str) -> Any:
            args = {"file": path}
            return server.call("enact__run", tool="agentpack/csv/stats", args=args)[
                "structuredContent"
            ]

        for path in ("~/src/shop/data.csv", "$HOME/src/shop/data.csv", "${HOME}/src/shop/data.csv"):
            assert "error" not in stats(path), path
        refused = stats("$FOO/data.csv")["error"]["message"]
        assert refused.startswith("file: $FOO/data.csv does not exist; only ~ and $HOME, ")
        assert refused.endswith(" are replaced, and only at the start")
        checked = server.call(
            "fractary_forge_agent_validate", path="$HOME/src/shop/.fractary/agents/notes/agent.yaml"
        )["structuredContent"]
        assert "valid" in checked


def test_without_a_project_a_deploy_plans_the_user_s_files_alone(project: Path) -> None:
    """And never deletes what was deployed to the project before."""
    run("init", status=0)
    run("--project", str(project), "deploy", "--apply", "--yes", status=0)
    with Stdio(cwd=Path("/")) as server:
        server.hello()
        plan = server.call("plan")["structuredContent"]
        assert plan["data"]["changes"] == []
        (warning,) = plan["warnings"]
        assert warning.startswith(
            "there is no project, so its files are left out: / is the root directory; start in"
        )
        status = server.call("status")["structuredContent"]
        assert status["data"]["summary"] == {"extra": 0, "missing": 0, "modified": 0}
        refused = server.call("plan", target="cursor")["structuredContent"]["errors"][0]
        assert refused["code"] == "E_PROJECT_REQUIRED"
        assert "/ is the root directory" in refused["message"]
        unfound = server.call("plan", repo="pack")["structuredContent"]["errors"][0]
        assert unfound["message"].startswith("repo: 'pack' is a relative path. There is no project")
        unfound = server.call("plan", repo="$FOO/repo")["structuredContent"]["errors"][0]
        assert "'$FOO/repo' is a relative path; only ~ and $HOME, " in unfound["message"]
        found = server.call("plan", repo="$AGENTPACK_HOME/repo")["structuredContent"]
        assert found["data"]["changes"] == []
    with Stdio([*SERVE, "--project", "${workspaceFolder}"], cwd=project) as server:
        server.hello()
        plan = server.call("plan")["structuredContent"]
        assert "${workspaceFolder} does not exist; start in" in plan["warnings"][0]


# Over HTTP


def at(project: Path | str) -> str:
    return f"/mcp?project={quote(str(project))}"


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


@pytest.fixture
def allowed(home: Path, project: Path) -> Path:
    """A second project, and a configuration that allows both."""
    other = home / "src" / "other"
    other.mkdir()
    (home / "src" / "third").mkdir()
    (home / "src" / "link").symlink_to("shop")
    config = home / ".config" / "fleet-agentpack" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG.format('"~/src/link", "~/src/other"'))
    return other


def test_an_address_names_one_of_the_allowed_projects(
    home: Path, project: Path, allowed: Path
) -> None:
    with Http("--project", str(allowed)) as server:

        def told(path: str) -> tuple[str, Any]:
            _, session, greeting = server.request(initialize(), path=path)
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            server.request(ready, session=session, path=path)
            call = rpc("tools/call", name="search", arguments={"query": "commit"})
            _, _, found = server.request(call, session=session, path=path)
            place = greeting["result"]["instructions"].splitlines()[-1]
            return place, found["result"]["structuredContent"]

        place, found = told(at(project))
        assert place == f"The project is {project}."
        assert found["results"]
        assert told(at(f"{project}/../link"))[1] == found
        place, found = told("/mcp")
        assert place == f"The project is {allowed}."
        assert found["error"] == "Failed to load registry"

        meta = {"_meta": modern_meta()}
        call = rpc("tools/call", name="search", arguments={"query": "commit"}, **meta)
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
        named = {**headers, "Mcp-Name": "search"}
        _, _, modern = server.request(call, path=at(project), **named)
        assert modern["result"]["structuredContent"]["results"]
        discover = {**headers, "Mcp-Method": "server/discover"}
        greeting = server.request(rpc("server/discover", **meta), path=at(project), **discover)[2]
        assert f"The project is {project}." in greeting["result"]["instructions"]


def test_any_other_project_is_refused_in_plain_words(home: Path, allowed: Path) -> None:
    third, above = home / "src/third", home / "src/shop/.."
    with Http() as server:
        session = server.hello()
        call = rpc("tools/call", name="search", arguments={"query": "commit"})
        odd = ("/", "~", "src/shop", "", "$HOME", "/a\0b")
        for given in (*odd, str(home), str(third), str(above)):
            _, _, refused = server.request(initialize(), path=at(given))
            assert refused["error"]["message"] == (
                f"This server does not serve the project {given!r}; [http] projects in its"
                " config.toml lists those that it does"
            )
            for path in (at(given), f"{at(allowed)}&project={quote(given)}"):
                _, _, message = server.request(call, session=session, path=path)
                assert "result" not in message and "project" in message["error"]["message"]


def test_without_a_list_no_project_can_be_named(project: Path) -> None:
    with Http() as server:
        _, _, refused = server.request(initialize(), path=at(project))
        assert "does not serve the project" in refused["error"]["message"]


@pytest.mark.parametrize("listed", ["/", "~", "src/shop"])
def test_a_list_with_what_is_no_project_stops_the_start(home: Path, listed: str) -> None:
    config = home / ".config" / "fleet-agentpack" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG.format(json.dumps(listed)))
    done = subprocess.run(
        [*SERVE, "--http"], capture_output=True, text=True, env=child_environment(), timeout=30
    )
    assert done.returncode == 2
    assert f"{config}: [http] projects: {listed!r}" in done.stderr
