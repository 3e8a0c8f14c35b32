"""The files of a git repository or a directory, taken whole and kept inside of it.

A repository is fetched bare and read object by object, never checked out: nothing in it is ever run
or followed, no hook, no filter, no submodule, no symbolic link. What git may talk to is an
allow-list, and nothing that a repository or a marketplace says is read as an option.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fleet_agentpack.forge.access import masked_url
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.names import is_commit, scheme_of
from fleet_agentpack.kit.files import UnreadableError, read_bytes
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock
from fleet_agentpack.kit.paths import EscapeError, check_relative, is_inside
from fleet_agentpack.kit.process import Completed, ProcessTimeoutError, run

QUICK_S = 10.0  # for an answer that somebody waits for
PATIENT_S = 300.0  # for a command that a person started

# Variables of git's that only say how the user reaches servers; all others would move the work.
_KEPT = ("GIT_CONFIG", "GIT_SSH", "GIT_SSL", "GIT_HTTP", "GIT_PROXY")
_OPTIONS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "fetch.writeCommitGraph": "false",
    "credential.interactive": "false",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "30",
}


@dataclass(frozen=True)
class GitEntry:
    """One line of a tree: `mode` is git's, `kind` blob, tree or commit."""

    mode: str
    kind: str
    object_id: str
    size: int


def is_bare_repository(folder: Path) -> bool:
    """Whether a directory is a repository without files of its own."""
    return (folder / "HEAD").is_file() and all((folder / n).is_dir() for n in ("objects", "refs"))


class GitStore:
    """Bare repositories in the cache, one for each URL."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._environ = environ

    def fetch(self, url: str, ref: str = "", *, commit: str = "", deadline_s: float) -> str:
        """The commit that a ref points to now, its files at hand; a given commit is taken as it is.

        Raises `ForgeError`.
        """
        place = self._place(url)
        if commit and self._has(url, commit):
            return commit
        wanted = commit or ref or "HEAD"
        kept = f"refs/forge/{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"
        try:
            with file_lock(place / "forge.lock", timeout_s=deadline_s):
                if not is_bare_repository(place):
                    self._run(url, "init", "--quiet", "--bare", "--template=", "--", str(place))
                depth = ("fetch", "--quiet", "--no-tags", "--depth", "1", "--force")
                self._run(url, *depth, "--", url, f"{wanted}:{kept}", deadline_s=deadline_s)
                found = self._run(url, "rev-parse", f"{kept}^{{commit}}").text.strip()
        except LockTimeoutError as error:
            raise ForgeError.network(f"{masked_url(url)} is being fetched elsewhere") from error
        except OSError as error:
            raise ForgeError.unwritable(Path(error.filename or place), error) from error
        if not is_commit(found) or commit not in ("", found):
            raise _failed(url, "it has another commit than the one asked for")
        return found

    def entries(self, url: str, commit: str) -> dict[str, GitEntry]:
        """Every path of a commit, directories included. Raises `ForgeError`."""
        listed = self._run(url, "ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit)
        found = {}
        for row in listed.stdout.split(b"\0"):
            meta, _, path = row.partition(b"\t")
            if path:
                mode, kind, object_id, size = meta.decode("ascii").split()
                length = int(size) if size.isdigit() else 0
                name = path.decode("utf-8", "surrogateescape")
                found[name] = GitEntry(mode, kind, object_id, length)
        return found

    def read(self, url: str, object_ids: Iterable[str]) -> dict[str, bytes]:
        """The contents of blobs by their ids. Raises `ForgeError` when one is not there."""
        wanted = list(dict.fromkeys(object_ids))
        if not wanted:
            return {}
        asked = "".join(f"{each}\n" for each in wanted).encode()
        answer = self._run(url, "cat-file", "--batch", stdin=asked).stdout
        found, at = {}, 0
        for object_id in wanted:
            end = answer.index(b"\n", at)
            head = answer[at:end].decode("ascii", "replace").split()
            if len(head) != 3:
                raise _failed(url, f"the repository lacks its object {object_id[:12]}")
            size = int(head[2])
            found[object_id] = answer[end + 1 : end + 1 + size]
            at = end + 2 + size
        return found

    def _has(self, url: str, commit: str) -> bool:
        if not is_bare_repository(self._place(url)):
            return False
        return self._run(url, "cat-file", "-e", f"{commit}^{{tree}}", check=False).status == 0

    def _place(self, url: str) -> Path:
        return self._directory / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.git"

    def _run(
        self,
        url: str,
        *arguments: str,
        stdin: bytes = b"",
        deadline_s: float = PATIENT_S,
        check: bool = True,
    ) -> Completed:
        options = [part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")]
        where = [] if arguments[0] == "init" else [f"--git-dir={self._place(url)}"]
        environ = self._environment(url) if arguments[0] == "fetch" else self._local_environment()
        try:
            argv = ["git", *options, *where, *arguments]
            done = run(argv, env=environ, stdin=stdin, timeout_s=deadline_s)
        except FileNotFoundError as error:
            raise ForgeError(
                "CONFIG_ERROR",
                "git is needed for this and was not found",
                "Install git, and make sure it is on the PATH",
            ) from error
        except ProcessTimeoutError as error:
            raise ForgeError.network(
                f"{masked_url(url)} was not fetched within {deadline_s:g} s", url=masked_url(url)
            ) from error
        if check and done.status != 0:
            raise _failed(url, _last_line(done.complaint) or f"git ended with {done.status}")
        return done

    def _local_environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in self._environ.items()
            if not name.startswith("GIT_") or name.startswith(_KEPT)
        }
        return {
            **kept,
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_ASKPASS": "true",
            "SSH_ASKPASS_REQUIRE": "never",
            "GIT_SSH_COMMAND": kept.get("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
            "GIT_ALLOW_PROTOCOL": "none",
        }

    def _environment(self, url: str) -> dict[str, str]:
        """The same for a fetch: the URL's own protocol, and what the user rewrites it to."""
        environ = self._local_environment()
        asked = ["git", "ls-remote", "--get-url", "--", url]
        meant = run(asked, env={**environ, "GIT_DIR": "/dev/null"}, timeout_s=QUICK_S).text.strip()
        schemes = {scheme_of(each) for each in (url, meant)} & {"https", "http", "ssh", "file"}
        return {**environ, "GIT_ALLOW_PROTOCOL": ":".join(sorted(schemes)) or "none"}


