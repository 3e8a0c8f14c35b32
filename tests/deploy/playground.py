"""A small world with two packs and two projects, for a person and deploy to work in."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet_agentpack.kit import yaml12
from tests.deploy.lab import COMMAND, SKILL, Lab
from tests.deploy.promise import Entry, File, Link, Wanted
from tests.deploy.shell import QuickShell
from tests.kit.mortal import in_child

MANIFEST = ".agentpack.manifest"
BOTH = {"mode": "files", "scope": "both", "options": {}}
PACKS = {
    "first": ("instructions:base", "prompt:alpha", "prompt:beta", "command:go", "skill:tidy"),
    "second": ("prompt:alpha", "prompt:gamma", "command:stop"),
}
PROJECTS = ("project", "other")
EFFECTS = frozenset(
    f"os.{name}"
    for name in ("rename", "remove", "mkdir", "rmdir", "link", "symlink", "chmod", "truncate")
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class OwnCaches(Lab):
    """A lab that keeps its caches to itself, outside the home that is looked at."""

    @property
    def environ(self) -> dict[str, str]:
        names = ("CACHE", "CONFIG", "DATA", "STATE")
        places = {f"XDG_{name}_HOME": str(self.root / "xdg" / name) for name in names}
        return {**super().environ, **places}


class Playground:
    """Two packs, two projects, one home; nothing in it is outside `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lab = OwnCaches(root, git=False)
        self.modules: dict[str, dict[str, int]] = {"first": {}, "second": {}}
        self.repos = {"first": self.lab.repo, "second": root / "packs/second"}
        for project in PROJECTS:
            (root / project).mkdir(exist_ok=True)
        for pack in PACKS:
            self._save(pack)

    # The packs.

    def put(self, pack: str, module: str, version: int) -> None:
        """Add a module to a pack, or change it."""
        self.modules[pack][module] = version
        kind, name = module.split(":")
        for file, (text, mode) in _sources(pack, kind, name, version).items():
            path = self.repos[pack] / "modules" / kind / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            path.chmod(mode)
        self._save(pack)

    def drop(self, pack: str, module: str) -> None:
        """Take a module out of a pack."""
        del self.modules[pack][module]
        self._save(pack)

    def _save(self, pack: str) -> None:
        rows = [
            {
                "id": module,
                "type": module.split(":")[0],
                "tags": ["base"],
                "source": {"local_path": {"path": f"modules/{module.replace(':', '/')}"}},
            }
            for module in self.modules[pack]
        ]
        document = {
            "version": 1,
            "profiles": {"default": {"include_tags": ["base"]}},
            "targets": {"codex": BOTH, "claude_code": BOTH},
            "modules": rows,
        }
        self.repos[pack].mkdir(parents=True, exist_ok=True)
        (self.repos[pack] / "agentpack.yaml").write_text(yaml12.dump(document))

    def wanted(self, pack: str, project: str) -> dict[str, Wanted]:
        """The files that a pack wants when it is deployed from a project."""
        found: dict[str, Wanted] = {}
        for module, version in self.modules[pack].items():
            kind, name = module.split(":")
            sources = _sources(pack, kind, name, version)
            for place in _places(kind, name, project):
                for file, (text, mode) in sources.items():
                    path = f"{place}/{file}" if kind == "skill" else place
                    found[path] = Wanted(text, mode & ~_umask())
        return found

    # The disk.

    def disk(self) -> dict[str, Entry]:
        """Every file and link that is not the engine's own."""
        found: dict[str, Entry] = {}
        for top in ("user", *PROJECTS):
            for folder, folders, names in os.walk(self.root / top):
                links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
                for name in [*names, *links]:
                    path = os.path.join(folder, name)
                    if not name.startswith(MANIFEST):
                        found[os.path.relpath(path, self.root)] = entry_at(path)
        return found

    def manifests(self) -> list[str]:
        """The engine's own files outside its home."""
        tops = ("user", *PROJECTS)
        return [str(path) for top in tops for path in (self.root / top).rglob(f"{MANIFEST}*")]

    def folders(self) -> set[str]:
        """Every directory."""
        tops = [self.root / top for top in ("user", *PROJECTS)]
        found = [path for top in tops for path in top.rglob("*")]
        return {os.path.relpath(p, self.root) for p in found if p.is_dir() and not p.is_symlink()}

    def kept(self) -> set[bytes]:
        """The content of every file in the engine's state."""
        state = self.lab.home_dir / "state"
        return {path.read_bytes() for path in state.rglob("*") if path.is_file()}

    # The command line.

    def shell(self, project: str = "project") -> QuickShell:
        """The command line in a project."""
        return QuickShell(self.lab, self.root / project)

    def killed(self, project: str, words: tuple[str, ...], effect: int) -> int:
        """Run a command in a process that is killed before its n-th effect on a disk."""
        shell = self.shell(project)

        def work() -> None:
            sys.addaudithook(_killer(effect))
            os._exit(shell.attempt(*words).returncode)

        return in_child(work)


def entry_at(path: str) -> Entry:
    """What is at a path."""
    if os.path.islink(path):
        return Link(os.readlink(path))
    if not os.path.exists(path):
        return None
    return File(Path(path).read_bytes(), stat.S_IMODE(os.stat(path).st_mode))


def all_paths() -> list[str]:
    """Every path that some pack may want."""
    found: dict[str, None] = {}
    for pack, modules in PACKS.items():
        for module in modules:
            kind, name = module.split(":")
            for project in PROJECTS:
                for place in _places(kind, name, project):
                    files = _sources(pack, kind, name, 0) if kind == "skill" else [""]
                    found.update(dict.fromkeys(f"{place}/{file}".rstrip("/") for file in files))
    return list(found)


def executable(mode: int) -> int:
    """The mode of a script that those may run who may read it."""
    return mode | (mode & 0o444) >> 2


def texts(disk: dict[str, Entry]) -> set[bytes]:
    """What all files say."""
    return {each.data for each in disk.values() if isinstance(each, File)}


def scope(where: str) -> Callable[[str], bool]:
    """Whether a deploy from this project looks after a path."""
    return lambda name: name.startswith(("user/", f"{where}/"))


def repo(place: Playground, which: str) -> tuple[str, ...]:
    """The words that name a pack."""
    return ("--repo", str(place.repos[which]))


def deploying(place: Playground, which: str, *, adopt: bool) -> tuple[str, ...]:
    """The words that deploy a pack."""
    words = ("deploy", "--apply", "--yes", "--allow-mass-delete", *repo(place, which))
    return (*words, "--adopt") if adopt else words


def uninstalling(which: str, where: str) -> tuple[tuple[str, ...], Callable[[str], bool]]:
    """The words that uninstall a part, and whether a path is in it."""
    words = ("uninstall", "--yes")
    if which == "--user":
        return (*words, which), lambda name: name.startswith("user/")
    if which == "--project":
        return (*words, which), lambda name: name.startswith(f"{where}/")
    if which:
        claude = which == "claude_code"
        return (*words, "--target", which), lambda name: ("/.claude/" in name) == claude
    return words, lambda _name: True


def _sources(pack: str, kind: str, name: str, version: int) -> dict[str, tuple[bytes, int]]:
    """The files of a module, with their modes."""
    text = f"{pack}'s {name}, version {version}\n"
    if kind == "instructions":
        return {"AGENTS.md": (text.encode(), 0o644)}
    if kind == "prompt":
        return {f"{name}.md": (text.encode(), 0o644)}
    if kind == "command":
        return {f"{name}.md": ((COMMAND.format(name=name) + text).encode(), 0o644)}
    return {
        "SKILL.md": ((SKILL.format(name=name) + text).encode(), 0o644),
        "bin/run.sh": (f"#!/bin/sh\n# {text}".encode(), 0o755),
        "secret.txt": (f"secret: {text}".encode(), 0o600),
    }


def _places(kind: str, name: str, project: str) -> list[str]:
    return {
        "instructions": ["user/.codex/AGENTS.md", f"{project}/AGENTS.md"],
        "prompt": [f"user/.codex/prompts/{name}.md"],
        "command": [f"user/.claude/commands/{name}.md", f"{project}/.claude/commands/{name}.md"],
        "skill": [f"user/.codex/skills/{name}", f"{project}/.codex/skills/{name}"],
    }[kind]


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _killer(fatal: int) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that kills the process before its n-th effect on a disk."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in EFFECTS or (event == "open" and arguments[2] & WRITING):
            if seen == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    return hook
