"""Child processes end when they should, with all they started."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from fleet_agentpack.kit import process

SLEEPER = "import time; time.sleep(60)"
# Starts a program that keeps the pipes open, then ends or waits.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open("pid", "w").write(str(child.pid))
time.sleep(float(sys.argv[1]))
"""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def wait_until_gone(pid: int) -> None:
    for _ in range(250):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.02)
    raise AssertionError(f"{pid} still runs")


def test_a_program_gets_its_input_and_gives_its_output() -> None:
    code = (
        "import sys; data = sys.stdin.read(); print(data[::-1]); sys.stderr.write(' oh '); exit(3)"
    )
    done = process.run(python(code), stdin="äb".encode())
    assert (done.status, done.text.strip(), done.complaint) == (3, "bä", "oh")


def test_a_missing_program_is_file_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        process.run(["no-such-program-anywhere"])
    with pytest.raises(FileNotFoundError):
        asyncio.run(process.run_async(["no-such-program-anywhere"]))


@pytest.mark.parametrize("parent_waits", ["0", "60"])
def test_a_timeout_ends_the_program_and_what_it_started(work: Path, parent_waits: str) -> None:
    start = time.monotonic()
    with pytest.raises(process.ProcessTimeoutError):
        process.run(python(PARENT, parent_waits), timeout_s=1.5)
    assert time.monotonic() - start < 20
    wait_until_gone(int((work / "pid").read_text()))


@pytest.mark.parametrize("parent_waits", ["0", "60"])
async def test_a_timeout_in_the_loop_does_too(work: Path, parent_waits: str) -> None:
    with pytest.raises(process.ProcessTimeoutError):
        await process.run_async(python(PARENT, parent_waits), timeout_s=1.5)
    wait_until_gone(int((work / "pid").read_text()))


async def test_a_cancelled_wait_ends_the_program() -> None:
    code = "open('pid', 'w').write(str(__import__('os').getpid()));" + SLEEPER
    running = asyncio.create_task(process.run_async(python(code)))
    for _ in range(500):
        await asyncio.sleep(0.02)
        if Path("pid").exists() and Path("pid").read_text():
            break
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    wait_until_gone(int(Path("pid").read_text()))


async def test_the_loop_gets_output_and_status() -> None:
    done = await process.run_async(
        python("import sys; print(sys.stdin.read()); exit(4)"), stdin=b"x"
    )
    assert (done.status, done.text.strip()) == (4, "x")
