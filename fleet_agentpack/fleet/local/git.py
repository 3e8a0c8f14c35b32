"""Runs git in repositories that may be hostile: the directory is given, and nothing of theirs runs.

Hooks, the file system monitor, pagers, signing programs and diff programs of a repository's own
configuration are switched off. Filters run only if the user's own configuration has them: whoever
works with the files of an agent uses a repository of ours, or runs git inside the agent's sandbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.process import Completed, run

GIT_S = 300.0
NOTHING_OF_ITS_OWN = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.sshCommand=false"),
    *("-c", "commit.gpgSign=false"),
    *("-c", "log.showSignature=false"),
    *("-c", "diff.external="),
    *("-c", "diff.ignoreSubmodules=none"),
    *("-c", "submodule.recurse=false"),
    *("-c", "fetch.recurseSubmodules=false"),
    *("-c", "protocol.allow=never"),
    *("-c", "protocol.file.allow=always"),
    *("-c", "maintenance.auto=false"),
    *("-c", "gc.auto=0"),
)
PLAIN_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
# For commits of ours, where the user has not told git who they are.
OURS = "fleet-agentpack <fleet-agentpack@localhost>"
_AUTHOR = re.compile(r"\s*([^<>\n]*?)\s*<([^<>\n]*)>")
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
_INHERITED = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH")


@dataclass(frozen=True)
class Repository:
    """A git directory, and the files that belong to it, if any."""

    git_dir: Path
    tree: Path | None = None

    @property
    def arguments(self) -> list[str]:
        """What tells git where to work."""
        tree = [f"--work-tree={self.tree}"] if self.tree else []
        return [f"--git-dir={self.git_dir}", *tree]


@dataclass(frozen=True)
class Identity:
    """Who a commit is by."""

    name: str
    email: str

    @property
    def variables(self) -> dict[str, str]:
        """What tells git."""
        return {
            f"GIT_{part}_{field}": value
            for part in ("AUTHOR", "COMMITTER")
            for field, value in (("NAME", self.name), ("EMAIL", self.email))
        }


@dataclass(frozen=True)
class Git:
    """Git as a program, with the environment that it gets."""

    environ: Mapping[str, str]

    def run(
        self,
        repository: Repository,
        *arguments: str,
        index: Path | None = None,
        who: Identity | None = None,
        stdin: bytes = b"",
        timeout_s: float = GIT_S,
    ) -> Completed:
        """Run git on a repository, with another index if given. Raises 503 without git."""
        where = repository.tree or repository.git_dir
        words = ["--no-pager", *repository.arguments, *NOTHING_OF_ITS_OWN, *arguments]
        more = {"GIT_INDEX_FILE": str(index)} if index else {}
        more |= who.variables if who else {}
        return self._git(where, words, more, stdin, timeout_s)

    def text(self, repository: Repository, *arguments: str) -> str:
        """What git prints, without surrounding space."""
        return self.run(repository, *arguments).text.strip()

    def succeeds(self, repository: Repository, *arguments: str) -> bool:
        """Whether git ends with status 0."""
        return self.run(repository, *arguments).status == 0

    def identity(self, repository: Repository, given: str | None) -> Identity:
        """Who commits: as given, else the user as git knows them, else this program."""
        known = self.run(repository, "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
        for text in (given or "", known.text if known.status == 0 else "", OURS):
            if found := _AUTHOR.match(text):
                return Identity(found[1], found[2])
        raise AssertionError("ours is well formed")

    def commit_of(self, repository: Repository, name: str) -> str | None:
        """The commit that a name means; None if it means none."""
        given = ("--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        found = self.run(repository, "rev-parse", *given)
        return found.text.strip() if found.status == 0 else None

    def has_more_files(self, repository: Repository, commit: str, limit: int) -> bool:
        """Whether a commit has more files than this; a few bytes can stand for billions."""
        words = [*NOTHING_OF_ITS_OWN, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit]
        argv, count = ["git", "--no-pager", *repository.arguments, *words], 0
        pipes = {"stdin": DEVNULL, "stdout": PIPE, "stderr": DEVNULL}
        with Popen(argv, cwd=repository.git_dir, env=self._variables(), **pipes) as process:  # type: ignore[call-overload]
            while count <= limit and (chunk := process.stdout.read(1 << 16)):
                count += chunk.count(b"\0")
            process.kill()
        return count > limit

    def init(self, git_dir: Path, like: Repository, tree: Path | None = None) -> Repository:
        """A new, empty repository with another's kind of object names."""
        kind = self.text(like, "rev-parse", "--show-object-format") or "sha1"
        made = Repository(git_dir, tree)
        options = ("--quiet", "--template=", f"--object-format={kind}")
        bare = () if tree else ("--bare",)
        git_dir.mkdir(parents=True, exist_ok=True)
        done = self.run(made, "init", *options, *bare)
        if done.status != 0:
            raise FleetError.unavailable(f"git could not make a repository: {done.complaint}")
        return made

    def discover(self, directory: Path) -> Repository | None:
        """The repository that a directory is in: its git directory and the root of its files.

        A bare one has no files, and only its own directory is taken for it.
        """
        words = ("--path-format=absolute", "--git-dir", "--is-bare-repository", "--show-toplevel")
        try:
            found = self._git(directory, [*NOTHING_OF_ITS_OWN, "rev-parse", *words], {}, b"", GIT_S)
        except (FleetError, OSError):
            return None
        lines = found.text.splitlines()
        if lines[1:] == ["true"] and Path(lines[0]) == directory.resolve():
            return Repository(Path(lines[0]))
        if found.status != 0 or len(lines) != 3:
            return None
        return Repository(Path(lines[0]), Path(lines[2]))

    def repository_of(self, directory: Path) -> Path | None:
        """The root of the repository that a directory is in."""
        found = self.discover(directory)
        return found.tree if found else None

    def common_dir(self, repository: Repository) -> Path:
        """The git directory that all worktrees of a repository share."""
        return Path(
            self.text(repository, "rev-parse", "--path-format=absolute", "--git-common-dir")
        )

    def part_of(self, repository: Repository, path: Path, commit: str) -> str | None:
        """Where a directory is in its repository; None if the commit does not have it."""
        part = os.path.relpath(path.resolve(), (repository.tree or path).resolve())
        if part == ".":
            return part
        listed = self.run(repository, "ls-tree", "-d", "--full-tree", commit, part)
        return part if listed.status == 0 and listed.text.strip() else None

    def _variables(self) -> dict[str, str]:
        environ = {
            name: value
            for name, value in self.environ.items()
            if not name.startswith("GIT_")
            or name.startswith(("GIT_AUTHOR_", "GIT_COMMITTER_"))
            or name in _INHERITED
        }
        return {**environ, **_QUIET}

    def _git(
        self,
        where: Path,
        words: list[str],
        more: Mapping[str, str],
        stdin: bytes,
        timeout_s: float,
    ) -> Completed:
        env = {**self._variables(), **more}
        try:
            return run(["git", *words], cwd=where, env=env, stdin=stdin, timeout_s=timeout_s)
        except FileNotFoundError as error:
            if not where.is_dir():
                raise
            raise FleetError.unavailable("git is not installed; local agents need it.") from error
