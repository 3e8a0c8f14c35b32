"""Files are read within bounds, and replaced whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
import tracemalloc
from pathlib import Path

import pytest

from fleet_agentpack.kit.files import UnreadableError, read_bytes, read_text, write_atomic

needs_posix = pytest.mark.skipif(os.name == "nt", reason="permissions and links of POSIX")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_small_file_takes_little_memory_whatever_the_limit(work: Path) -> None:
    (work / "small").write_bytes(b"1234567")
    tracemalloc.start()
    try:
        assert read_bytes(work / "small", 256 * 1024 * 1024) == b"1234567"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_parents_are_made_and_nothing_else_is_left(work: Path) -> None:
    write_atomic(work / "a/b/c.txt", "ü", durable=True)
    assert (work / "a/b/c.txt").read_bytes() == "ü".encode()
    assert [path.name for path in (work / "a/b").iterdir()] == ["c.txt"]


@needs_posix
def test_permissions_are_kept_given_or_left_to_the_umask(work: Path) -> None:
    file = work / "file"
    before = os.umask(0o027)
    try:
        write_atomic(file, "new")
        assert mode(file) == 0o640
        file.chmod(0o755)
        write_atomic(file, "updated")
        assert mode(file) == 0o755
        write_atomic(file, "secret", mode=0o600)
        assert mode(file) == 0o600
        write_atomic(work / "shared", "x", mode=0o666)
        assert mode(work / "shared") == 0o666
    finally:
        os.umask(before)


def test_a_failed_write_leaves_the_old_file_alone(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = work / "file"
    write_atomic(file, "old")

    def refuse(self: Path, target: Path) -> None:
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        write_atomic(file, "new")
    assert file.read_text() == "old"
    assert list(work.iterdir()) == [file]


def test_text_that_cannot_be_encoded_writes_nothing(work: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_atomic(work / "file", "\ud800")
    assert list(work.iterdir()) == []


def test_a_directory_is_not_replaced(work: Path) -> None:
    (work / "folder").mkdir()
    with pytest.raises(OSError):
        write_atomic(work / "folder", "x")
    assert [path.name for path in work.iterdir()] == ["folder"]


@pytest.mark.parametrize("name", ["x" * 255, "ブ" * 85])
def test_the_longest_names_can_be_written(work: Path, name: str) -> None:
    write_atomic(work / name, "x")
    assert (work / name).read_text() == "x"


def test_readers_never_see_a_part(work: Path) -> None:
    file = work / "file"
    contents = [letter * 200_000 for letter in "ab"]
    write_atomic(file, contents[0])
    done = threading.Event()

    def write() -> None:
        for i in range(60):
            write_atomic(file, contents[i % 2])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(file.read_text())
    writer.join()
    assert seen <= set(contents)


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"123456", "too_large"), (b"a\x00b", "not_text"), (b"\xff", "not_text")],
)
def test_a_file_that_cannot_be_used_says_why(work: Path, content: bytes, kind: str) -> None:
    (work / "file").write_bytes(content)
    with pytest.raises(UnreadableError) as raised:
        read_text(work / "file", 5)
    assert raised.value.kind == kind
    assert read_bytes(work / "file", 6) == content


def test_text_comes_without_its_byte_order_mark(work: Path) -> None:
    (work / "file").write_bytes("\ufeffü\r\n".encode())
    assert read_text(work / "file") == "ü\r\n"


def test_a_missing_file_and_what_is_no_file_are_told_apart(work: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_text(work / "missing")
    (work / "file").touch()
    with pytest.raises(UnreadableError) as raised:
        read_text(work / "file/below")
    assert raised.value.kind == "below_a_file"
    with pytest.raises(UnreadableError) as raised:
        read_text(work)
    assert raised.value.kind == "directory"
    with pytest.raises(UnreadableError, match="not a usable path"):
        read_text(Path("a\x00b"))


@needs_posix
def test_a_pipe_is_not_waited_for(work: Path) -> None:
    os.mkfifo(work / "pipe")
    with pytest.raises(UnreadableError) as raised:
        read_bytes(work / "pipe")
    assert raised.value.kind == "special"


@pytest.mark.permissions
def test_a_file_without_permission_is_denied(work: Path) -> None:
    (work / "file").write_text("x")
    (work / "file").chmod(0)
    with pytest.raises(UnreadableError) as raised:
        read_text(work / "file")
    assert raised.value.kind == "denied"
