"""Places that no tool is given, whoever names them: keys, programs' own files, `.git`, sockets."""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_agentpack.enact.errors import EnactError

if TYPE_CHECKING:
    from fleet_agentpack.enact.settings import EnactSettings

SYSTEM = (
    *("/proc", "/sys", "/dev", "/run", "/var/run", "/boot"),
    *("/etc/ssl/private", "/etc/ssh", "/etc/shadow", "/etc/gshadow", "/etc/sudoers"),
)
# What runs later or outside of a tool, or belongs to another program: hidden wherever it is.
PROTECTED = frozenset(
    {
        *(".git", ".enact", ".claude", ".codex", ".cursor", ".gemini", ".windsurf", ".vscode"),
        *(".idea", ".zed", ".devcontainer", ".husky", ".mcp.json", ".envrc", ".kiro", ".roo"),
        *(".opencode", ".continue", ".amazonq", ".junie"),
    }
)
# Keys and passwords: hidden wherever they are, but a tool may make such a file.
KEYS = frozenset(
    {
        *(".env", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials"),
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk"),
    }
)
# What makes git take a directory for a repository's own, whatever it is called.
_MARKS = frozenset({"head", "commondir", "config"})
_EXAMPLES = (".example", ".sample", ".template", ".dist")  # of `.env`, without keys
# Where programs keep their files in a home, besides its dot directories.
_OF_PROGRAMS = (
    *("snap", "AppData", "Library/Keychains", "Library/Application Support", "Library/Containers"),
    *("Library/Cookies", "Library/LaunchAgents", "Library/Mail", "Library/Messages"),
    *("Library/Preferences", "Library/Safari"),
)
MOST_SEARCHED = 200_000  # entries of a directory that is only read, nearest first
MOST_HIDDEN = 1_000  # each is a mount


@dataclass(frozen=True)
class DenyList:
    """What is out of reach on this machine, and where the person works."""

    home: Path
    project: Path | None
    own: Sequence[Path]  # this program's state, and installed tools

    @classmethod
    def of(cls, settings: EnactSettings) -> DenyList:
        """The list for this user and this project."""
        return cls(settings.home, settings.project, (settings.root, *settings.own))

    def reason(self, path: Path) -> str | None:
        """Why a resolved path is out of reach; None when it is not."""
        system = [*map(Path, SYSTEM)]
        if path == Path("/") or any(_is_in(path, each) for each in system):
            return "cannot be passed to a tool"
        if any(_is_in(each, path) for each in system):
            return "holds files of the system that are out of a tool's reach: choose one inside it"
        if any(is_protected(part) for part in path.parts):
            return "belongs to git or to another program, and is out of a tool's reach"
        if any(is_repository(each) for each in (path, *path.parents)):
            return "belongs to a repository of git, and is out of a tool's reach"
        if any(_is_key(part) for part in path.parts):
            return "holds keys or passwords, by its name, and is out of a tool's reach"
        home = self.home.resolve()
        own = [each.resolve() for each in self.own]
        if any(_is_in(path, each) for each in own):
            return "belongs to this program, and is out of a tool's reach"
        if _is_in(home, path):
            return "holds your whole home: choose a directory inside it"
        if any(_is_in(each, path) for each in own):
            return "holds files of this program: choose a directory inside it"
        if self._is_private(path, home):
            return "is a program's own file or directory in your home, and out of a tool's reach"
        return None

    def is_work(self, path: Path) -> bool:
        """Whether a tool may change a directory without a grant."""
        return self._in_project(path)

    def inside(self, path: Path, *, writable: bool) -> tuple[Path, ...]:
        """What is hidden in a directory that a tool is given. Raises `EnactError`.

        All of it where the tool may change the directory; else what a search of some length finds.
        """
        if not path.is_dir():
            return ()
        found = _entries(path) if writable else islice(_entries(path), MOST_SEARCHED)
        places = (_hidden_place(path, each) for each, owned in found if owned or _is_hidden(each))
        hidden = tuple(dict.fromkeys(islice(filter(None, places), MOST_HIDDEN + 1)))
        if len(hidden) > MOST_HIDDEN:
            reason = "has too much that would have to be hidden: choose a directory inside it"
            raise EnactError.bad_argument("path", f"{path} {reason}")
        return hidden

    def _is_private(self, path: Path, home: Path) -> bool:
        """Whether a path is in a program's own directory of the home other than the project."""
        below = _folded(path)[len(home.parts) :] if _is_in(path, home) else ()
        if not below:
            return False
        places = [home / each for each in _OF_PROGRAMS]
        of_program = any(
            _is_in(path, each) or (_is_in(each, path) and each.exists()) for each in places
        )
        if not (below[0].startswith(".") or of_program):
            return False
        project = self.project.resolve() if self.project else home
        works_there = project != home and project.is_relative_to(home)
        return not (works_there and self._in_project(path))

    def _in_project(self, path: Path) -> bool:
        return self.project is not None and path.is_relative_to(self.project.resolve())


def is_protected(name: str) -> bool:
    """Whether something of this name runs later, or belongs to another program."""
    plain = _fold(name)
    return plain in PROTECTED or plain.endswith(".git")


def is_repository(path: str | Path) -> bool:
    """Whether git takes a directory for a repository's own, and runs what it names there."""

    def has(name: str) -> bool:
        return os.path.lexists(os.path.join(path, name))  # noqa: PTH118 - it is called often

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


def protected_in(path: Path) -> Iterator[Path]:
    """The protected names in a directory and below it; a link of such a name is one too."""
    return (Path(each.path) for each, _ in _entries(path) if is_protected(each.name))


def marks_in(path: Path) -> Iterator[Path]:
    """The files that could make a directory a repository."""
    named = (each for each, _ in _entries(path) if _fold(each.name) in _MARKS)
    return (Path(each.path) for each in named if not each.is_dir(follow_symlinks=False))


def _entries(path: Path) -> Iterator[tuple[os.DirEntry[str], bool]]:
    """Everything in a directory, nearest first, and whether it is a repository's own.

    Nothing inside what is protected, or inside a repository's own directories.
    """
    level = [str(path)]
    while level:
        below: list[str] = []
        for folder in level:
            owned = is_repository(folder)
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    yield entry, owned
                    is_open = not owned and not is_protected(entry.name)
                    if is_open and entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
        level = below


def _is_hidden(entry: os.DirEntry[str]) -> bool:
    """Whether a tool must not see it; through a pipe or socket it could speak to a program."""
    if is_protected(entry.name) or _is_key(entry.name):
        return True
    is_plain = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
    return not (is_plain or entry.is_symlink())


def _hidden_place(root: Path, entry: os.DirEntry[str]) -> Path | None:
    """What has to be hidden: of a link, where it leads, if the tool sees that."""
    if not entry.is_symlink():
        return Path(entry.path)
    with contextlib.suppress(OSError, RuntimeError):
        target = Path(entry.path).resolve(strict=True)
        return target if target != root and target.is_relative_to(root) else None
    return None


def _is_key(name: str) -> bool:
    plain = _fold(name)
    return plain in KEYS or (plain.startswith(".env.") and not plain.endswith(_EXAMPLES))


def _is_in(path: Path, place: Path) -> bool:
    """Whether a path is a place or below it, as a file system sees it that ignores case."""
    return _folded(path)[: len(place.parts)] == _folded(place)


def _folded(path: Path) -> tuple[str, ...]:
    return tuple(map(_fold, path.parts))


def _fold(name: str) -> str:
    """A name as it is compared: some file systems ignore case, and characters without a width."""
    if name.isascii():
        return name.lower()
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(each for each in plain if unicodedata.category(each) != "Cf")
