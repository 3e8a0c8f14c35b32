"""Every test runs in an empty home, in an empty directory, with a clean environment."""

from __future__ import annotations

import functools
import os
import signal
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest

# A busy machine is no failure. CI judges a commit, so it tries the same examples every time; new
# ones are tried wherever else the tests run.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "patient")

KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "PYTHONPATH", "COVERAGE_PROCESS_START")
KEPT_PREFIXES = ("PYTEST_", "COV_", "HYPOTHESIS_")


def pytest_configure() -> None:
    """A shell starts background jobs with Ctrl-C ignored; what the tests start must know it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--record` makes the fleet's cassettes anew from a live Coder (see docs/fleet.md)."""
    parser.addoption("--record", action="store_true", help="make the fleet's cassettes anew")


def enter_empty_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty home with an empty working directory inside, and a clean environment."""
    for name in list(os.environ):
        if name not in KEPT and not name.startswith(KEPT_PREFIXES):
            monkeypatch.delenv(name)
    home = folder / "home"
    work = home / "work"
    work.mkdir(parents=True)
    for name, value in {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": home,
        "XDG_CONFIG_HOME": home / ".config",
        "XDG_DATA_HOME": home / ".local/share",
        "XDG_STATE_HOME": home / ".local/state",
        "XDG_CACHE_HOME": home / ".cache",
        "GIT_CONFIG_NOSYSTEM": 1,
        "GIT_AUTHOR_NAME": "Test",
        "GIT_AUTHOR_EMAIL": "test@example.test",
        "GIT_COMMITTER_NAME": "Test",
        "GIT_COMMITTER_EMAIL": "test@example.test",
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(work)
    return home


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what file modes have to stop where they stop nobody."""
    if item.get_closest_marker("permissions") and not _modes_bind():
        pytest.skip("file modes do not bind this user; .ci/run runs it as one whom they do")


@functools.cache
def _modes_bind() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        locked = Path(folder, "locked")
        locked.touch(mode=0)
        return not os.access(locked, os.R_OK)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; the working directory is an empty folder inside it."""
    return enter_empty_home(tmp_path, monkeypatch)


@pytest.fixture
def work(home: Path) -> Path:
    """The working directory of the test."""
    return home / "work"


@pytest.fixture
def command() -> list[str]:
    """The command that a client starts, as this interpreter's module."""
    return [sys.executable, "-m", "fleet_agentpack"]
