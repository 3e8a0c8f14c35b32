"""What a watch over many directories hears of, and what it refuses to vouch for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet_agentpack.kit import tree_watch
from fleet_agentpack.kit.mounts import Mounts
from fleet_agentpack.kit.tree_watch import News, TreeWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's notifications")


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[TreeWatch]:
    monkeypatch.setattr(tree_watch, "NOTIFYING", tree_watch.NOTIFYING | {"overlay"})
    found = TreeWatch(500)
    yield found
    found.close()


def test_a_name_in_a_directory(watch: TreeWatch, tmp_path: Path) -> None:
    watch.at(str(tmp_path / "a"))
    assert watch.is_sure() and watch.news() is News.NONE
    (tmp_path / "b").write_text("other")
    assert watch.news() is News.NONE
    (tmp_path / "a").write_text("this")
    assert watch.news() is News.CHANGED
    assert watch.news() is News.NONE
    (tmp_path / "a").read_text()
    assert watch.news() is News.NONE


def test_a_path_whose_directories_do_not_exist_yet(watch: TreeWatch, tmp_path: Path) -> None:
    watch.at(str(tmp_path / "a/b/c"))
    assert watch.is_sure()
    (tmp_path / "a").mkdir()
    assert watch.news() is News.CHANGED


def test_every_name_in_a_directory_but_not_below_it(watch: TreeWatch, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    watch.into(str(tmp_path))
    (tmp_path / "below/file").write_text("x")
    assert watch.news() is News.NONE
    watch.into(str(tmp_path / "below"))
    (tmp_path / "below/file").write_text("y")
    assert watch.news() is News.CHANGED


def test_links_are_followed_with_dots_as_the_system_does(watch: TreeWatch, tmp_path: Path) -> None:
    (tmp_path / "far/deep").mkdir(parents=True)
    (tmp_path / "far/file").write_text("x")
    (tmp_path / "near").symlink_to("far/deep")
    (tmp_path / "link").symlink_to("near/../file")  # far/file, not file
    watch.at(str(tmp_path / "link"))
    assert watch.is_sure() and watch.news() is News.NONE
    (tmp_path / "far/file").write_text("y")
    assert watch.news() is News.CHANGED
    (tmp_path / "near").unlink()
    assert watch.news() is News.CHANGED


def test_a_circle_of_links_is_not_vouched_for(watch: TreeWatch, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    watch.at(str(tmp_path / "a"))
    assert not watch.is_sure()
    watch.begin()
    watch.at(str(tmp_path / "a/file"))
    assert not watch.is_sure()


@pytest.mark.parametrize("moved", ["a", "a/b", "a/b/c"])
def test_a_directory_that_was_moved(watch: TreeWatch, tmp_path: Path, moved: str) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    watch.into(str(tmp_path / "a/b/c"))
    (tmp_path / moved).rename(tmp_path / "elsewhere")
    assert watch.news() is News.LOST


def test_a_directory_that_was_deleted_and_made_again(watch: TreeWatch, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    watch.into(str(tmp_path / "a"))
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "a").mkdir()
    assert watch.news() is News.LOST


def test_another_name_of_a_file(watch: TreeWatch, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/file").write_text("x")
    os.link(tmp_path / "in/file", tmp_path / "other")
    watch.into(str(tmp_path / "in"))
    watch.shared(str(tmp_path / "in/file"))
    assert not watch.is_sure()  # it may have been read before
    watch.begin()
    watch.shared(str(tmp_path / "in/file"))
    assert watch.is_sure() and watch.news() is News.NONE
    (tmp_path / "other").write_text("y")
    assert watch.news() is News.CHANGED


def test_more_than_allowed_is_not_watched(tmp_path: Path) -> None:
    watch = TreeWatch(len(tmp_path.parts) + 1)
    for name in "abc":
        (tmp_path / name).mkdir()
        watch.into(str(tmp_path / name))
    assert not watch.usable and not watch.is_sure()
    watch.close()


def test_a_relative_path_is_not_vouched_for(watch: TreeWatch) -> None:
    watch.at("some/file")
    assert not watch.is_sure()


def test_a_file_system_that_does_not_notify(watch: TreeWatch) -> None:
    mounts = Mounts()
    kinds = mounts.kinds()
    mounts.close()
    assert "/" in kinds
    if "/proc" not in kinds:
        pytest.skip("nothing is mounted at /proc")
    watch.at("/etc/hostname-that-is-not-there")
    watch.at("/proc/version")
    assert not watch.is_sure()


IN_A_NAMESPACE = """
import subprocess, sys
from pathlib import Path
from fleet_agentpack.kit import tree_watch
tree_watch.NOTIFYING |= {"overlay"}
top = Path(sys.argv[1])
for name in ("watched", "elsewhere"):
    (top / name).mkdir()
    (top / name / "file").write_text(name)
watch = tree_watch.TreeWatch(500)
watch.into(str(top / "watched"))
assert watch.is_sure() and watch.news() is tree_watch.News.NONE
subprocess.run(["mount", "--bind", top / "elsewhere", top / "watched"], check=True)
assert watch.news() is tree_watch.News.LOST
watch.close()
watch = tree_watch.TreeWatch(500)
watch.into(str(top / "watched"))
assert watch.is_sure()
(top / "elsewhere/file").write_text("through the other path")
assert watch.news() is tree_watch.News.CHANGED
subprocess.run(["mount", "--bind", top / "elsewhere/file", top / "watched/file"], check=True)
assert watch.news() is tree_watch.News.LOST
watch.close()
watch = tree_watch.TreeWatch(500)
watch.into(str(top / "watched"))
assert not watch.is_sure()  # a file mounted from elsewhere is written to there
watch.close()
"""


def test_mounts(tmp_path: Path) -> None:
    unshare = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"]).returncode:
        pytest.skip("no mount namespaces here")
    command = [*unshare, sys.executable, "-c", IN_A_NAMESPACE, str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
