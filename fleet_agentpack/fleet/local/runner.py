"""Runs one task detached from the server, until its work is on the agent's branch.

It inherits the lock of FOLDER/lock, which is held from before the task was recorded as the agent's
current one. Inside the sandbox the first process holds it too: when the lock is free, everything of
the task is gone, whatever happened to the server and to this process.
"""

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_agentpack.fleet.local.mount_points import clear_mount_points
from fleet_agentpack.fleet.local.places import Places

if TYPE_CHECKING:
    from fleet_agentpack.fleet.local.tasks import TaskFolder

CHECK_S = 1.0
INTERRUPT_S = 10.0
READY, GATE = 8, 9  # the highest descriptors that every shell knows
WAIT = f'echo ready >&{READY} && read -r go <&{GATE} && exec {READY}>&- {GATE}<&- && exec "$@"'
SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl


def main(folder_name: str, lock_number: str, place_number: str = "") -> None:
    """Start the task, report that on standard output, and wait for its end.

    A task that has no place among its project's yet waits for one, and that is reported.
    """
    folder, lock = Path(folder_name), int(lock_number)
    place = int(place_number) if place_number else None
    launch = json.loads((folder / "launch.json").read_bytes())
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _prctl(SET_CHILD_SUBREAPER, 1)
    if launch["places"]:
        tell("waiting")
        place = Places(Path(launch["places"]), launch["places_count"]).wait(folder)
        (folder / "waiting").unlink()
    try:
        child = start(folder, launch, lock)
    except OSError as error:
        with suppress(OSError):  # the disk may be full
            finish(folder, None, str(error))
        tell(str(error))
        return
    tell("started")
    status, limit = supervise(folder, launch, child)
    wrap_up(folder, launch, status, limit, place)


def tell(state: str) -> None:
    """Report to the server, which reads no more than this; nothing if that was done."""
    os.write(1, state.encode())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def start(folder: Path, launch: dict[str, Any], lock: int) -> "subprocess.Popen[bytes]":
    """Start the program in its own process group, with its output in files.

    It waits behind a gate until it is recorded; if this process dies before that, it never runs.
    Once it is ready there, it is also certain to die with this process.
    """
    if not os.access(launch["command"][0], os.X_OK):
        raise FileNotFoundError(f"{launch['command'][0]} is no program")
    kept = fcntl.fcntl(lock, fcntl.F_DUPFD, GATE + 1)  # out of the way of the gate
    (waiting, opening), (hearing, ready), (told, telling) = _pipes(3)
    os.dup2(waiting, GATE)
    os.dup2(ready, READY)
    command = ["/bin/sh", "-c", WAIT, "sh", *launch["command"]]
    passed = [READY, GATE, kept]
    if launch["sandbox"]:
        clear_mount_points(launch["sandbox"], launch["owned"])
        options = ["--sync-fd", str(kept), "--info-fd", str(telling)]
        command = [launch["sandbox"][0], *options, *launch["sandbox"][1:], *command]
        passed.append(telling)
    with (
        (folder / "prompt").open("rb") as prompt,
        (folder / "output").open("ab") as output,
        (folder / "errors").open("ab") as errors,
    ):
        child = subprocess.Popen(
            command,
            cwd=launch["directory"],
            stdin=prompt,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            pass_fds=passed,
            preexec_fn=lambda: _prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL),
        )
    for descriptor in (waiting, ready, READY, GATE, telling):
        os.close(descriptor)
    with os.fdopen(hearing, "rb") as stream:
        stream.readline()
    inner = _inner_process(told) if launch["sandbox"] else None
    write(folder / "process.json", {"pid": child.pid, "inner": inner, "at": time.time()})
    with suppress(OSError):
        os.write(opening, b"go\n")
    os.close(opening)
    return child


def _pipes(count: int) -> list[tuple[int, int]]:
    """Pipes with descriptors that are out of the way of the gate's."""

    def high(descriptor: int) -> int:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, GATE + 1)

    made = [os.pipe() for _ in range(count)]
    pipes = [(high(reading), high(writing)) for reading, writing in made]
    for descriptor in (each for pair in made for each in pair):
        os.close(descriptor)
    return pipes


