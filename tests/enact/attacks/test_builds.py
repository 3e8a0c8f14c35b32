"""Hostile commands in a tool's `build`: what they reach, what they leave, and what they cost."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fleet_agentpack.enact.backends import building
from fleet_agentpack.enact.permissions import Permissions
from tests.enact.conformance.cases import running
from tests.enact.kit import needs_bwrap, refused
from tests.enact.test_build import NAME, builds, kept, prepare

pytestmark = needs_bwrap


def nothing_left(home: Path) -> bool:
    return kept(home) == [] and list(builds(home).glob("*.part")) == []


def test_a_link_to_a_file_of_the_user_leads_nowhere(home: Path) -> None:
    secret = home / "secret.txt"
    secret.write_text("s3cret")
    secret.chmod(0o666)
    service = prepare(home, f"ln -s {secret} built.txt; ln -s / root; ln -s {home} d")
    with refused("EXECUTION_FAILED") as told:
        service.run(NAME)
    assert "s3cret" not in str(told.error.payload())
    assert (secret.read_text(), stat.S_IMODE(secret.stat().st_mode)) == ("s3cret", 0o666)
    service.uninstall(NAME)
    assert secret.exists() and nothing_left(home)


def test_nothing_setuid_and_no_pipe_is_left(home: Path) -> None:
    service = prepare(
        home, "cp /bin/true built.txt; chmod 6777 built.txt; mkfifo pipe; mkdir -m 777 d; touch ok"
    )
    service.runs.of(NAME)
    service.build(NAME)
    (folder,) = kept(home)
    modes = {path.name: path.lstat().st_mode for path in (folder / "tree").iterdir()}
    assert stat.S_IMODE(modes["built.txt"]) == 0o755
    assert stat.S_IMODE(modes["d"]) == 0o755
    assert "pipe" not in modes and "ok" in modes


def test_directories_without_end_are_refused_and_removed(home: Path) -> None:
    deep = "import os\nfor _ in range(2500): os.mkdir('d' * 9); os.chdir('d' * 9)"
    service = prepare(home, f'python3 -c "{deep}"', **{"x-build-network": False})
    with refused("BUILD_FAILED") as told:
        service.run(NAME)
    assert "left what cannot be read" in told.error.message
    assert nothing_left(home)


def test_directories_that_nobody_may_read_are_removed(home: Path) -> None:
    service = prepare(home, "mkdir -p a/b; touch a/b/c; chmod 0 a/b a; exit 4")
    with refused("PERMISSION_REQUIRED"):
        service.run(NAME)
    assert nothing_left(home)


def test_too_many_files_end_a_build(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MOST_ENTRIES", 300)
    service = prepare(home, "i=0; while :; do : > f$i; i=$((i+1)); done")
    with refused("BUILD_FAILED") as told:
        service.run(NAME)
    assert "more than 300 files" in told.error.message
    assert nothing_left(home)


def test_a_file_that_only_says_that_it_is_large_is_refused_by_the_kernel(home: Path) -> None:
    service = prepare(home, "truncate -s 1T built.txt || exit 9", execution={"buildSize": "16MiB"})
    with refused("PERMISSION_REQUIRED") as told:
        service.run(NAME)
    assert "exited with code" in told.error.message
    assert nothing_left(home)


def test_what_a_build_started_ends_with_it_and_changes_nothing_later(home: Path) -> None:
    mark = f"{os.getpid()}4471"
    later = f"(setsid sh -c 'sleep {mark}; echo later > built.txt' >/dev/null 2>&1 &)"
    service = prepare(home, f"echo made > built.txt; {later}; echo done")
    assert service.run(NAME).output == "made\n"
    assert not running(mark)


def test_what_a_build_prints_cannot_speak_to_a_terminal(home: Path) -> None:
    service = prepare(home, r"printf '\033]0;owned\007 \342\200\256 said\n' >&2; exit 3")
    with refused("PERMISSION_REQUIRED") as told:
        service.run(NAME)
    text = str(told.error.payload())
    assert "\x1b" not in text and "\u202e" not in text and "said" in text


def test_a_build_that_prints_for_ever_ends(home: Path) -> None:
    with refused("BUILD_FAILED") as told:
        prepare(home, "yes").run(NAME)
    assert "printed more than" in told.error.message
    assert nothing_left(home)


def test_a_command_of_a_build_is_never_read_as_anything_else(home: Path) -> None:
    odd = "printf '%s' '$X `id` \\' > built.txt"
    service = prepare(home, odd, "-c 'touch forged' || true", "--help || true", "x=\n\n")
    assert service.run(NAME).output == "$X `id` \\"
    assert not list(builds(home).glob("*/tree/forged"))


def test_a_build_does_not_see_other_builds_and_tools_cannot_be_given_them(home: Path) -> None:
    (builds(home) / "other").mkdir(parents=True)
    service = prepare(home, f"ls -AR {home} /home /root > built.txt 2>&1; true")
    output = str(service.run(NAME).output)
    assert "other" not in output and "config.yaml" not in output and "registry" not in output
    with refused("INVALID_ARGUMENTS"):
        service.grants.allow(NAME, Permissions(write=(str(builds(home)),)))
    with refused("INVALID_ARGUMENTS"):
        service.grants.allow(NAME, Permissions(read=(str(builds(home)),)))


def test_a_build_under_a_stricter_grant_is_not_what_ran_under_a_wider_one(home: Path) -> None:
    """What was made with a network is not used once the person has taken it back."""
    service = prepare(home, "env | grep -c _PROXY= > built.txt; true")
    service.grants.allow(NAME, Permissions(build=("*",)))
    assert service.run(NAME).output == "3\n"
    service.grants.revoke(NAME, Permissions())
    assert service.run(NAME).output == "0\n"
