"""An agent's own repository: it borrows the user's objects, and its commits are fetched by us.

The agent may write every byte of it, so it is hostile input: git never runs on it outside of the
agent's sandbox. Its tip is read as a file, and its objects through a repository of ours that has
nothing of the agent's but the objects; the fetch into the user's repository checks each of them.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.git import Git, Identity, Repository
from fleet_agentpack.fleet.local.included import exclusions
from fleet_agentpack.kit.process import Completed

FETCH_S = 120.0
MAX_ALTERNATES = 5  # git follows no longer chain
MAX_REFS_BYTES = 10_000_000
MAX_OBJECT_BYTES = 4_000_000_000
OUR_REFS = "refs/fleet-agentpack"
_OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_OBJECT_FILE = re.compile(
    r"[0-9a-f]{2}/[0-9a-f]{38}(?:[0-9a-f]{24})?|pack/pack-[0-9a-f]{40,64}\.(?:pack|idx)"
)
_REF = re.compile(r"refs/heads/[A-Za-z0-9._+@=-]+(?:/[A-Za-z0-9._+@=-]+)*")
# Read from the agent's side, these could contradict the objects themselves.
_OBJECTS_ONLY = """
[core]
\tcommitGraph = false
\tmultiPackIndex = false
[pack]
\tuseBitmaps = false
\twriteReverseIndex = false
[uploadpack]
\tallowFilter = false
"""


class UnfetchableError(Exception):
    """An agent's repository has nothing that can be fetched, and why."""


