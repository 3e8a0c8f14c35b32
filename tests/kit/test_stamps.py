"""A value made from files is kept until one of them changes, and no longer."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fleet_agentpack.kit import stamps
from fleet_agentpack.kit.stamps import Remembered, settled, stamp

SECOND = 1_000_000_000


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as left alone for long."""
    later = time.time_ns() + 10 * SECOND
    monkeypatch.setattr(stamps.time, "time_ns", lambda: later)


def test_a_stamp_tells_of_content_mode_and_replacement(work: Path) -> None:
    file = work / "file"
    assert stamp(file) is None and stamp("a\x00b") is None
    file.write_text("a")
    seen = [stamp(file)]
    os.utime(file, ns=(1, 1))
    seen.append(stamp(file))
    file.write_text("longer")
    os.utime(file, ns=(1, 1))
    seen.append(stamp(file))
    (work / "other").write_text("longer")
    os.utime(work / "other", ns=(1, 1))
    (work / "other").replace(file)
    seen.append(stamp(str(file)))
    assert len(set(seen)) == 4


def test_a_coarse_clock_is_distrusted_for_longer() -> None:
    now = time.time_ns()
    whole = (now - SECOND) // SECOND * SECOND
    odd = (now - SECOND) // SECOND * SECOND + 1
    assert not settled((whole, whole, 1, 1, 1))
    assert settled((odd, odd, 1, 1, 1))
    assert not settled((now + SECOND, now, 1, 1, 1))


def test_a_value_is_made_again_only_after_a_change(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    file, other = work / "file", work / "other"
    file.write_text("one")
    remembered: Remembered[list[str]] = Remembered()

    def read() -> list[str]:
        return [path.read_text() for path in (file, other) if path.exists()]

    first = remembered.get(read, file, other)
    assert remembered.get(read, file, other) is first == ["one"]
    other.write_text("two")
    assert remembered.get(read, file, other) == ["one", "two"]
    file.unlink()
    assert remembered.get(read, file, other) == ["two"]
    assert remembered.get(lambda: ["another question"], other) == ["another question"]


def test_what_changed_a_moment_ago_is_not_believed(work: Path) -> None:
    file = work / "file"
    file.write_text("one")
    remembered: Remembered[str] = Remembered()
    assert remembered.get(file.read_text, file) == "one"
    assert remembered.get(lambda: "read again", file) == "read again"


def test_a_failure_is_not_remembered(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    remembered: Remembered[str] = Remembered()
    with pytest.raises(FileNotFoundError):
        remembered.get((work / "file").read_text, work / "file")
    assert remembered.get(lambda: "none", work / "file") == "none"
