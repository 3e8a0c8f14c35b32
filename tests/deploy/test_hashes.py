"""The hash cache: fast, shared, and never believed when a file may have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fleet_agentpack.deploy import hashes
from fleet_agentpack.deploy.hashes import HashCache
from fleet_agentpack.deploy.model import FileState
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.kit import stamps
from fleet_agentpack.kit.files import hash_file
from tests.deploy.lab import Lab


def settle(path: Path) -> None:
    """Wait until a later change of a file, or of one below a directory, is bound to show."""
    for each in (path, *path.rglob("*")):
        while not stamps.settled(stamps.stamp_of(each.lstat())):
            time.sleep(0.005)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("aaaa")
    return path


def digest(cache: HashCache, path: Path) -> str:
    return cache.look(str(path)).sha256


def test_an_unchanged_file_is_not_read_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = HashCache(None)
    settle(file)
    first = digest(cache, file)
    monkeypatch.setattr(hashes, "hash_open", lambda *_: pytest.fail("read again"))
    assert digest(cache, file) == first


def test_a_fresh_file_is_not_remembered(file: Path) -> None:
    cache = HashCache(None)
    os.utime(file)
    digest(cache, file)
    assert cache.entries == {}


@pytest.mark.parametrize("restore_time", [False, True])
def test_same_size_and_time_but_other_content_is_noticed(file: Path, restore_time: bool) -> None:
    cache = HashCache(None)
    settle(file)
    digest(cache, file)
    before = file.stat()
    file.write_text("bbbb")
    if restore_time:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest(cache, file) == hash_file(str(file), 4)


def test_a_file_moved_into_its_place_is_noticed(file: Path) -> None:
    cache = HashCache(None)
    other = file.with_name("other")
    other.write_text("bbbb")
    settle(file)
    digest(cache, file)
    before = file.stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(file)
    assert digest(cache, file) == hash_file(str(file), 4)


def test_a_changed_mode_is_noticed(file: Path) -> None:
    cache = HashCache(None)
    settle(file)
    assert not cache.look(str(file)).executable
    file.chmod(0o755)
    assert cache.look(str(file)).executable


def test_a_link_in_a_remembered_files_place_is_noticed(file: Path) -> None:
    cache = HashCache(None)
    settle(file)
    digest(cache, file)
    file.rename(file.with_name("moved"))
    file.symlink_to("moved")
    with pytest.raises(OSError, match="symbolic links"):
        cache.look(str(file))


def test_processes_share_what_they_learnt(file: Path, tmp_path: Path) -> None:
    place = tmp_path / "cache" / "hashes"
    one = HashCache(place)
    settle(file)
    expected = digest(one, file)
    one.save(lambda: {str(file)})
    other = HashCache(place)
    assert other.entries == one.entries and digest(other, file) == expected
    assert (place.stat().st_mode & 0o777) == 0o600


@pytest.mark.parametrize("damage", [b"", b"rubbish", None])
def test_a_damaged_cache_is_ignored(file: Path, tmp_path: Path, damage: bytes | None) -> None:
    place = tmp_path / "hashes"
    cache = HashCache(place)
    settle(file)
    digest(cache, file)
    cache.save(set)
    data = place.read_bytes()
    place.write_bytes(data[:-3] if damage is None else damage)
    assert HashCache(place).entries == {}


def test_what_nobody_uses_is_dropped(tmp_path: Path) -> None:
    place = tmp_path / "hashes"
    cache = HashCache(place)
    cache.entries = {
        f"/gone/{n}": FileState("0" * 64, False, stamp=(1, 1, 1, 1, 1)) for n in range(5000)
    }
    keep = [tmp_path / f"keep{n}" for n in range(30)]
    for number, path in enumerate(keep):
        path.write_text("x")
        settle(path)
        digest(cache, path)
        if number == 0:
            cache.save(lambda: {str(path) for path in keep})
            assert not place.exists()  # one more among thousands is not worth writing them all
    cache.save(lambda: {str(path) for path in keep})
    assert list(HashCache(place).entries) == [str(path) for path in keep]


def test_a_cache_that_cannot_be_written_is_done_without(lab_root: Path) -> None:
    lab = Lab(lab_root, git=False)
    lab.furnish()
    lab.cache.write_text("a file where the directory should be")
    lab.deploy()
    assert lab.drift() == []


@pytest.fixture
def lab_root(tmp_path: Path) -> Path:
    return tmp_path / "lab"


def test_edits_are_seen_between_two_calls_of_one_process(lab_root: Path) -> None:
    lab = Lab(lab_root, git=False)
    lab.furnish()
    service = lab.service()
    service.deploy(Request())
    path = lab.user / ".codex/prompts/hello.md"
    for number in range(20):
        settle(path) if number % 5 == 0 else None
        assert service.status(Request()).data.drift == []
        before = path.stat()
        path.write_text("Say hellO.\n")  # the same length
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert len(service.status(Request()).data.drift) == 1
        path.write_text("Say hello.\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_new_and_vanished_files_are_seen_between_two_calls(lab_root: Path) -> None:
    lab = Lab(lab_root, git=False)
    lab.furnish()
    service = lab.service()
    service.deploy(Request())
    settle(lab_root)
    assert service.status(Request()).data.drift == []
    extra = lab.write("user/.codex/skills/tidy/extra", "x")
    lab.source("modules/skills/tidy/new.md", "new")
    kinds = [row.kind for row in service.status(Request(target="codex")).data.drift]
    assert sorted(kinds) == ["extra", "missing", "missing"]
    extra.unlink()
    (lab.repo / "modules/skills/tidy/new.md").unlink()
    assert service.status(Request()).data.drift == []
