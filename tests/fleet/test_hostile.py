"""An agent that attacks: through its home, its objects, its files and what it prints."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet_agentpack.fleet.local import directory_state, repository
from fleet_agentpack.fleet.local import git as local_git
from tests.fleet.local_fleet import LocalFleet, git
from tests.fleet.local_fleet import repository as new_repository
from tests.fleet.test_sandbox import needs_sandbox, said
from tests.fleet.test_surfaces import command

ESCAPE = "\x1b]0;owned\x07\x1b[31mred"


@needs_sandbox
@pytest.mark.parametrize("step", ["next task", "commit"])
async def test_links_in_its_home_do_not_lead_the_sandbox_s_mounts_out(
    local: LocalFleet, home: Path, step: str
) -> None:
    (home / ".gitconfig").write_text("[alias]\n\thello = !echo hello\n")
    target = home / "target"
    target.mkdir()
    local.fleet = local.restarted()
    await local.create("papi")
    # While it is made, the sandbox sees the machine's files under /oldroot.
    plant = f"echo x > work.txt; cd ~ && mv .local was && ln -s /oldroot{target} .local"
    await said(local, plant)
    assert git(local.project, "show", "agent/papi:work.txt") == "x"
    if step == "next task":
        told = await said(local, "git hello; cat ~/was/share/x; ls ~/.local/share && echo y > y")
        assert "hello" in told
        assert git(local.project, "show", "agent/papi:y") == "y"
    assert list(target.iterdir()) == []


@needs_sandbox
async def test_a_file_where_a_mount_has_to_go_locks_nobody_out(
    local: LocalFleet, home: Path
) -> None:
    (home / ".gitconfig").write_text("[alias]\n\thello = !echo hello\n")
    local.fleet = local.restarted()
    await local.create("papi")
    await said(local, "cd ~ && mv .local was && echo in the way > .local")
    assert "hello" in await said(local, "git hello")


def _objects(tree: Path) -> Path:
    return tree / ".git/objects"


def _commit(tree: Path, made: str) -> None:
    commit = git(tree, "commit-tree", made, "-p", "HEAD", "-m", "Made")
    git(tree, "update-ref", "HEAD", commit)


def _mktree(tree: Path, rows: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(tree), "mktree", "--missing"],
        input=rows.encode(),
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def _pipe_as_object(tree: Path) -> None:
    (tree / "y").write_text("y")
    git(tree, "add", "y")
    git(tree, "commit", "--quiet", "-m", "Mine")
    name = git(tree, "rev-parse", "HEAD")
    path = _objects(tree) / name[:2] / name[2:]
    path.unlink()
    os.mkfifo(path)


def _pipe_as_pack(tree: Path) -> None:
    (_objects(tree) / "pack").mkdir(exist_ok=True)
    for end in ("idx", "pack"):
        os.mkfifo(_objects(tree) / f"pack/pack-{'1' * 40}.{end}")


def _endless_links(tree: Path) -> None:
    (_objects(tree) / "ab").symlink_to("/")
    (_objects(tree) / "info").joinpath("commit-graph").symlink_to("/dev/zero")


def _bomb(tree: Path) -> None:
    """Ten to the twelfth files in a few hundred bytes."""
    blob = subprocess.run(
        ["git", "-C", str(tree), "hash-object", "-w", "--stdin"],
        input=b"boom",
        capture_output=True,
        check=True,
    ).stdout.decode()
    kind, name = "100644 blob", blob.strip()
    for _ in range(12):
        name = _mktree(tree, "".join(f"{kind} {name}\td{number}\n" for number in range(10)))
        kind = "040000 tree"
    _commit(tree, name)


def _huge_file(tree: Path) -> None:
    with (tree / "huge.bin").open("wb") as stream:
        stream.truncate(50_000_000_000)  # sparse


def _odd_names(tree: Path) -> None:
    for name in ("--upload-pack=x", "-c", "a\nb", "\x1b[31m", "\udcff", "CON", "a b'\"$(touch z)"):
        (tree / name).write_text("odd")
    git(tree, "checkout", "--quiet", "-b", "x/$(touch$IFS_z)")


def _submodule(tree: Path) -> None:
    (tree / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch\n')
    git(tree, "add", ".gitmodules")
    git(tree, "commit", "--quiet", "-m", "Mine")


def _unrelated(tree: Path) -> None:
    git(tree, "checkout", "--quiet", "--orphan", "new")
    git(tree, "commit", "--quiet", "-m", "From nothing")


ATTACKS: dict[str, Callable[[Path], None]] = {
    "pipe as object": _pipe_as_object,
    "pipe as pack": _pipe_as_pack,
    "endless links": _endless_links,
    "bomb": _bomb,
    "huge file": _huge_file,
    "odd names": _odd_names,
    "submodule": _submodule,
    "unrelated": _unrelated,
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_repository_made_to_hang_or_to_grow_does_neither(
    local: LocalFleet, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((local_git, "GIT_S"), (repository, "FETCH_S")):
        monkeypatch.setattr(module, name, 15.0)  # a step that needs it would fail the test below
    monkeypatch.setattr(directory_state, "MAX_FILES", 2_000)
    await local.create("papi")
    tree = local.tree("papi")
    (tree / "work.txt").write_text("work")
    ATTACKS[attack](tree)
    await local.fleet.show("papi")
    await local.fleet.deletion("papi")
    assert await local.fleet.finished.merging("papi")
    await local.fleet.work("papi")
    message = (await local.fleet.delete("papi")).message
    assert not tree.exists()
    assert git(local.project, "fsck", "--strict") == ""
    kept = [*(local.settings.directories.data / "kept").glob("*/work.txt")]
    if not kept:  # no work is lost, whatever happened to the repository
        assert git(local.project, "show", "agent/papi:work.txt") == "work", message
    if attack == "huge file":
        [huge] = (local.settings.directories.data / "kept").glob("*/huge.bin")
        assert "huge.bin" in message
        huge.unlink()


async def test_a_huge_file_is_left_out_of_the_commit_and_named(local: LocalFleet) -> None:
    await local.create("papi")
    _huge_file(local.tree("papi"))
    await local.work("papi", "write notes.txt text")
    told = (await local.fleet.work("papi")).result or ""
    assert "huge.bin" in told and "too large" in told
    assert git(local.project, "show", "agent/papi:notes.txt") == "text"
    (local.tree("papi") / "huge.bin").unlink()


async def test_objects_of_other_repositories_are_out_of_reach(local: LocalFleet) -> None:
    other = new_repository(local.project.parent / "private")
    (other / "secret.txt").write_text("hunter2")
    git(other, "add", "secret.txt")
    git(other, "commit", "--quiet", "-m", "Secret")
    blob = git(other, "rev-parse", "HEAD:secret.txt")
    await local.create("papi")
    tree = local.tree("papi")
    _commit(tree, _mktree(tree, f"100644 blob {blob}\tgot.txt\n"))
    for lender in (other / ".git/objects", Path("/nowhere")):
        with (_objects(tree) / "info/alternates").open("a") as lenders:
            lenders.write(f"{lender}\n")
    await local.work("papi", "write notes.txt text")
    listed = git(local.project, "ls-tree", "-r", "--name-only", "agent/papi")
    assert "got.txt" not in listed and "notes.txt" in listed
    missing = subprocess.run(["git", "-C", str(local.project), "cat-file", "-e", blob])
    assert missing.returncode != 0


async def test_what_an_agent_writes_does_not_control_the_terminal(local: LocalFleet) -> None:
    await local.create("papi")
    (local.tree("papi") / f"{ESCAPE}.txt").write_text(f"{ESCAPE}\r\n\x9b31m\n")
    await local.work("papi", f"ask {ESCAPE} ok?")
    for words in (["list"], ["show"], ["history"], ["logs"], ["logs", "--raw"], ["diff"]):
        name = [] if words == ["list"] else ["papi"]
        shown = command(local, *words, *name)
        assert "\x1b" not in shown and "\x9b" not in shown and "\x07" not in shown, words
    assert "\x1b" not in command(local, "diff", "papi", "--stat")
    assert "\x1b" not in command(local, "merge", "papi", "--yes")
