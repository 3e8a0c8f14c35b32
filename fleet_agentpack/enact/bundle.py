"""Bundles: archives read into memory within limits, and trees of files with their hashes.

Nothing of a bundle touches the disk before it has been verified.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fleet_agentpack.kit.paths import EscapeError, check_relative, confined
from fleet_agentpack.kit.results import clean
from fleet_agentpack.kit.visible import visible

LARGEST_BUNDLE = 50 * 1024 * 1024
LARGEST_UNPACKED = 200 * 1024 * 1024
MOST_FILES = 5_000
LONGEST_PATH = 512
LONGEST_HEADER = 4096  # bytes in front of a member
MOST_STEPS = 500_000_000  # some releases of Python search a header in the square of its length
_CHUNK = 1024 * 1024
_DESCRIBING = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)


class BundleError(ValueError):
    """An archive or a tree that must not be used; the message says why."""


@dataclass(frozen=True)
class PackedFile:
    """The content of one file; of its mode only the executable bit survives."""

    content: bytes
    executable: bool = False


@dataclass(frozen=True)
class FileRecord:
    """What a receipt remembers of a file."""

    sha256: str
    executable: bool


@dataclass(frozen=True)
class Package:
    """The files of a tool, in memory."""

    files: Mapping[str, PackedFile]

    def read(self, path: str) -> bytes | None:
        """The content of one file."""
        found = self.files.get(path)
        return found.content if found else None

    def records(self) -> dict[str, FileRecord]:
        """The hash of every file."""
        return {
            path: FileRecord(hashlib.sha256(each.content).hexdigest(), each.executable)
            for path, each in self.files.items()
        }


class Folder:
    """The files of a tool in a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str) -> bytes | None:
        """The content of one regular file; a link counts as absent."""
        try:
            file = confined(self._root, path)
            if not stat.S_ISREG(file.lstat().st_mode):
                return None
            with file.open("rb") as stream:
                return stream.read(LARGEST_BUNDLE)
        except (OSError, EscapeError):
            return None


def unpack(data: bytes) -> Package:
    """Read an archive into memory. Raises `BundleError`."""
    if not data:
        raise BundleError("it is empty")
    if len(data) > LARGEST_BUNDLE:
        raise BundleError(f"it is larger than {LARGEST_BUNDLE} bytes")
    raw: io.BufferedIOBase = io.BytesIO(data)
    if data[:2] == b"\x1f\x8b":
        raw = gzip.GzipFile(fileobj=io.BytesIO(data))
    files: dict[str, PackedFile] = {}
    try:
        bounded = io.BufferedReader(_Bounded(raw, LARGEST_UNPACKED))
        with tarfile.open(fileobj=bounded, mode="r|", tarinfo=_headers_bounded()) as archive:
            for path, packed in _members(archive):
                if path in files:
                    raise BundleError(f"it contains {path!r} twice")
                files[path] = packed
    except (tarfile.TarError, EOFError, zlib.error, OSError, RecursionError) as error:
        raise BundleError(f"it is not a complete gzip tar archive ({error})") from error
    except (ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError("it is not a usable tar archive") from error
    _refuse_clashes(files)
    return Package(files)


def pack(root: Path) -> bytes:
    """A directory as an archive that depends on nothing but the files. Raises `BundleError`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, file, executable in _walk(root, hidden=False):
            content = file.read_bytes()
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(content), 0o755 if executable else 0o644
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def tree_records(root: Path) -> dict[str, FileRecord]:
    """The hash of every file in a directory tree. Raises `BundleError` for links and devices."""
    records = {}
    for path, file, executable in _walk(root, hidden=True):
        with file.open("rb") as stream:
            records[path] = FileRecord(
                hashlib.file_digest(stream, "sha256").hexdigest(), executable
            )
    return records


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, PackedFile]]:
    total = seen = 0
    for member in archive:
        seen += 1
        if seen > MOST_FILES:
            raise BundleError(f"it has more than {MOST_FILES} members")
        name = member.name.removeprefix("./").rstrip("/")
        if member.isdir():
            if name not in ("", "."):
                _check_path(name)
            continue
        if not member.isreg() or member.issparse():
            raise BundleError(f"{clean(member.name[:80])!r} is neither a file nor a directory")
        path = _check_path(name)
        total += member.size
        if total > LARGEST_UNPACKED:
            raise BundleError(f"it unpacks to more than {LARGEST_UNPACKED} bytes")
        reader = archive.extractfile(member)
        content = reader.read() if reader else b""
        if len(content) != member.size:
            raise BundleError(f"{path} is truncated")
        yield path, PackedFile(content, bool(member.mode & 0o100))


def _headers_bounded() -> type[tarfile.TarInfo]:
    """What reads the headers of one archive, and refuses more than an honest one has."""
    left = MOST_STEPS

    class Header(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, *given: Any, **named: Any) -> Self:
            """One header; those that only describe the next member are bounded."""
            nonlocal left
            found = super().frombuf(*given, **named)
            if found.size < 0:
                raise BundleError("it contains a member of less than no bytes")
            if found.type in _DESCRIBING:
                left -= found.size**2
                if found.size > LONGEST_HEADER or left < 0:
                    raise BundleError("its headers are too long")
            return found

    return Header


def _check_path(name: str) -> str:
    try:
        path = str(check_relative(name))
    except EscapeError as error:
        raise BundleError(str(error)) from error
    hidden = visible(path) != path or "\n" in path or "\t" in path
    if len(path) > LONGEST_PATH or hidden or not _is_unicode(path):
        raise BundleError(f"{visible(clean(name[:80]))!r} is not a usable path")
    return path


def _is_unicode(path: str) -> bool:
    """Whether a path can be written down; bytes that are no UTF-8 arrive as lone surrogates."""
    return clean(path) == path


def _refuse_clashes(files: Mapping[str, PackedFile]) -> None:
    folded: set[str] = set()
    for path in files:
        key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
        if key in folded:
            raise BundleError(
                f"it contains {path!r} twice, differing only in case or accents' form"
            )
        folded.add(key)
    for path in folded:
        parent = path.rpartition("/")[0]
        while parent:
            if parent in folded:
                raise BundleError(f"{parent!r} is both a file and a directory")
            parent = parent.rpartition("/")[0]


def _walk(root: Path, *, hidden: bool) -> Iterator[tuple[str, Path, bool]]:
    """Every regular file, in order; byte code and, unless asked for, hidden files are left out."""
    for directory, folders, files in os.walk(root):
        here = Path(directory)
        if not hidden:
            folders[:] = [name for name in folders if name != "__pycache__" and name[0] != "."]
            files = [name for name in files if name[0] != "." and not name.endswith(".pyc")]
        folders.sort()
        for name in [*folders, *sorted(files)]:
            file = here / name
            mode = file.lstat().st_mode
            path = file.relative_to(root).as_posix()
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise BundleError(f"{path} is neither a file nor a directory")
            yield path, file, bool(mode & 0o100)


class _Bounded(io.RawIOBase):
    """A reader that stops at a limit, whatever an archive expands to."""

    def __init__(self, stream: io.BufferedIOBase, limit: int) -> None:
        super().__init__()
        self._stream = stream
        self._left = limit + _CHUNK  # headers and padding come on top of the files

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise BundleError(f"it unpacks to more than {LARGEST_UNPACKED} bytes")
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        return True
