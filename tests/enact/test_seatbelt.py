"""The profile for macOS' sandbox, as text: what is not named is denied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.backends import seatbelt
from fleet_agentpack.enact.backends.child import Ended
from fleet_agentpack.enact.backends.job import DEFAULT_BOUNDS, Job
from fleet_agentpack.enact.backends.seatbelt import Seatbelt, profile
from tests.enact.kit import refused


def rules(job: Job, port: int | None = None) -> list[str]:
    return profile(job, Path("/private/tmp/scratch"), port).splitlines()


def job(*mounts: Mount, **fields: object) -> Job:
    return Job("eve/tool", Path("/tools/eve"), ["true"], mounts=mounts, **fields)  # type: ignore[arg-type]


def test_everything_is_denied_first_and_there_is_no_network() -> None:
    found = rules(job())
    assert found[:2] == ["(version 1)", "(deny default)"]
    assert not [each for each in found if "network" in each or "mach" in each]


def test_only_scratch_and_granted_directories_can_be_written_to() -> None:
    found = rules(job(Mount(Path("/work"), writable=True), Mount(Path("/data"))))
    (writes,) = [each for each in found if each.startswith("(allow file-read* file-write*")]
    assert writes == (
        '(allow file-read* file-write* (subpath "/private/tmp/scratch") (subpath "/work"))'
    )
    reads = "".join(each for each in found if each.startswith("(allow file-read*"))
    assert '(subpath "/data")' in reads and '(subpath "/tools/eve")' in reads
    assert '(subpath "/Users' not in reads and '(subpath "/private/etc")' not in reads


def test_what_is_hidden_is_denied_last() -> None:
    hidden = (Path("/work/.git"),)
    found = rules(job(Mount(Path("/work"), writable=True, hidden=hidden)))
    assert found[-1] == '(deny file-read* file-write* (subpath "/work/.git"))'


def test_the_proxy_is_the_only_way_out() -> None:
    found = [each for each in rules(job(), 4321) if "network" in each]
    assert found == ['(allow network-outbound (remote ip "localhost:4321"))']


@pytest.mark.parametrize("name", ['a"b', "a\\b", 'x") (allow default) ("'])
def test_a_path_cannot_become_a_rule(name: str) -> None:
    found = rules(job(Mount(Path(f"/work/{name}"))))
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    assert f'(subpath "/work/{escaped}")' in "\n".join(found)


def test_a_job_starts_behind_the_profile_with_a_secret_for_its_proxy() -> None:
    with Seatbelt("/usr/bin").prepared(job(network=("api.example.test",))) as start:
        argv, env = start.command.argv, start.command.env
        assert argv[:2] == [seatbelt.PROGRAM, "-p"] and argv[-1] == "true"
        port = env["HTTPS_PROXY"].rpartition(":")[2]
        assert f'"localhost:{port}"' in argv[2]
        assert "@127.0.0.1:" in env["HTTPS_PROXY"]
        assert env["HTTPS_PROXY"].partition("@")[0][12:] not in " ".join(argv)


def test_elsewhere_it_says_so() -> None:
    assert "macOS" in (Seatbelt("").unavailable() or "macOS")


def test_it_names_the_parts_that_macos_does_not_have() -> None:
    parts = Seatbelt("/usr/bin").parts()
    missing = {"processes of a run as a whole", "scratch space with a limit"}
    missing.add("an end of processes that left their group")
    assert missing <= {part for part, holds in parts.items() if not holds}


@pytest.fixture
def elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What runs a command without its profile, for what we do around it ourselves."""
    program = home / "sandbox-exec"
    program.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(seatbelt, "PROGRAM", str(program))
    yield home


def carried_out(given: Job) -> Ended:
    with Seatbelt("/usr/bin:/bin").prepared(given) as start:
        return start.carry_out(
            start.command, timeout_s=60, tick=lambda _: None, on_kill=start.on_kill
        )


def test_a_tool_that_fills_its_scratch_space_is_stopped(elsewhere: Path) -> None:
    fills = 'i=0; while :; do i=$((i+1)); head -c 4096 /dev/zero > "$TMPDIR/$i"; done'
    bounds = replace(DEFAULT_BOUNDS, disk_bytes=1024**2)
    with refused("EXECUTION_FAILED") as refusal:
        carried_out(Job("eve/tool", elsewhere, ["sh", "-c", fills], bounds=bounds))
    assert "filled its scratch space of 1 MiB" in refusal.error.message


def test_its_processes_and_files_have_limits(elsewhere: Path) -> None:
    says = ["sh", "-c", "ulimit -u 2>/dev/null || ulimit -p; ulimit -f"]
    bounds = replace(DEFAULT_BOUNDS, processes=7, disk_bytes=1024**2)
    given = Job("eve/tool", elsewhere, says, bounds=bounds)
    processes, blocks = carried_out(given).stdout.split()
    assert int(processes) > 7 and int(blocks) == 2048
    free = replace(given, mounts=[Mount(elsewhere, writable=True)])
    assert carried_out(free).stdout.split()[1] == b"unlimited"