def _last_line(complaint: str) -> str:
    lines = [line for line in complaint.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "ERROR:", "remote:"))]
    return (fatal or lines or [""])[0].removeprefix("fatal: ").strip()[:300]


def _failed(url: str, reason: str) -> ForgeError:
    shown = masked_url(url)
    return ForgeError(
        "NETWORK_ERROR",
        f"git cannot read {shown}: {reason}",
        "Check the address, and that git itself can read it: git ls-remote URL",
        "A private repository needs the login that git uses: a credential helper or an SSH key",
        url=shown,
    )


MOST_FILES = 20_000
MOST_BYTES = 256 * 1024 * 1024
MOST_LINKS = 20  # that lead to one another

_NEVER = {".git", ".hg", ".svn"}
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LINK, _EXECUTABLE = "120000", "100755"


@dataclass(frozen=True)
class FileContent:
    """One file."""

    data: bytes
    executable: bool = False


@dataclass(frozen=True)
class Snapshot:
    """The files below a directory by their relative paths, and what was left out and why."""

    files: dict[str, FileContent]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class GitTree:
    """The files of one commit."""

    store: GitStore
    url: str
    commit: str

    def read(self, *paths: str) -> dict[str, bytes]:
        """Those of some files that are there."""
        found = {path: self._entry(path) for path in paths}
        blobs = {path: each for path, each in found.items() if each and each.kind == "blob"}
        contents = self.store.read(self.url, (each.object_id for each in blobs.values()))
        return {path: contents[each.object_id] for path, each in blobs.items()}

    def folders(self, path: str) -> list[str]:
        """The names of the directories in a directory."""
        start = _prefix(path)
        inside = (name for name, each in self._entries.items() if each.kind == "tree")
        below = (name[len(start) :] for name in inside if name.startswith(start))
        return sorted(name for name in below if name and "/" not in name)

    def revision(self, path: str) -> str:
        """What identifies the content below a path; empty where nothing does."""
        found = self._entry(path) if path else None
        return found.object_id if found else self.commit

    def snapshot(self, path: str) -> Snapshot:
        """Everything below a path. Raises `ForgeError`."""
        top = self._resolved(path) if path else ""
        if top is None or (top and self._entries[top].kind != "tree"):
            raise _missing(path, self.url)
        wanted: dict[str, GitEntry] = {}
        left: list[str] = []
        for name, found in self._below(top, "", 0):
            if isinstance(found, str):
                left.append(f"{name} {found}")
            else:
                wanted[name] = found
        _check_size(path, len(wanted), sum(each.size for each in wanted.values()))
        contents = self.store.read(self.url, (each.object_id for each in wanted.values()))
        files = {
            name: FileContent(contents[each.object_id], each.mode == _EXECUTABLE)
            for name, each in wanted.items()
        }
        left += [
            f"{name} is kept in Git LFS; only its pointer was taken"
            for name, each in files.items()
            if each.data.startswith(_LFS_POINTER)
        ]
        return Snapshot(files, tuple(left))

    def _below(self, top: str, prefix: str, depth: int) -> Iterator[tuple[str, GitEntry | str]]:
        """Every file below a directory, links within the repository followed; or why not."""
        start = _prefix(top)
        for path, entry in self._entries.items():
            if not path.startswith(start):
                continue
            name = f"{prefix}{path[len(start) :]}"
            if not _is_usable(name):
                yield name, "was left out: no file of a plugin can have that path"
            elif entry.kind == "commit":
                yield name, "was left out: a submodule"
            elif entry.mode == _LINK:
                yield from self._through(path, name, depth)
            elif entry.kind == "blob":
                yield name, entry

    def _through(self, path: str, name: str, depth: int) -> Iterator[tuple[str, GitEntry | str]]:
        target = self._resolved(path)
        if target is None or depth > 2 or f"{path}/".startswith(_prefix(target)):
            yield name, "was left out: a symbolic link that leads nowhere or out of the repository"
        elif self._entries[target].kind == "tree":
            yield from self._below(target, f"{name}/", depth + 1)
        elif self._entries[target].kind == "blob":
            yield name, self._entries[target]

    def _entry(self, path: str) -> GitEntry | None:
        resolved = self._resolved(path)
        return self._entries[resolved] if resolved is not None else None

    def _resolved(self, path: str, budget: int = MOST_LINKS) -> str | None:
        """The path that one leads to, links on the way followed; None outside the repository."""
        done = ""
        parts = path.split("/")
        for at, part in enumerate(parts):
            done = f"{done}/{part}".lstrip("/")
            entry = self._entries.get(done)
            if entry is None:
                return None
            if entry.mode == _LINK:
                if budget <= 0:
                    return None
                data = self.store.read(self.url, [entry.object_id])[entry.object_id]
                aim = data.decode("utf-8", "surrogateescape")
                joined = posixpath.normpath(posixpath.join(posixpath.dirname(done), aim))
                if aim.startswith("/") or joined == "." or joined.startswith(".."):
                    return None
                return self._resolved("/".join([joined, *parts[at + 1 :]]), budget - 1)
        return done

    @cached_property
    def _entries(self) -> dict[str, GitEntry]:
        return self.store.entries(self.url, self.commit)


