"""What the sandbox takes away, whoever starts it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.backends.bubblewrap import Bubblewrap
from fleet_agentpack.enact.backends.child import execute
from fleet_agentpack.enact.backends.job import WORKSPACE, Job, workspaces
from tests.enact.kit import add_tool, make_service, needs_bwrap, use_directory


@needs_bwrap
def test_a_tool_has_no_capabilities_even_when_root_starts_it(tmp_path: Path) -> None:
    job = Job("a/b", tmp_path, ["grep", "^Cap", "/proc/self/status"])
    # Bubblewrap drops everything by itself for an ordinary user: only root shows the difference.
    as_root = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    with Bubblewrap(os.environ["PATH"], tmp_path).prepared(job) as launch:
        argv = [*as_root, *launch.command.argv]
        environment = {**launch.command.env, "PATH": os.environ["PATH"]}
        ended = execute(replace(launch.command, argv=argv, env=environment), timeout_s=30)
    assert ended.exit_code == 0, ended.stderr
    seen = dict(line.split(":\t") for line in ended.stdout.decode().splitlines())
    assert seen.keys() == {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}
    assert {int(mask, 16) for mask in seen.values()} == {0}


@needs_bwrap
@pytest.mark.parametrize("place", ["/workspace", "/work"])
def test_a_tool_finds_its_files_where_enact_puts_them(home: Path, place: str) -> None:
    add_tool(home / "registry", "enact/docs-guide", scripts={"read": f"cat {place}/hello.txt"})
    use_directory(home, home / "registry")
    service = make_service(home)
    service.install("enact/docs-guide")
    assert service.run("enact/docs-guide").output == "hello from enact/docs-guide\n"


def test_a_place_of_the_users_is_not_hidden_by_a_tools_own() -> None:
    given = [Mount(Path("/work/project"))]
    assert workspaces(Job("a/b", Path("/x"), ["cat", "/work/a"], mounts=given)) == [WORKSPACE]