@dataclass(frozen=True)
class OwnRepository:
    """The repository in an agent's directory, and the user's, whose objects it borrows."""

    git: Git
    origin: Repository  # the user's
    root: Path  # the agent's directory
    key: str
    views: Path | None = None  # where we may put repositories of our own
    copied: tuple[str, ...] = ()  # files of the project that must not be committed

    @property
    def inside(self) -> Repository:
        """The agent's repository; for git inside the sandbox only."""
        return Repository(self.root / ".git", self.root)

    @property
    def kept_base(self) -> str:
        """Our ref that keeps the borrowed objects from being pruned."""
        return f"{OUR_REFS}/{self.key}/base"

    @property
    def fetched(self) -> str:
        """Our ref with the work that was fetched last."""
        return f"{OUR_REFS}/{self.key}/work"

    def make(self, branch: str, base: str, origin: tuple[str, str] | None, who: Identity) -> None:
        """Make the repository, on a branch at the base, with the base's files. Raises 503.

        `origin` is the branch that it came from, and the commit that this was at.
        """
        _check(self.git.run(self.origin, "update-ref", self.kept_base, base), "keep the base")
        made = self.git.init(self.root / ".git", self.origin, self.root)
        objects = objects_of(self.git, self.origin)
        (made.git_dir / "objects/info").mkdir(exist_ok=True)
        (made.git_dir / "objects/info/alternates").write_text(f"{objects}\n", "utf-8")
        self._copy_settings(made)
        refs = {f"refs/heads/{branch}": base}
        refs |= {f"refs/remotes/origin/{origin[0]}": origin[1]} if origin else {}
        for ref, commit in refs.items():
            _check(self.git.run(made, "update-ref", ref, commit), "make the branch")
        settings = {"user.name": who.name, "user.email": who.email, "gc.auto": "0"}
        for name, value in settings.items():
            self.git.run(made, "config", name, value)
        self.git.run(made, "symbolic-ref", "HEAD", f"refs/heads/{branch}")
        # Large files that git-lfs keeps are in the user's repository.
        lfs = ("-c", f"lfs.storage={objects.parent / 'lfs'}")
        _check(self.git.run(made, *lfs, "reset", "--quiet", "--hard"), "make its files")

    def tip(self) -> str:
        """The commit that the agent has checked out. Raises `UnfetchableError`."""
        folder = self.inside.git_dir
        if not _is_folder(folder) or not _is_folder(folder / "objects"):
            raise UnfetchableError("its repository was removed or replaced")
        name = _small_file(folder, "HEAD").strip()
        seen = 0
        while name.startswith("ref: ") and seen < MAX_ALTERNATES:
            name, seen = self._ref(folder, name.removeprefix("ref: ").strip()), seen + 1
        if not _OBJECT.fullmatch(name):
            raise UnfetchableError("its HEAD names no commit")
        return name

    def fetch(self, ours: Repository, commit: str) -> None:
        """Fetch a commit that `outside` has into the user's repository, under a ref of ours.

        Raises `UnfetchableError`; nothing of the user's changes then.
        """
        if self.git.run(ours, "update-ref", "refs/heads/work", commit).status != 0:
            raise UnfetchableError(f"its commit {commit[:12]} cannot be read")
        checked = ("-c", "fetch.fsckObjects=true", "-c", "transfer.fsckObjects=true")
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
        words = (*checked, "fetch", *options, "--upload-pack=git-upload-pack", "--")
        refs = f"+refs/heads/work:{self.fetched}"
        try:
            done = self.git.run(self.origin, *words, str(ours.git_dir), refs, timeout_s=FETCH_S)
        except TimeoutError as error:
            raise UnfetchableError("reading its objects took too long") from error
        if done.status != 0:
            raise UnfetchableError(f"git refused its objects: {done.complaint[-300:]}")

    @contextmanager
    def outside(self) -> Iterator[Repository]:
        """A repository of ours that has the agent's objects and files, and nothing else of it."""
        if self.views:
            self.views.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=f"{self.key}.", dir=self.views) as folder:
            ours = self.git.init(Path(folder, "git"), self.origin)
            with (ours.git_dir / "config").open("a", encoding="utf-8") as config:
                config.write(_OBJECTS_ONLY)
            (ours.git_dir / "objects/info").mkdir(exist_ok=True)
            lender = f"{objects_of(self.git, self.origin)}\n"
            (ours.git_dir / "objects/info/alternates").write_text(lender, "utf-8")
            if _is_folder(self.inside.git_dir) and _is_folder(self.inside.git_dir / "objects"):
                link_objects(self.inside.git_dir / "objects", ours.git_dir / "objects")
            self._copy_settings(ours)
            yield Repository(ours.git_dir, self.root)

    def _copy_settings(self, target: Repository) -> None:
        """What is no object but belongs to a commit's history, and the user's own exclusions."""
        common = self.git.common_dir(self.origin)
        for name in ("shallow", "info/exclude"):
            if (common / name).is_file():
                (target.git_dir / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(common / name, target.git_dir / name)
        if self.copied:
            (target.git_dir / "info").mkdir(exist_ok=True)
            with (target.git_dir / "info/exclude").open("a", encoding="utf-8") as rules:
                rules.write("\n" + exclusions(self.copied))

    def _ref(self, folder: Path, name: str) -> str:
        """What one ref of the agent's repository says."""
        if not _REF.fullmatch(name) or ".." in name:
            raise UnfetchableError("its HEAD names no branch")
        try:
            return _small_file(folder, name).strip()
        except UnfetchableError:
            for line in _small_file(folder, "packed-refs").splitlines():
                if line.endswith(f" {name}"):
                    return line.split(" ", 1)[0]
            raise


def link_objects(source: Path, target: Path) -> None:
    """Give a repository of ours the files of an agent's objects. Raises `UnfetchableError`.

    Nothing else: what an agent borrows from may be any repository, and a pipe would never end.
    """
    total = 0
    for folder in _entries(source):
        if not folder.is_dir(follow_symlinks=False):
            continue
        for each in _entries(Path(folder.path)):
            name = f"{folder.name}/{each.name}"
            if _OBJECT_FILE.fullmatch(name) and each.is_file(follow_symlinks=False):
                total += each.stat(follow_symlinks=False).st_size
                if total > MAX_OBJECT_BYTES:
                    raise UnfetchableError(f"its objects take more than {MAX_OBJECT_BYTES:,} bytes")
                (target / folder.name).mkdir(exist_ok=True)
                _link(Path(each.path), target / name)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # on another file system
        with suppress(OSError):
            shutil.copyfile(source, target, follow_symlinks=False)


def objects_of(git: Git, repository: Repository) -> Path:
    """Where a repository has its objects."""
    return git.common_dir(repository).resolve() / "objects"


def lenders(objects: Path) -> list[Path]:
    """A directory of objects, and those that it borrows from in turn."""
    found, queue = [objects], [objects]
    for _ in range(MAX_ALTERNATES):
        names = [(one, _alternates(one)) for one in queue]
        queue = [(one / name).resolve() for one, listed in names for name in listed]
        found += queue
    return found


def _alternates(objects: Path) -> list[str]:
    try:
        text = (objects / "info/alternates").read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _is_folder(path: Path) -> bool:
    """Whether a path is a directory itself, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def _small_file(folder: Path, name: str) -> str:
    """A regular file inside a hostile directory; links, pipes and large files are refused."""
    path = folder / name
    try:
        inside = path.parent.resolve().is_relative_to(folder.resolve())
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            facts = os.fstat(descriptor)
            if not inside or not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_REFS_BYTES:
                raise UnfetchableError(f"its {name} is not a file")
            return stream.read().decode("utf-8", "replace")
    except OSError as error:
        raise UnfetchableError(f"its {name} cannot be read") from error


def _check(done: Completed, what: str) -> None:
    if done.status != 0:
        raise FleetError.unavailable(f"git could not {what} of the agent: {done.complaint}")
