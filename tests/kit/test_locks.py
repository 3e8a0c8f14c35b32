"""One holder at a time, in one process or several; a dead holder holds nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fleet_agentpack.kit.locks import LockTimeoutError, file_lock

HOLD = """
import sys, time
from pathlib import Path
from fleet_agentpack.kit.locks import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def hold_elsewhere(path: Path) -> subprocess.Popen[bytes]:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout.readline().strip() == b"held"
    return holder


def test_another_process_waits_in_vain_and_a_killed_holder_lets_go(work: Path) -> None:
    path = work / "new/lock"
    with hold_elsewhere(path) as holder:
        start = time.monotonic()
        with (
            pytest.raises(LockTimeoutError, match="lock is locked"),
            file_lock(path, timeout_s=0.2),
        ):
            pass
        assert time.monotonic() - start >= 0.2
        holder.kill()
        holder.wait()
    with file_lock(path, timeout_s=5):
        pass
    assert path.exists()


def test_threads_take_turns(work: Path) -> None:
    inside, most = 0, 0

    def work_a_little() -> None:
        nonlocal inside, most
        for _ in range(5):
            with file_lock(work / "lock"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=work_a_little) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_an_error_inside_releases_the_lock(work: Path) -> None:
    with pytest.raises(KeyError), file_lock(work / "lock"):
        raise KeyError
    with file_lock(work / "lock", timeout_s=0):
        pass


def test_a_lock_held_by_oneself_is_held(work: Path) -> None:
    lock = work / "lock"
    with file_lock(lock), pytest.raises(LockTimeoutError), file_lock(lock, timeout_s=0):
        pass
