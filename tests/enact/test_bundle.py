"""Archives: what is unpacked, and every shape of archive that is not."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_agentpack.enact import bundle
from fleet_agentpack.enact.bundle import MOST_FILES, BundleError, pack, tree_records, unpack
from fleet_agentpack.enact.service import EnactService
from tests.enact.fake_registry import FakeRegistry
from tests.enact.kit import configure, manifest, refused, tar_bytes

GOOD = {"enact.yaml": manifest("a/b", scripts={"run": "true"}), "lib/x.txt": "x"}


def member(name: str, kind: bytes, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def huge_zero_file() -> bytes:
    """Ten gigabytes of zeros in a few kilobytes of header and nothing behind it."""
    info = tarfile.TarInfo("zeros")
    info.size = 10 * 1024**3
    return gzip.compress(info.tobuf() + b"\0" * 1024 * 1024)


def gzip_bomb() -> bytes:
    """A real archive that expands to more than the limit, in many small files."""
    chunk = b"\0" * (1024 * 1024)
    return tar_bytes({f"zeros{number}": chunk for number in range(4)})


def too_many(kind: bytes) -> bytes:
    """Empty members, one more than allowed; the reader has to stop before the last one."""
    names = [f"f{number}" for number in range(MOST_FILES + 1 - len(GOOD))]
    return tar_bytes({**GOOD, **{name: member(name, kind) for name in names}})


def sparse() -> bytes:
    return tar_bytes({"s": member("s", tarfile.GNUTYPE_SPARSE)})


HOSTILE = {
    "parent": lambda: tar_bytes({**GOOD, "../escaped": "x"}),
    "deep parent": lambda: tar_bytes({**GOOD, "a/b/../../../escaped": "x"}),
    "absolute": lambda: tar_bytes({**GOOD, "/tmp/escaped": "x"}),
    "backslash": lambda: tar_bytes({**GOOD, "..\\escaped": "x"}),
    "line break": lambda: tar_bytes({**GOOD, "a\nb": "x"}),
    "symbolic link": lambda: tar_bytes(
        {**GOOD, "l": member("l", tarfile.SYMTYPE, linkname="/etc/passwd")}
    ),
    "link inside": lambda: tar_bytes(
        {**GOOD, "l": member("l", tarfile.SYMTYPE, linkname="lib/x.txt")}
    ),
    "hard link": lambda: tar_bytes(
        {**GOOD, "l": member("l", tarfile.LNKTYPE, linkname="lib/x.txt")}
    ),
    "device": lambda: tar_bytes(
        {**GOOD, "d": member("d", tarfile.CHRTYPE, devmajor=1, devminor=5)}
    ),
    "block device": lambda: tar_bytes({**GOOD, "d": member("d", tarfile.BLKTYPE)}),
    "pipe": lambda: tar_bytes({**GOOD, "p": member("p", tarfile.FIFOTYPE)}),
    "directory outside": lambda: tar_bytes({**GOOD, "../d": member("../d", tarfile.DIRTYPE)}),
    "a million files": lambda: too_many(tarfile.REGTYPE),
    "a million directories": lambda: too_many(tarfile.DIRTYPE),
    "ten gigabytes of zeros": huge_zero_file,
    "gzip bomb": gzip_bomb,
    "sparse": sparse,
    "empty": lambda: b"",
    "truncated gzip": lambda: tar_bytes(GOOD)[:-20],
    "truncated tar": lambda: tar_bytes(GOOD, compress=False)[:700],
    "not an archive": lambda: b"hello" * 500,
    "twice": lambda: tar_bytes({**GOOD, "./enact.yaml": "x"}),
    "twice by case": lambda: tar_bytes({**GOOD, "ENACT.yaml": "x"}),
    "file as directory": lambda: tar_bytes({**GOOD, "enact.yaml/x": "x"}),
    "long path": lambda: tar_bytes({**GOOD, "x/" * 300 + "y": "x"}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_and_nothing_is_written(
    service: EnactService,
    registry: FakeRegistry,
    home: Path,
    case: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bundle, "LARGEST_UNPACKED", 3 * 1024 * 1024)
    data = HOSTILE[case]()
    with pytest.raises(BundleError):
        unpack(data)
    configure(home, trust={"policy": "allow"}, registry={"url": registry.url})
    registry.publish("a/b", "1.0.0", data)
    before = sorted(home.rglob("*"))
    with refused("INTEGRITY_FAILED" if case == "empty" else "BUNDLE_INVALID"):
        service.install("a/b")
    assert sorted(home.rglob("*")) == before


def test_a_bundle_without_a_manifest_is_refused(
    service: EnactService, registry: FakeRegistry, home: Path
) -> None:
    configure(home, trust={"policy": "allow"}, registry={"url": registry.url})
    registry.publish("a/b", "1.0.0", tar_bytes({"README.md": "# hello"}))
    with refused("MANIFEST_INVALID"):
        service.install("a/b")


def test_of_a_mode_only_the_executable_bit_survives() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, mode in (("tool", 0o6755), ("data", 0o666)):
            info = tarfile.TarInfo(name)
            info.mode = mode
            archive.addfile(info, io.BytesIO(b""))
    files = unpack(buffer.getvalue()).files
    assert files["tool"].executable and not files["data"].executable


def test_a_packed_directory_depends_only_on_its_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "x").write_text("x")
        (folder / "run").write_text("#!")
        (folder / "run").chmod(0o755)
        (folder / ".hidden").write_text(name)
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "x.pyc").write_text(name)
    assert pack(tmp_path / "one") == pack(tmp_path / "two")
    assert unpack(pack(tmp_path / "one")).files.keys() == {"lib/x", "run"}
    assert unpack(pack(tmp_path / "one")).files["run"].executable


def test_a_directory_with_a_link_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(BundleError):
        pack(tmp_path)
    with pytest.raises(BundleError):
        tree_records(tmp_path)


@given(st.binary(max_size=2000))
@settings(max_examples=150, deadline=None)
def test_random_bytes_are_refused_or_harmless(data: bytes) -> None:
    for candidate in (data, gzip.compress(data), data.ljust(1024, b"\0")):
        try:
            package = unpack(candidate)
        except BundleError:
            continue
        assert all(".." not in path.split("/") for path in package.files)


names = st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), min_size=1, max_size=30)


@given(st.dictionaries(names, st.binary(max_size=50), max_size=5))
@settings(max_examples=150, deadline=None)
def test_what_is_unpacked_always_stays_inside(files: dict[str, bytes]) -> None:
    try:
        package = unpack(tar_bytes(files))
    except (BundleError, ValueError):
        return
    root = Path("/root-of-the-tool")
    for path in package.files:
        assert (root / path).resolve().is_relative_to(root)
        assert len(path) <= bundle.LONGEST_PATH
