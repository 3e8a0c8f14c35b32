"""What a person does to a home and to a pack, in any order."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.deploy.playground import PACKS, PROJECTS, Playground, all_paths, entry_at, executable
from tests.deploy.promise import File, Promise

PATHS = [*all_paths(), "user/.codex/prompts/mine.md", "project/.claude/settings.json"]
MODES = st.sampled_from([0o600, 0o640, 0o644])
spot, pack = st.integers(0, 999), st.sampled_from(list(PACKS))
module = st.sampled_from([(pack, module) for pack, names in PACKS.items() for module in names])


class Person(RuleBasedStateMachine):
    """A person with a home, two packs and two projects: what happens without deploy."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="world-"))
        self.place = Playground(self.root)
        self.now = Promise()
        self.texts = itertools.count()
        self.versions = itertools.count()
        self.mine: set[bytes] = set()  # what the user wrote and has not replaced
        self.folders: set[str] = set()  # directories that the user made
        self.visited: set[str] = set()  # those of deploy that the user has put something into
        self.made: set[str] = set()  # those of deploy, also if they were deleted since

    # What a person does.

    @initialize(
        files=st.dictionaries(spot, MODES, max_size=6),
        links=st.sets(spot, max_size=2),
        folders=st.sets(st.sampled_from(["user/.codex/prompts", "project/.claude/commands"])),
        modules=st.sets(module, min_size=2, max_size=5),
        same=st.sets(spot, max_size=3),
    )
    def begin(
        self,
        files: dict[int, int],
        links: set[int],
        folders: set[str],
        modules: set[tuple[str, str]],
        same: set[int],
    ) -> None:
        """A home that has files already, as every user's has."""
        for where, name in sorted(modules):
            self.place.put(where, name, next(self.versions))
        self.write("user/notes.md", 0o600)
        for folder in folders:
            self._make_folder(folder)
        for one, mode in files.items():
            self.hand_edit(one, mode)
        for one in sorted(same):
            self.write_what_the_pack_says(one, "first")
        for one in sorted(links):
            self.link(one)

    def _path(self, spot: int) -> str:
        """Some path: often one that a pack has taken, or wants."""
        near = (sorted(self.now.claims), sorted(self.place.wanted("first", "project")), PATHS)
        some = near[spot % 3] or PATHS
        return some[spot // 3 % len(some)]

    @rule(spot=spot, mode=MODES)
    def hand_edit(self, spot: int, mode: int) -> None:
        self.write(self._path(spot), mode)

    @rule(spot=spot, where=pack)
    def write_what_the_pack_says(self, spot: int, where: str) -> None:
        """The user's own file happens to have the pack's text."""
        path = self._path(spot)
        want = self.place.wanted(where, path.partition("/")[0]).get(path)
        if want and path not in self.now.claims and path not in self.now.left:
            self.write(path, want.mode, want.data)

    @rule(spot=spot)
    def delete_by_hand(self, spot: int) -> None:
        path = self._path(spot)
        if self.now.found(path) is not None:
            self._forget(path)
            (self.root / path).unlink()
            self._saw(path)

    @rule(folder=st.sampled_from(["user/.codex/skills", "user/.claude", "project/.codex"]))
    def delete_a_folder(self, folder: str) -> None:
        """With the manifests of deploy that are in it."""
        gone = [name for name in self.now.disk if name.startswith(f"{folder}/")]
        for name in gone:
            self._forget(name)
        shutil.rmtree(self.root / folder, ignore_errors=True)
        for name in gone:
            self._saw(name)
        self.folders = {name for name in self.folders if not f"{name}/".startswith(f"{folder}/")}

    @rule()
    def delete_the_manifests(self) -> None:
        for name in self.place.manifests():
            Path(name).unlink()

    @rule(spot=spot, mode=MODES)
    def chmod(self, spot: int, mode: int) -> None:
        path = self._path(spot)
        found = self.now.found(path)
        if isinstance(found, File):
            (self.root / path).chmod(executable(mode) if found.mode & 0o100 else mode)
            self._saw(path)

    @rule(spot=spot)
    def link(self, spot: int) -> None:
        path = self._path(spot)
        self._forget(path)
        self._make_folder(os.path.dirname(path))
        place = self.root / path
        place.unlink(missing_ok=True)
        place.symlink_to(self.root / "user/notes.md")
        self._saw(path)

    def write(self, path: str, mode: int, data: bytes | None = None) -> None:
        """As an editor does that saves in place."""
        self._forget(path)
        self._make_folder(os.path.dirname(path))
        place = self.root / path
        if place.is_symlink():
            place.unlink()
        text = data or f"the user's text {next(self.texts)}\n".encode()
        place.write_bytes(text)
        place.chmod(executable(mode) if path.endswith(".sh") else mode)
        self.mine.add(text)
        self._saw(path)

    def _forget(self, path: str) -> None:
        found = self.now.found(path)
        if isinstance(found, File):
            self.mine.discard(found.data)

    def _saw(self, path: str) -> None:
        self.now.disk.pop(path, None)
        if (found := entry_at(str(self.root / path))) is not None:
            self.now.disk[path] = found

    def _make_folder(self, folder: str) -> None:
        if folder not in ("user", *PROJECTS):
            self._make_folder(os.path.dirname(folder))
            there = (self.root / folder).exists() or folder in self.made
            (self.visited if there else self.folders).add(folder)
            (self.root / folder).mkdir(exist_ok=True)

    # What happens to a pack.

    @rule(which=module)
    def add_or_change_a_module(self, which: tuple[str, str]) -> None:
        self.place.put(*which, next(self.versions))

    @rule(which=module)
    def drop_a_module(self, which: tuple[str, str]) -> None:
        if which[1] in self.place.modules[which[0]]:
            self.place.drop(*which)