@dataclass(frozen=True)
class FolderTree:
    """The files of a directory as they are now."""

    root: Path

    def read(self, *paths: str) -> dict[str, bytes]:
        """Those of some files that are there."""
        found = {}
        for path in paths:
            place = self.root / path
            try:
                if is_inside(place, self.root):
                    found[path] = read_bytes(place)
            except (FileNotFoundError, UnreadableError):
                continue
        return found

    def folders(self, path: str) -> list[str]:
        """The names of the directories in a directory."""
        try:
            with os.scandir(self.root / path) as found:
                return sorted(each.name for each in found if each.is_dir())
        except OSError:
            return []

    def revision(self, path: str) -> str:
        """What identifies the content below a path; empty where nothing does."""
        try:
            files = self.snapshot(path).files
        except ForgeError:
            return ""
        digest = hashlib.sha256()
        for name, each in sorted(files.items()):
            content = hashlib.sha256(each.data).hexdigest()
            digest.update(f"{name}\0{content}{each.executable}\n".encode())
        return digest.hexdigest()

    def snapshot(self, path: str) -> Snapshot:
        """Everything below a path. Raises `ForgeError`."""
        top = self.root / path
        if not top.is_dir() or not is_inside(top, self.root):
            raise _missing(path, str(self.root))
        files: dict[str, FileContent] = {}
        left: list[str] = []
        size = 0
        for name, place in self._below(top, "", frozenset()):
            try:
                status = place.stat()
                if not is_inside(place, self.root) or not stat.S_ISREG(status.st_mode):
                    left.append(f"{name} was left out: a link out of the directory, or no file")
                    continue
                size += status.st_size
                _check_size(path, len(files) + 1, size)
                files[name] = FileContent(
                    read_bytes(place, MOST_BYTES), bool(status.st_mode & stat.S_IXUSR)
                )
            except (OSError, UnreadableError) as error:
                left.append(f"{name} was left out: {getattr(error, 'strerror', None) or error}")
        return Snapshot(files, tuple(left))

    def _below(
        self, folder: Path, prefix: str, above: frozenset[str]
    ) -> Iterator[tuple[str, Path]]:
        here = os.path.realpath(folder)
        if here in above or not is_inside(here, self.root):
            yield prefix.rstrip("/"), folder
            return
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda each: each.name)
        for each in entries:
            name = f"{prefix}{each.name}"
            if each.name in _NEVER or not _is_usable(name):
                continue
            if each.is_dir():
                yield from self._below(Path(each.path), f"{name}/", above | {here})
            else:
                yield name, Path(each.path)


Tree = GitTree | FolderTree


def write_files(files: Mapping[str, FileContent], folder: Path) -> None:
    """Write files below a directory, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, each in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(each.data)
        if each.executable:
            path.chmod(path.stat().st_mode | 0o111)


def _prefix(path: str) -> str:
    return f"{path}/" if path else ""


def _is_usable(name: str) -> bool:
    try:
        name.encode()
        parts = check_relative(name).parts
    except (EscapeError, UnicodeEncodeError):
        return False
    return not any(part.casefold() in _NEVER for part in parts) and name.isprintable()


def _check_size(path: str, files: int, size: int) -> None:
    if files > MOST_FILES or size > MOST_BYTES:
        raise ForgeError.invalid(
            f"{path or 'the repository'} is too large for a plugin: at most {MOST_FILES:,} files "
            f"and {MOST_BYTES // 1024 // 1024} MB are installed",
            "Ask the maintainer for a smaller one, or clone it yourself",
        )


def _missing(path: str, where: str) -> ForgeError:
    return ForgeError.invalid(
        f"{where} has no directory {path or '.'}; nothing was installed",
        "Tell the maintainer of the registry",
    )
