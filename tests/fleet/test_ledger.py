"""The task ledger: rules that the database holds, several processes, unusable files."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.ledger import Ledger, TaskOpenError
from fleet_agentpack.fleet.migrations import STEPS, migrate
from fleet_agentpack.fleet.models import Task

NOW = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def task(number: int, **more: object) -> Task:
    values = {
        "id": f"task-{number}",
        "workspace_id": "ws",
        "agent_name": "papi",
        "description": f"Task {number}",
        "status": "pending",
        "source": "human",
        "created_at": NOW + timedelta(seconds=number),
        **more,
    }
    return Task(**values)  # type: ignore[arg-type]


def test_a_task_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "deep/fleet.db")
    given = task(1, reported_before=NOW, cost_usd=0.5, stop_requested=True, outcome="é → ✓")
    ledger.claim(given)
    assert ledger.open_tasks() == {"ws": given}
    ledger.close()
    again = Ledger(tmp_path / "deep/fleet.db")
    assert again.page("ws", 0, 10) == ([given], 1)
    again.close()
    assert (tmp_path / "deep/fleet.db").stat().st_mode & 0o077 == 0


def test_an_agent_has_one_open_task_at_a_time(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "fleet.db")
    ledger.claim(task(1))
    with pytest.raises(TaskOpenError):
        ledger.claim(task(2))
    ledger.claim(task(3, workspace_id="another"))
    ledger.release("task-1")
    ledger.claim(task(4))
    ledger.confirm("task-4", NOW)
    ledger.release("task-4")  # what is confirmed is not taken back
    assert ledger.open_tasks()["ws"].status == "running"
    finished = ledger.finish("task-4", "stopped", NOW + timedelta(seconds=9))
    assert finished.completed_at == NOW + timedelta(seconds=9)
    ledger.claim(task(5))
    ledger.close()


def test_whoever_must_not_wait_is_told_that_the_ledger_is_busy(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "fleet.db")
    assert ledger.open_tasks_at_once() is None  # not open yet: that may take waiting
    ledger.claim(task(1))
    assert list((ledger.open_tasks_at_once() or {}).values()) == [task(1)]
    other = sqlite3.connect(tmp_path / "fleet.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # another process writes: readers do not wait for it
    assert len(ledger.open_tasks_at_once() or {}) == 1
    writing = threading.Thread(target=ledger.release, args=["task-1"])
    writing.start()  # one of our own threads waits for that process
    deadline = time.monotonic() + 5
    while ledger.open_tasks_at_once() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert ledger.open_tasks_at_once() is None
    other.execute("COMMIT")
    writing.join()
    assert ledger.open_tasks_at_once() == {}
    other.close()
    ledger.close()


def test_pages_are_newest_first_and_past_the_end_empty(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "fleet.db")
    for number in range(5):
        ledger.claim(task(number, status="completed"))
    rows, total = ledger.page("ws", 1, 2)
    assert ([row.id for row in rows], total) == (["task-3", "task-2"], 5)
    assert ledger.page("ws", 10**30, 2) == ([], 5)
    assert ledger.page("nobody", 0, 2) == ([], 0)
    ledger.close()


def test_a_file_that_is_no_database_is_503_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    path.write_bytes(b"not a database, but somebody's bytes" * 100)
    with pytest.raises(FleetError, match=r"fleet\.db cannot be used"):
        Ledger(path).open_tasks()
    assert path.read_bytes().startswith(b"not a database")


def test_a_ledger_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    db.close()
    with pytest.raises(FleetError, match="newer version"):
        Ledger(path).open_tasks()


@pytest.mark.parametrize("done", range(len(STEPS) + 1))
def test_a_ledger_of_every_version_is_brought_up_to_date(tmp_path: Path, done: int) -> None:
    path = tmp_path / "fleet.db"
    db = sqlite3.connect(path, isolation_level=None)
    for step in STEPS[:done]:
        step(db)
    db.execute(f"PRAGMA user_version = {done}")
    migrate(db)
    db.close()
    ledger = Ledger(path)
    ledger.claim(task(1))
    assert ledger.newest("ws") == task(1)
    ledger.close()


def test_a_new_ledger_can_be_opened_by_many_at_once(tmp_path: Path) -> None:
    for number in range(20):
        ledgers = [Ledger(tmp_path / f"{number}.db") for _ in range(6)]
        start = threading.Barrier(len(ledgers))

        def use(ledger: Ledger, start: threading.Barrier = start) -> dict[str, Task]:
            start.wait()
            return ledger.open_tasks()

        with ThreadPoolExecutor(len(ledgers)) as pool:
            assert list(pool.map(use, ledgers)) == [{}] * len(ledgers)
        for ledger in ledgers:
            ledger.close()


CLAIMER = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from fleet_agentpack.fleet.ledger import Ledger, TaskOpenError
from fleet_agentpack.fleet.models import Task
ledger, won = Ledger(Path(sys.argv[1])), 0
for number in range(40):
    try:
        ledger.claim(Task(id=f"{sys.argv[2]}-{number}", workspace_id=f"ws-{number}", agent_name="a",
            description="", status="running", source="human", created_at=datetime.now(UTC)))
        won += 1
    except TaskOpenError:
        pass
print(won)
"""


def test_of_several_processes_exactly_one_wins_each_claim(tmp_path: Path) -> None:
    path = str(tmp_path / "fleet.db")
    racers = [
        subprocess.Popen([sys.executable, "-c", CLAIMER, path, str(n)], stdout=subprocess.PIPE)
        for n in range(4)
    ]
    won = [int(racer.communicate()[0]) for racer in racers]
    assert sum(won) == 40
    ledger = Ledger(tmp_path / "fleet.db")
    assert len(ledger.open_tasks()) == 40
    ledger.close()


def test_a_full_disk_is_named_and_nothing_half_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "fleet.db")
    ledger.claim(task(1, status="completed"))
    with ledger.reading() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(FleetError, match="disk is full") as caught:
        ledger.claim(task(2, description="x" * 50_000))
    assert "rollback" not in str(caught.value)
    broken = sqlite3.OperationalError("disk I/O error")
    broken.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
        with pytest.raises(FleetError, match="disk is full"), ledger.writing():
            raise broken
    with ledger.reading() as db:
        db.execute("PRAGMA max_page_count = 1000000")
    ledger.claim(task(3))
    rows, total = ledger.page("ws", 0, 10)
    assert ([row.id for row in rows], total) == (["task-3", "task-1"], 2)
    ledger.close()