def _inner_process(told: int) -> int | None:
    """The first process inside the sandbox, as bubblewrap tells it."""
    with os.fdopen(told, "rb") as stream, suppress(ValueError, KeyError):
        return int(json.loads(stream.read())["child-pid"])
    return None


def supervise(
    folder: Path, launch: dict[str, Any], child: "subprocess.Popen[bytes]"
) -> tuple[int, str | None]:
    """Wait for the program's end, and end it where its role's limits are reached."""
    minutes, cost = launch["max_minutes"], launch["max_cost_usd"]
    task = task_of(folder, launch) if cost is not None else None
    deadline = time.monotonic() + minutes * 60 if minutes else None
    if deadline is None and cost is None:
        return child.wait(), None
    while True:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(CHECK_S), None
        error = None
        if deadline and time.monotonic() >= deadline:
            error = f"It was ended after {minutes:g} minutes, its role's max_minutes."
        elif task and cost and (task.result().cost_usd or 0) > cost:
            error = f"It was ended at more than {cost:g} USD, its role's max_cost_usd."
        if error:
            return end(folder, child), error


def end(folder: Path, child: "subprocess.Popen[bytes]") -> int:
    """End the program, first by an interrupt."""
    from fleet_agentpack.fleet.local.processes import Target, signal_target

    inner = json.loads((folder / "process.json").read_bytes())["inner"]
    for number in (signal.SIGINT, signal.SIGKILL):
        signal_target(Target(child.pid, inner), number, folder / "lock")
        with suppress(subprocess.TimeoutExpired):
            return child.wait(INTERRUPT_S)
    return child.wait()


def wrap_up(
    folder: Path, launch: dict[str, Any], status: int, error: str | None, place: int | None = None
) -> None:
    """End what the program left behind, bring its work to the branch, record how it ended."""
    (folder / "wrapping-up").touch()
    from fleet_agentpack.fleet.local.tasks import Collection

    task = task_of(folder, launch)
    os.environ.pop("FLEET_AGENTPACK_TASK", None)
    task.end_left_overs()
    changed, problem = None, None
    if launch["collection"]:
        from fleet_agentpack.fleet.local.collect import collect, is_sound

        job = Collection(**launch["collection"])
        if is_sound(job):
            commit_inside(folder, launch)
        changed, problem = collect(job)
    task.read_to_the_end()
    if place is not None:  # who sees that this task is over may start another one
        fcntl.flock(place, fcntl.LOCK_UN)
    finish(folder, status, error, problem=problem, changed=changed)


def commit_inside(folder: Path, launch: dict[str, Any]) -> None:
    """Commit what the task left, in the agent's own repository."""
    for argv in launch["commit"]:
        clear_mount_points(launch["sandbox"], launch["owned"])
        if not done_inside([*launch["sandbox"], *argv], folder, launch["commit_s"]):
            break


def done_inside(argv: list[str], folder: Path, timeout_s: float) -> bool:
    """Run a command in the sandbox; what it cannot do is done from outside."""
    from fleet_agentpack.kit.process import run

    with (folder / "commit.log").open("ab") as log, suppress(OSError):
        done = run(argv, timeout_s=timeout_s)
        log.write(done.stderr)
        return done.status == 0
    return False


def finish(folder: Path, status: int | None, error: str | None, **more: Any) -> None:
    """Record how the task ended."""
    write(folder / "outcome.json", {"status": status, "error": error, "at": time.time(), **more})


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a file atomically."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.rename(path)


def task_of(folder: Path, launch: dict[str, Any]) -> "TaskFolder":
    """The task as the server sees it."""
    from fleet_agentpack.fleet.ledger import Ledger
    from fleet_agentpack.fleet.local.streams import Streams
    from fleet_agentpack.fleet.local.tasks import TaskFolder

    return TaskFolder(folder, Streams(Ledger(Path(launch["ledger"]))))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
