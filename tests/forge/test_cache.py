"""The cache directory: counting, clearing, lifetimes, and what it must never touch."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.names import Directories
from fleet_agentpack.forge.registries import Cache, readable_size
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import jsonable
from tests.forge.tree import write

DAY = 86_400


@pytest.fixture
def directory(home: Path) -> Path:
    return home / ".fractary/cache"


def age(path: Path, days: float) -> None:
    when = time.time() - days * DAY
    os.utime(path, (when, when))


def fill(directory: Path) -> None:
    now = time.time()
    for name, days in (("old", 10), ("new", 1)):
        entry = {"url": "u", "manifest": {}, "fetched_at": int((now - days * DAY) * 1000), "ttl": 5}
        write(directory, {f"manifests/{name}.json": json.dumps(entry)})
    write(directory, {"downloads/a.bin": b"x" * 1024, "downloads/deep/b.bin": b"y" * 512})
    age(directory / "downloads/a.bin", 20)


def test_an_empty_cache_is_all_zeros_and_stays_unmade(forge: ForgeService, directory: Path) -> None:
    assert jsonable(forge.cache_stats()) == {
        "manifests": {"count": 0, "size": "0 Bytes", "oldestEntry": "", "newestEntry": ""},
        "downloads": {"count": 0, "size": "0 Bytes"},
        "totalSize": "0 Bytes",
        "location": str(directory),
    }
    assert not directory.exists()


def test_stats_count_sizes_and_ages(forge: ForgeService, directory: Path) -> None:
    fill(directory)
    stats = forge.cache_stats()
    assert stats.manifests.count == 2
    assert jsonable(stats.downloads) == {"count": 2, "size": "1.5 KB"}
    assert stats.manifests.oldestEntry < stats.manifests.newestEntry
    assert stats.manifests.newestEntry.endswith("Z")


def test_clear_takes_everything_unless_told(forge: ForgeService, directory: Path) -> None:
    fill(directory)
    write(directory, {"keep.txt": "not an entry", "other/x": "y"})
    result = forge.cache_clear()
    assert result.success is True
    assert result.cleared.manifests == result.cleared.downloads == 2
    left = sorted(path.name for path in directory.rglob("*") if path.is_file())
    assert left == ["keep.txt", "x"]
    assert not (directory / "downloads/deep").exists()


def test_clear_by_type_and_age(forge: ForgeService, directory: Path) -> None:
    fill(directory)
    cleared = forge.cache_clear("downloads", 5).cleared
    assert jsonable(cleared) == {"manifests": 0, "downloads": 1, "totalSize": "1 KB"}
    assert forge.cache_clear("manifests", 5).cleared.manifests == 1
    assert (directory / "manifests/new.json").exists()
    assert jsonable(forge.cache_clear("all", 100).cleared) == {
        "manifests": 0,
        "downloads": 0,
        "totalSize": "0 Bytes",
    }
    assert forge.cache_clear("all", 0).cleared.manifests == 1


def test_a_negative_age_is_refused(forge: ForgeService, directory: Path) -> None:
    fill(directory)
    with pytest.raises(ForgeError, match="olderThan"):
        forge.cache_clear("all", -1)
    assert (directory / "manifests/new.json").exists()


def test_links_are_neither_followed_nor_counted(
    forge: ForgeService, directory: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    write(precious, {"file": "data"})
    (directory / "downloads").mkdir(parents=True)
    (directory / "downloads/out").symlink_to(precious)
    (directory / "downloads/file").symlink_to(precious / "file")
    (directory / "manifests").symlink_to(precious)
    assert forge.cache_stats().totalSize == "0 Bytes"
    assert forge.cache_clear().cleared.downloads == 0
    assert (precious / "file").read_text() == "data"


@pytest.mark.parametrize("place", [".", "..", "/", "~"])
def test_a_home_or_a_project_is_never_cleared(
    make: Callable[..., ForgeService], home: Path, work: Path, place: str
) -> None:
    write(home, {"downloads/thesis.txt": "x"})
    write(work, {"downloads/thesis.txt": "x"})
    with pytest.raises(ForgeError) as caught:
        make(FRACTARY_CACHE_DIR=place).cache_clear()
    assert caught.value.code == "CONFIG_ERROR"
    assert (home / "downloads/thesis.txt").exists()
    assert (work / "downloads/thesis.txt").exists()


@pytest.mark.permissions
def test_a_file_that_cannot_be_removed_is_named(forge: ForgeService, directory: Path) -> None:
    fill(directory)
    (directory / "manifests").chmod(0o500)
    try:
        with pytest.raises(ForgeError) as caught:
            forge.cache_clear()
        assert caught.value.code == "PERMISSION_DENIED"
    finally:
        (directory / "manifests").chmod(0o700)


def test_manifests_live_for_their_time(home: Path, work: Path, tmp_path: Path) -> None:
    clock = [1000.0]
    cache = Cache(tmp_path / "c", Directories(work, home, {}), lambda: clock[0])
    cache.keep_manifest("../r", "u", {"plugins": []}, 60)
    assert [path.name for path in (tmp_path / "c/manifests").iterdir()] == [".._r.json"]
    kept = cache.manifest("../r", "u")
    assert kept is not None
    for now, fresh in ((1000, True), (1059.9, True), (1060, False), (999, False)):
        assert kept.is_fresh(now) is fresh
    assert cache.manifest("../r", "other url") is None
    cache.keep_manifest("r", "u", {}, 0)
    never = cache.manifest("r", "u")
    assert never is not None
    assert not never.is_fresh(1000)


def test_a_broken_entry_is_a_miss_and_still_cleared(forge: ForgeService, directory: Path) -> None:
    write(directory, {"manifests/r.json": "{broken", "manifests/s.json": '{"fetched_at": "x"}'})
    assert forge.cache_stats().manifests.count == 2
    assert forge.cache_clear("manifests").cleared.manifests == 2


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 Bytes"),
        (1023, "1023 Bytes"),
        (1536, "1.5 KB"),
        (1024**2, "1 MB"),
        (5 * 1024**4, "5 TB"),
    ],
)
def test_sizes_read_well(size: int, text: str) -> None:
    assert readable_size(size) == text
