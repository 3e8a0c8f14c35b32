"""A kill, a full disk, a refusal at every step of a swap: old or new, for files and directories."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.kit.disk import Disk
from fleet_agentpack.kit.journal import SwapError
from fleet_agentpack.kit.swap import Area, Swap
from tests.kit.mortal import Counting, Failing, Mortal, in_child

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills and links of POSIX")


def area(root: Path) -> Area:
    own = root / "own"
    return Area(own / "stages/journal.json", own / "stages", own / "kept", (root / "tidy",))


def put(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def world(root: Path) -> None:
    """One of everything that a swap may meet."""
    put(root / "files/updated", "old", 0o600)
    put(root / "files/removed", "old", 0o755)
    put(root / "files/behind", "behind a link")
    (root / "files/linked").symlink_to("behind")
    put(root / "folders/updated/a", "old a")
    put(root / "folders/updated/deep/b", "old b", 0o755)
    put(root / "folders/removed/a", "old a")
    put(root / "folders/now a file/a", "old a")
    put(root / "folders/now a folder", "old")
    put(root / "tidy/deep/er/removed.txt", "old")


def folder(text: str) -> Callable[[Path], None]:
    def build(place: Path) -> None:
        put(place / "a", text)
        put(place / "deep/c", text, 0o755)
        (place / "link").symlink_to("a")

    return build


def swap_all(root: Path, disk: Disk | None = None) -> None:
    Swap(area(root), disk).replace(
        {
            root / "files/updated": b"new",
            root / "files/removed": None,
            root / "files/linked": b"new, no link",
            root / "files/deep/er/created": b"new",
            root / "folders/updated": folder("new"),
            root / "folders/removed": None,
            root / "folders/deep/er/created": folder("created"),
            root / "folders/now a file": b"new",
            root / "folders/now a folder": folder("new"),
            root / "tidy/deep/er/removed.txt": None,
        }
    )


def seen(root: Path) -> dict[str, Any]:
    """Everything below a root but the swap's own marks: kind, mode and content."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name == "own" or name.startswith("own/"):
            continue
        if name.startswith("tidy/") and path.is_dir() and not list(path.rglob("*.*")):
            continue  # an empty directory there is nobody's loss
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.is_file() and (path.stat().st_mode & 0o777, path.read_bytes())
    return found


def marks(root: Path) -> list[str]:
    """What a finished swap must not leave: stages, the journal, temporary files."""
    own = root / "own"
    left = [str(path) for path in own.rglob("*")] if own.exists() else []
    return left + [str(path) for path in root.rglob(".agentpack-tmp-*")]


class Trial:
    """Copies of one world, so that every step can be tried from the same start."""

    def __init__(self, root: Path) -> None:
        self.live, self._frozen = root / "live", root / "frozen"
        world(self._frozen)
        self.before = seen(self.fresh())
        disk = Counting()
        swap_all(self.live, disk)
        self.steps = disk.steps
        self.after = seen(self.live)
        assert marks(self.live) == []

    def fresh(self) -> Path:
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self._frozen, self.live, symlinks=True)
        return self.live

    def outcome(self) -> str:
        found = seen(self.live)
        assert found in (self.before, self.after)
        return "old" if found == self.before else "new"


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def kill_at(root: Path, step: int, *, halfway: bool = False) -> int:
    disk = Mortal()
    disk.fatal, disk.halfway = step, halfway
    return in_child(lambda: swap_all(root, disk))


def test_a_swap_does_all_that_was_asked(trial: Trial) -> None:
    assert trial.after["files/updated"] == (0o600, b"new")
    assert trial.after["files/linked"][1] == b"new, no link"
    assert trial.after["files/deep/er/created"][1] == b"new"
    assert trial.after["folders/updated/deep/c"] == (0o755, b"new")
    assert trial.after["folders/updated/link"] == "a"
    assert trial.after["folders/now a file"][1] == b"new"
    assert trial.after["folders/now a folder/a"][1] == b"new"
    gone = ("files/removed", "folders/removed", "folders/updated/deep/b")
    assert not set(gone) & set(trial.after)
    assert list((trial.live / "tidy").iterdir()) == []


