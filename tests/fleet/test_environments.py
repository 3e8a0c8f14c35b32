"""What an agent of a project starts with: its branch, files, submodules, ports and set-up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.models import Choices
from fleet_agentpack.settings import Settings
from tests.fleet.local_fleet import CONFIG, SPEC, LocalFleet, git, repository
from tests.fleet.test_local import refused
from tests.fleet.test_sandbox import needs_sandbox
from tests.fleet.waiting import until

ALLOW_FILES = ("-c", "protocol.file.allow=always")


def configured(local: LocalFleet, project: str = "", fleet: str = "") -> None:
    """The project `demo` with these settings."""
    path = local.settings.config_path
    assert path
    table = f"\n[fleet.projects.demo]\npath = {json.dumps(str(local.project))}\n{project}\n"
    path.write_text(CONFIG.replace("[fleet]", f"[fleet]\n{fleet}") + table)
    local.settings = Settings.read()
    assert not local.settings.warnings
    local.fleet = open_fleet(local.settings, source="ai_controller")


def commit(project: Path, name: str, text: str) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(text)
    git(project, "add", "--force", name)
    git(project, "commit", "--quiet", "-m", f"Add {name}")


async def test_a_new_agent_starts_from_its_project_s_base(local: LocalFleet) -> None:
    git(local.project, "checkout", "--quiet", "-b", "develop")
    commit(local.project, "next.txt", "next")
    git(local.project, "checkout", "--quiet", "main")
    configured(local, 'base = "develop"')
    await local.create("papi")
    assert (local.tree("papi") / "next.txt").read_text() == "next"
    await local.work("papi", "write notes.txt text")
    assert (await local.fleet.work("papi")).ahead == 1
    assert "into develop" in (await local.fleet.finished.merge("papi")).message
    await local.fleet.create("mami", "demo", "coder", SPEC, choices=Choices(start="main"))
    assert not (local.tree("mami") / "next.txt").exists()


@pytest.mark.parametrize("start", ["upstream/feature/x", "v1", "HEAD~1"])
async def test_an_agent_starts_from_a_remote_s_branch_a_tag_or_a_commit(
    local: LocalFleet, start: str
) -> None:
    commit(local.project, "next.txt", "next")
    git(local.project, "tag", "v1", "HEAD~1")
    git(local.project, "update-ref", "refs/remotes/upstream/feature/x", "HEAD~1")
    await local.fleet.create("papi", "demo", "coder", SPEC, choices=Choices(start=start))
    assert not (local.tree("papi") / "next.txt").exists()
    await local.work("papi", "write notes.txt text")
    if start == "upstream/feature/x":
        git(local.project, "update-ref", "refs/remotes/upstream/feature/x", "HEAD")
        assert "on top of upstream/feature/x" in await synced(local)
        assert (local.tree("papi") / "next.txt").exists()
    else:
        assert (await refused(local.fleet.finished.sync("papi")))["error"] == "bad_request"
    assert "into main" in (await local.fleet.finished.merge("papi")).message


async def synced(local: LocalFleet) -> str:
    return (await local.fleet.finished.sync("papi")).message


async def test_a_branch_is_a_name_and_no_expression(local: LocalFleet) -> None:
    await local.create("papi")
    commit(local.project, "next.txt", "next")
    await local.work("papi", "write notes.txt text")
    for into in ("main~1", "main@{0}", "-d", "../heads/main"):
        told = await refused(local.fleet.finished.merge("papi", into))
        assert told["error"] == "bad_request", into


async def test_a_bare_repository_is_a_project(local: LocalFleet, home: Path) -> None:
    bare = home / "demo.git"
    git(home, "clone", "--quiet", "--bare", str(local.project), str(bare))
    local.project = bare
    configured(local, "with_changes = true")
    await local.create("papi")
    assert (local.tree("papi") / "README.md").exists()
    await local.work("papi", "write notes.txt text")
    await local.fleet.finished.merge("papi")
    assert git(bare, "show", "main:notes.txt") == "text"
    await local.fleet.delete("papi")
    assert git(bare, "for-each-ref", "--format=%(refname)", "refs/heads/agent") == ""


async def test_setup_runs_once_where_the_agent_works(local: LocalFleet) -> None:
    configured(local, 'setup = "pwd > where; echo x >> times; test -f README.md"')
    (local.project / ".git/info/exclude").write_text("where\ntimes\n")
    await local.create("papi")
    tree = local.tree("papi")
    assert (tree / "where").read_text().strip() == str(tree)
    await local.work("papi", "one")
    await local.work("papi", "two")
    assert (tree / "times").read_text() == "x\n"


@needs_sandbox
async def test_setup_runs_in_the_agent_s_sandbox(local: LocalFleet, home: Path) -> None:
    (home / "secret.txt").write_text("hunter2")
    configured(local, 'setup = "echo mine > ~/.mark; cat ~/secret.txt > got || echo refused > no"')
    await local.create("papi")
    assert not (home / ".mark").exists()
    assert (local.tree("papi") / "no").read_text() == "refused\n"
    kept = local.settings.directories.state / "agents/papi/home/.mark"
    assert kept.read_text() == "mine\n"  # what it installs there, tasks find


async def test_a_setup_that_fails_shows_its_log_and_leaves_nothing_behind(
    local: LocalFleet,
) -> None:
    command = r"printf '\\033[31mno such package\\033[0m\\n'; echo left-pad >&2; exit 3"
    configured(local, f'setup = "{command}"')
    refs = git(local.project, "for-each-ref")
    with pytest.raises(FleetError) as failed:
        await local.create("papi")
    assert failed.value.kind == "unavailable"
    assert "status 3" in str(failed.value)
    assert "no such package\nleft-pad" in str(failed.value)
    assert "\x1b" not in str(failed.value)
    assert "left-pad" in Path(str(failed.value.details["log"])).read_text()
    assert (await local.fleet.agents()).agents == []
    assert not local.tree("papi").exists() and git(local.project, "for-each-ref") == refs
    configured(local, 'setup = "true"')
    await local.create("papi")


async def test_a_setup_that_takes_too_long_is_ended(local: LocalFleet) -> None:
    configured(local, 'setup = "echo begun; sleep 60"\nsetup_minutes = 0.005')
    with pytest.raises(FleetError, match=r"(?s)setup_minutes.*begun"):
        await local.create("papi")
    assert not local.tree("papi").exists()


async def test_an_agent_is_offline_until_its_setup_has_ended(local: LocalFleet) -> None:
    gate = local.settings.directories.data / "agents/papi/go"
    configured(local, 'setup = "while ! test -e go; do sleep 0.05; done"')
    creating = asyncio.create_task(local.create("papi"))
    other = local.restarted()

    async def is_listed() -> bool:
        return [(r.name, r.status) for r in (await other.agents()).agents] == [("papi", "offline")]

    await until(is_listed)
    with pytest.raises(FleetError, match="not set up"):
        await other.start("papi", "too early")
    gate.write_text("")
    await creating
    assert [row.status for row in (await other.agents()).agents] == ["idle"]
    await other.close()


async def test_files_that_the_project_names_are_copied_and_never_committed(
    local: LocalFleet,
) -> None:
    project = local.project
    (project / ".gitignore").write_text("*.secret\n.env\n.env.local\ncache/\n")
    (project / ".worktreeinclude").write_text("*.secret\ncache/\n*\n")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "-m", "Ignore")
    for name in ("a.secret", "cache/deep/data", ".env", ".env.local", "local.json", "other.json"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(f"content of {name}")
    (project / "link.secret").symlink_to("a.secret")
    configured(local, 'copy = ["local.json"]')
    await local.create("papi")
    tree = local.tree("papi")
    assert (tree / "a.secret").read_text() == "content of a.secret"
    assert (tree / "link.secret").readlink() == Path("a.secret")
    assert (tree / "cache/deep/data").exists() and (tree / "local.json").exists()
    assert not (tree / ".env").exists() and not (tree / ".env.local").exists()  # not named
    assert not (tree / "other.json").exists()  # named by a pattern, but git does not ignore it
    await local.work("papi", "write notes.txt text")
    made = git(project, "show", "--format=", "--name-only", "agent/papi").split()
    assert made == ["notes.txt"]
    (tree / "a.secret").write_text("changed")
    message = (await local.fleet.delete("papi")).message
    assert "a.secret" in message and "link.secret" not in message and "cache" not in message


@pytest.mark.parametrize("where", ["list", "file"])
async def test_an_env_file_is_copied_when_it_is_named(local: LocalFleet, where: str) -> None:
    (local.project / ".env").write_text("TOKEN=1")
    if where == "file":
        (local.project / ".gitignore").write_text(".env\n")
        (local.project / ".worktreeinclude").write_text(".env\n")
    configured(local, 'copy = [".env"]' if where == "list" else "")
    warnings = (await local.create("papi")).warnings
    assert (local.tree("papi") / ".env").read_text() == "TOKEN=1"
    assert ".env" not in (str(warnings) if where == "list" else "")
    await local.work("papi", "sh git add --all && git status --porcelain")
    assert git(local.project, "log", "--format=%H", "--all", "--", ".env") == ""


async def test_a_copied_file_never_lands_outside_of_the_agent_s_directory(
    local: LocalFleet, home: Path
) -> None:
    outside = home / "outside"
    outside.mkdir()
    (local.project / "conf").symlink_to(outside)
    git(local.project, "add", "conf")
    git(local.project, "commit", "--quiet", "-m", "A link")
    (local.project / "conf").unlink()
    (local.project / "conf").mkdir()
    (local.project / "conf/key").write_text("key")
    configured(local, 'copy = ["conf/key"]')
    await local.create("papi")
    assert list(outside.iterdir()) == []


async def test_submodules_are_there_when_the_project_says_so(local: LocalFleet) -> None:
    deep = repository(local.project.parent / "deep")
    inner = repository(local.project.parent / "inner")
    git(inner, *ALLOW_FILES, "submodule", "--quiet", "add", str(deep), "deep")
    git(inner, "commit", "--quiet", "-m", "Deep")
    git(local.project, *ALLOW_FILES, "submodule", "--quiet", "add", str(inner), "vendor")
    git(local.project, *ALLOW_FILES, "submodule", "--quiet", "update", "--init", "--recursive")
    git(local.project, "commit", "--quiet", "-m", "Submodule")
    configured(local, "submodules = true")
    made = await local.create("papi")
    assert not isinstance(made.warnings, tuple)
    tree = local.tree("papi")
    assert (tree / "vendor/src/app.py").exists() and (tree / "vendor/deep/README.md").exists()
    row = await local.work("papi", "sh git status --porcelain && echo x > notes.txt")
    assert row.summary.endswith("→ 0:")
    assert [one.path for one in (await local.fleet.work("papi")).files] == ["notes.txt"]
    assert (await local.fleet.delete("papi")).message.endswith("on branch agent/papi.")
    await local.create("mami")
    (local.tree("mami") / "vendor/src/app.py").write_text("changed")
    (local.tree("mami") / "vendor/deep/new.txt").write_text("new")
    question = await local.fleet.deletion("mami")
    assert "vendor" in str(question.groups)
    assert "vendor" in (await local.fleet.delete("mami")).message
    kept = local.settings.directories.data / "kept"
    assert [one.read_text() for one in kept.glob("vendor-*/src/app.py")] == ["changed"]
    assert [one.read_text() for one in kept.rglob("new.txt")] == ["new"]


async def test_a_submodule_that_the_project_itself_lacks_is_named(local: LocalFleet) -> None:
    inner = repository(local.project.parent / "inner")
    git(local.project, *ALLOW_FILES, "submodule", "--quiet", "add", str(inner), "vendor")
    git(local.project, "commit", "--quiet", "-m", "Submodule")
    git(local.project, "submodule", "--quiet", "deinit", "--all", "--force")
    configured(local, "submodules = true")
    warnings = (await local.create("papi")).warnings
    assert isinstance(warnings, tuple) and "vendor" in warnings[0]


@pytest.mark.parametrize("chosen", ["on the command line", "in the configuration"])
async def test_uncommitted_changes_can_be_taken_along(local: LocalFleet, chosen: str) -> None:
    configured(local, "with_changes = true" if "configuration" in chosen else "")
    (local.project / "README.md").write_text("Changed\n")
    (local.project / "new.txt").write_text("new")
    (local.project / "src/app.py").unlink()
    before = git(local.project, "status", "--porcelain")
    choices = Choices(with_changes=chosen == "on the command line")
    made = await local.fleet.create("papi", "demo", "coder", SPEC, choices=choices)
    assert isinstance(made.warnings, tuple) and "3 uncommitted changes" in made.warnings[0]
    tree = local.tree("papi")
    assert (tree / "README.md").read_text() == "Changed\n" and not (tree / "src/app.py").exists()
    assert git(tree, "status", "--porcelain") == ""
    assert git(local.project, "status", "--porcelain") == before  # nothing of the user's changed
    await local.work("papi", "write notes.txt text")
    log = git(local.project, "log", "--format=%s", "main..agent/papi").splitlines()
    assert log == ["write notes.txt text", "Uncommitted changes of demo"]


async def test_changes_do_not_go_with_another_branch(local: LocalFleet) -> None:
    git(local.project, "branch", "other")
    commit(local.project, "more.txt", "more")
    (local.project / "README.md").write_text("Changed\n")
    choices = Choices(start="other", with_changes=True)
    with pytest.raises(FleetError, match="main"):
        await local.fleet.create("papi", "demo", "coder", SPEC, choices=choices)
    assert (await local.fleet.agents()).agents == []


async def test_each_agent_has_ports_of_its_own(local: LocalFleet) -> None:
    configured(local, 'ports = "4000-4024"\nsetup = "echo $PORT > port"')
    for name in ("one", "two"):
        await local.create(name)
    assert (local.tree("one") / "port").read_text() == "4000\n"
    shown = (await local.fleet.show("two")).agent.metadata
    assert shown["fleet_mcp_ports"] == "4010-4019"
    row = await local.work("two", "sh echo $PORT $FLEET_AGENTPACK_PORTS")
    assert row.summary.endswith("4010 4010-4019")
    assert "4010 to 4019" in " ".join(local.heard("two")[0]["arguments"])
    with pytest.raises(FleetError, match=r"4000-4024.*one, two"):
        await local.create("three")
    assert not local.tree("three").exists()
    await local.fleet.delete("one")
    await local.create("three")
    assert (local.tree("three") / "port").read_text() == "4000\n"


async def test_agents_created_at_once_share_no_port(local: LocalFleet) -> None:
    configured(local, 'ports = "4000-4039"')
    names = ["one", "two", "three", "four"]
    made = await asyncio.gather(*map(local.create, names))
    assert len({each.agent.metadata["fleet_mcp_ports"] for each in made}) == len(names)


async def test_there_is_a_limit_to_how_many_agents_there_are(local: LocalFleet) -> None:
    configured(local, fleet="max_agents = 2")
    made = await asyncio.gather(*map(local.create, ("one", "two", "three")), return_exceptions=True)
    refused = [each for each in made if isinstance(each, FleetError)]
    assert len(refused) == 1 and refused[0].kind == "unavailable"
    assert "max_agents" in str(refused[0]) and refused[0].details["limit"] == 2
    assert len((await local.fleet.agents()).agents) == 2


async def test_an_agent_creates_no_agents_unless_it_may(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await local.create("papi")
    row = await local.work("papi", "sh echo depth $FLEET_AGENTPACK_DEPTH")
    assert row.summary.endswith("depth 1")
    monkeypatch.setenv("FLEET_AGENTPACK_DEPTH", "1")  # as a server that the agent starts sees it
    configured(local)
    with pytest.raises(FleetError, match="max_depth"):
        await local.create("mami")
    assert [row.name for row in (await local.fleet.agents()).agents] == ["papi"]
    configured(local, fleet="max_depth = 2")
    await local.create("mami")
    row = await local.work("mami", "sh echo depth $FLEET_AGENTPACK_DEPTH")
    assert row.summary.endswith("depth 2")


@pytest.mark.parametrize(
    "wrong", ['ports = "4000"', 'ports = "5000-4000"', 'ports = "80-90000"', "max_running = 0"]
)
async def test_a_wrong_setting_is_named(local: LocalFleet, wrong: str) -> None:
    with pytest.raises(FleetError, match=f"demo.{wrong.split()[0]}"):
        configured(local, wrong)
