"""What the sandbox takes away, whoever starts it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from fleet_agentpack.enact.backends.bubblewrap import Bubblewrap
from fleet_agentpack.enact.backends.child import execute
from fleet_agentpack.enact.backends.job import Job
from tests.enact.kit import needs_bwrap


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