@pytest.mark.parametrize("halfway", [False, True])
def test_a_kill_at_any_step_leaves_old_or_new(trial: Trial, halfway: bool) -> None:
    outcomes = []
    for number, name in enumerate(trial.steps):
        if halfway and name != "create":
            continue
        root = trial.fresh()
        assert kill_at(root, number, halfway=halfway) == -signal.SIGKILL
        pending = Swap(area(root)).is_pending
        recovered = Swap(area(root)).recover()
        assert (recovered is not None) == pending
        assert recovered is None or (recovered.finished and recovered.left == ())
        outcomes.append(trial.outcome())
        assert marks(root) == []
    assert outcomes == sorted(outcomes, reverse=True)  # old first, and once new always new
    assert set(outcomes) == {"old", "new"}


def test_a_kill_during_recovery_is_recovered_from(trial: Trial) -> None:
    for fatal in [n for n, name in enumerate(trial.steps) if name == "rename"]:
        root = trial.fresh()
        kill_at(root, fatal)
        pending = Swap(area(root)).is_pending
        for number in range(100):
            disk = Mortal()
            disk.fatal = number
            if in_child(Swap(area(root), disk).recover) == 0:
                break
        assert trial.outcome() == ("new" if pending else "old")
        assert marks(root) == []


def committed(steps: list[str]) -> int:
    """The step that drops the journal."""
    return max(number for number, name in enumerate(steps) if name == "remove")


@pytest.mark.parametrize(("code", "lasting"), [(errno.ENOSPC, True), (errno.EACCES, False)])
def test_an_error_at_any_step_goes_back_at_once(trial: Trial, code: int, lasting: bool) -> None:
    for number, name in enumerate(trial.steps):
        if name == "remove_tree":  # never fails: what stays is removed the next time
            continue
        root = trial.fresh()
        disk = Failing()
        disk.number, disk.code, disk.lasting = number, code, lasting
        finished = number > committed(trial.steps)  # only rubbish is left to remove
        try:
            swap_all(root, disk)
        except OSError as error:
            assert error.errno == code
            assert trial.outcome() == ("new" if finished else "old"), (number, name)
        else:
            # a link that cannot be made is replaced by a copy
            assert finished or (name == "link" and code == errno.EACCES), (number, name)
            assert trial.outcome() == "new"
        assert not Swap(area(root)).is_pending
        Swap(area(root)).recover()
        assert marks(root) == []


def test_a_kill_while_going_back_is_finished(trial: Trial) -> None:
    """Every step back leaves a state that can still go forward."""
    middle = [n for n, name in enumerate(trial.steps) if name == "rename"][-2]

    class Doomed(Mortal, Failing):
        def at_step(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
            Mortal.at_step(self, number, name, arguments)
            Failing.at_step(self, number, name, arguments)

    outcomes = set()
    for later in range(1, 60):
        root = trial.fresh()
        disk = Doomed()
        disk.number, disk.code, disk.fatal = middle, errno.EACCES, middle + later
        status = in_child(lambda root=root, disk=disk: swap_all(root, disk))
        Swap(area(root)).recover()
        outcomes.add(trial.outcome())
        assert marks(root) == []
        if status == 1:  # it lived through all of it
            break
        assert status == -signal.SIGKILL
    assert outcomes == {"old", "new"}


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("files/updated", "files/updated"),
        ("files/deep/er/created", "files/deep/er/created"),
        ("folders/updated/deep/b", "folders/updated"),
        ("folders/removed/more", "folders/removed"),
        ("folders/deep/er/created", "folders/deep/er/created"),
    ],
)
def test_what_is_neither_old_nor_new_is_left_alone_and_named(
    trial: Trial, path: str, changed: str
) -> None:
    root = trial.fresh()
    journaled = trial.steps.index("rename") + 1
    assert kill_at(root, journaled) == -signal.SIGKILL
    put(root / path, "somebody else's")
    recovered = Swap(area(root)).recover()
    assert recovered is not None and recovered.finished
    assert [text.split(" was ")[0] for text in recovered.left] == [str(root / changed)]
    assert (root / path).read_text() == "somebody else's"
    found = seen(root)
    assert {n: v for n, v in found.items() if not n.startswith(changed)} == {
        n: v for n, v in trial.after.items() if not n.startswith(changed)
    }
    if (root / changed).is_file():
        kept = list((root / "own/kept").rglob("*.found"))
        assert [each.read_text() for each in kept] == ["somebody else's"]
    assert list((root / "own").iterdir()) == [root / "own/kept"]


