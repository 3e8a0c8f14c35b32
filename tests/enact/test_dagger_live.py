"""What only a real Dagger engine shows, besides the cases that every backend runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact.permissions import Permissions
from tests.enact.conformance.cases import FILE, TEXT, WRITABLE, running
from tests.enact.conformance.places import DAGGER_IMAGE, KINDS, OUTSIDE, Place
from tests.enact.kit import OPENED, refused

pytestmark = [
    pytest.mark.dagger,
    pytest.mark.skipif(not DAGGER_IMAGE, reason="ENACT_DAGGER_IMAGE names no image"),
]
LARGE = 32 * 1024**2
DISK = "{engine{localCache{entrySet{diskSpaceBytes}}}}"


@pytest.fixture
def place(home: Path, work: Path) -> Place:
    return Place(KINDS["dagger"], home, work, DAGGER_IMAGE)


def kept_by_the_engine() -> int:
    """How much the engine has on its disk."""
    argv = [OUTSIDE["_EXPERIMENTAL_DAGGER_CLI_BIN"], "query", "--silent"]
    environ = {**os.environ, **OUTSIDE, "DAGGER_NO_NAG": "1", "DO_NOT_TRACK": "1"}
    done = subprocess.run(argv, input=DISK.encode(), capture_output=True, env=environ, check=True)
    return int(json.loads(done.stdout)["engine"]["localCache"]["entrySet"]["diskSpaceBytes"])


def given(place: Place) -> dict[str, Any]:
    """A large file and a large directory, and how they are declared."""
    (place.work / "file").write_bytes(os.urandom(LARGE))
    (place.work / "out").mkdir()
    (place.work / "out" / "file").write_bytes(os.urandom(LARGE))
    args = {"file": str(place.work / "file"), "out": str(place.work / "out")}
    return {"args": args, "properties": {"file": FILE, "out": WRITABLE}}


def close() -> None:
    while OPENED:
        OPENED.pop().close()


ENDS: dict[str, tuple[str, str]] = {
    "done": ("cat $1 $2/file | head -c 9 > $2/new", ""),
    "failed": ("exit 3", "EXECUTION_FAILED"),
    "too slow": ("sleep 60", "TIMEOUT"),
    "too loud": ("yes", "OUTPUT_TOO_LARGE"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_engine_keeps_nothing_of_what_a_tool_was_given(place: Place, end: str) -> None:
    script, code = ENDS[end]
    before = kept_by_the_engine()
    if code:
        with refused(code):
            place.run(script, **given(place), timeout="3s")
    else:
        place.run(script, **given(place))
    close()
    assert kept_by_the_engine() - before < LARGE


def test_nor_of_a_run_whose_server_was_killed(place: Place) -> None:
    before, mark = kept_by_the_engine(), f"{os.getpid()}75"
    code = (
        "import sys; from pathlib import Path; from tests.enact.test_dagger_live import *;"
        "place = Place(KINDS['dagger'], Path(sys.argv[1]), Path(sys.argv[2]), DAGGER_IMAGE);"
        f"place.run('sleep {mark}', **given(place))"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(place.home), str(place.work)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **OUTSIDE, "ENACT_DAGGER_IMAGE": DAGGER_IMAGE},
    )
    until(lambda: is_there(mark) or server.poll() is not None)
    server.kill()
    server.wait()
    until(lambda: not is_there(mark))
    until(lambda: kept_by_the_engine() - before < LARGE)


def until(holds: Callable[[], bool]) -> None:
    for _ in range(120):
        if holds():
            return
        threading.Event().wait(0.25)
    raise AssertionError("it never was so")


def is_there(mark: str) -> bool:
    return not subprocess.run(["pgrep", "-fx", f"sleep {mark}"], capture_output=True).returncode


def test_what_the_user_adds_where_the_tool_deletes_stays(place: Place) -> None:
    for name in ("gone/seen", "gone/deep/seen", "taken/seen"):
        (place.work / name).parent.mkdir(parents=True, exist_ok=True)
        (place.work / name).write_text("x")
    edited = threading.Event()

    def edit(elapsed_s: float, *_: object) -> None:
        if not edited.is_set():
            edited.set()
            (place.work / "gone" / "mine").write_text("mine")
            (place.work / "taken" / "seen").unlink()
            (place.work / "taken").rmdir()
            (place.work / "taken").write_text("a file now")

    script = 'cd "$1"; sleep 2; rm -rf gone; echo x > taken/new'
    args = {"out": str(place.work)}
    result = place.run(script, args, properties={"out": WRITABLE}, report=edit)
    found = {
        str(each.relative_to(place.work)): each.read_text()
        for each in place.work.rglob("*")
        if each.is_file()
    }
    assert found == {"gone/mine": "mine", "taken": "a file now"}
    assert "taken was changed by you and by the tool" in str(result.warnings)


def test_every_exit_code_is_the_tools_own(place: Place) -> None:
    for code in (125, 126, 137, 191, 255):
        with refused("EXECUTION_FAILED") as told:
            place.run(f"echo said; exit {code}")
        assert told.error.details["exit_code"] == code
        assert told.error.details["stdout"].strip() == "said"


def test_a_tool_is_nobody_and_has_no_capabilities(place: Place) -> None:
    script = "id -u; id -g; grep CapEff /proc/self/status"
    assert place.run(script).output.split() == ["65532", "65532", "CapEff:", "0" * 16]


def test_the_whole_network_can_be_granted(place: Place) -> None:
    script = "grep -c : /proc/net/dev"
    assert place.run(script).output == "1\n"
    anywhere = Permissions(network=("*",))
    assert place.run(script, granted=anywhere, **{"x-network": True}).output == "2\n"


def test_scratch_space_does_not_hide_what_was_given(place: Place) -> None:
    """The tests' own files are below /tmp."""
    file = place.work / "file"
    file.write_text("x")
    script = 'cat "$1" && touch "$TMPDIR/x" && ! touch /tmp/x 2>/dev/null && echo done'
    result = place.run(script, {"file": str(file)}, properties={"file": FILE})
    assert result.output == "xdone\n"


def test_a_value_of_several_lines_arrives(place: Place) -> None:
    declared = {"A": {"description": "d", "default": "x\ny\nz"}}
    assert place.run('printf "%s" "$A" | wc -c', env=declared).output == "5\n"
    assert place.run('printf "%s" "$1"', {"t": "a\nb"}, properties={"t": TEXT}).output == "a\nb"


def test_what_a_build_started_ends_with_it(place: Place) -> None:
    mark = f"{os.getpid()}76"
    steps = f"(setsid sleep {mark} >/dev/null 2>&1 &); echo made > made.txt"
    assert place.run("cat made.txt", build=steps).output == "made\n"
    assert not running(mark)


def test_a_build_is_nobody_and_limited(place: Place) -> None:
    step = (
        "{ id -u; grep CapEff /proc/self/status; ulimit -u 2>/dev/null || ulimit -p; } > made.txt"
    )
    output = str(place.run("cat made.txt", build=step, limits={"processes": 60}).output).split()
    assert output == ["65532", "CapEff:", "0" * 16, "60"]
