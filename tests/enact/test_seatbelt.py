"""The profile for macOS' sandbox, as text: what is not named is denied."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.backends import seatbelt
from fleet_agentpack.enact.backends.job import Job
from fleet_agentpack.enact.backends.seatbelt import Seatbelt, profile


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
    assert missing <= {part for part, holds in parts.items() if not holds}