def test_a_change_between_staging_and_swapping_stops_the_swap(trial: Trial) -> None:
    root = trial.fresh()

    def meanwhile(place: Path) -> None:
        folder("new")(place)
        put(root / "files/updated", "edited meanwhile")

    with pytest.raises(SwapError) as raised:
        Swap(area(root)).replace({root / "files/updated": b"x", root / "folders/new": meanwhile})
    assert (raised.value.kind, raised.value.path) == ("changed", str(root / "files/updated"))
    assert (root / "files/updated").read_text() == "edited meanwhile"
    assert not (root / "folders/new").exists()
    assert marks(root) == []


def test_recovery_that_cannot_go_forward_goes_back(trial: Trial) -> None:
    root = trial.fresh()
    last = [n for n, name in enumerate(trial.steps) if name == "rename"][-1]
    assert kill_at(root, last) == -signal.SIGKILL
    disk = Failing()
    disk.number, disk.code = 0, errno.EACCES
    recovered = Swap(area(root), disk).recover()
    assert recovered is not None and not recovered.finished
    assert trial.outcome() == "old"
    assert marks(root) == []


def test_recovery_that_can_do_neither_says_so_and_is_tried_again(trial: Trial) -> None:
    root = trial.fresh()
    last = [n for n, name in enumerate(trial.steps) if name == "rename"][-1]
    kill_at(root, last)

    class Refusing(Counting):
        def at_step(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
            raise PermissionError(errno.EACCES, "refused", arguments[0])

    with pytest.raises(SwapError, match="refused") as raised:
        Swap(area(root), Refusing()).recover()
    assert raised.value.kind == "stuck"
    assert Swap(area(root)).recover() is not None
    assert trial.outcome() == "new"


def test_a_function_that_fails_leaves_nothing(trial: Trial) -> None:
    root = trial.fresh()

    def fail(place: Path) -> None:
        folder("half")(place)
        raise KeyError("no")

    with pytest.raises(KeyError):
        Swap(area(root)).replace({root / "files/updated": b"x", root / "folders/new": fail})
    assert trial.outcome() == "old" and marks(root) == []


def test_a_journal_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    for text in ("{", '{"version": 1}', "[]"):
        put(area(tmp_path).journal, text)
        with pytest.raises(SwapError) as raised:
            Swap(area(tmp_path)).recover()
        assert raised.value.kind == "unreadable"
        assert area(tmp_path).journal.read_text() == text


def test_nothing_pending_is_nothing_recovered(tmp_path: Path) -> None:
    assert Swap(area(tmp_path)).recover() is None
    put(tmp_path / "own/stages/half/after/0", "rubbish")
    assert Swap(area(tmp_path)).recover() is None
    assert marks(tmp_path) == []


def test_a_special_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError):
        Swap(area(tmp_path)).replace({tmp_path / "pipe": b"x"})
    assert (tmp_path / "pipe").is_fifo() and marks(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("durable", [False, True])
def test_contents_and_names_are_synced_only_when_asked_for(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    root = trial.fresh()
    swap_all(root, Disk(durable=durable))
    if not durable:
        assert synced == []
        return
    journaled = synced.index(f"{root}/own/stages")
    assert any(path.endswith("/after/4/deep") for path in synced[:journaled]), "staged names"
    assert any("/.agentpack-tmp-" in path for path in synced[journaled:]), "new contents"
    assert {f"{root}/files", f"{root}/folders"} <= set(synced[journaled:]), "new names"
