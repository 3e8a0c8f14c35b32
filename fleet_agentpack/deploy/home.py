"""Where everything is: the agentpack home, the config repo, this machine's name; and git."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError, both_ways
from fleet_agentpack.kit import process
from fleet_agentpack.kit.paths import NoBaseError, PathArguments, expand_home
from fleet_agentpack.kit.project import FoundProject, find_project

_TRUTHY = {"1", "true", "yes", "y", "on"}
_GIT_OWN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")


@dataclass(frozen=True)
class Home:
    """The directories and variables that the engine uses; it reads no others."""

    root: Path  # $AGENTPACK_HOME
    user: Path  # the user's home directory
    cwd: Path
    cache: Path  # our own cache, never inside the agentpack home
    environ: Mapping[str, str]
    place: FoundProject  # the directory to work in
    paths: PathArguments  # what paths mean that a caller gives

    @classmethod
    def of(
        cls,
        environ: Mapping[str, str],
        user: Path,
        cwd: Path,
        cache: Path,
        place: FoundProject | None = None,
        paths: PathArguments | None = None,
    ) -> Home:
        """The home that the environment names; the project is where the command was started."""
        given = environ.get("AGENTPACK_HOME")
        root = user / ".agentpack" if given is None else cwd / expand_home(given, user)
        place = place or find_project("", str(user), str(cwd))
        paths = paths or PathArguments(cwd, user, environ)
        return cls(root, user, cwd, cache, environ, place, paths)

    @property
    def default_repo(self) -> Path:
        """The config repo unless another one is named."""
        return self.root / "repo"

    @property
    def git_store(self) -> Path:
        """Where checkouts of git modules are kept."""
        return self.root / "cache" / "git"

    @property
    def snapshots(self) -> Path:
        """Where snapshots are kept."""
        return self.root / "state" / "snapshots"

    @property
    def ownership(self) -> Path:
        """Where the record of ownership and the contents that it needs are."""
        return self.root / "state" / "ownership"

    @property
    def contents(self) -> str:
        """Where contents are kept, each once."""
        return str(self.ownership / "contents")

    @property
    def staging(self) -> Path:
        """Where a transaction stages its files; abandoned unless a journal names it."""
        return self.root / "state" / "staging"

    @property
    def journal(self) -> Path:
        """The plan of a running transaction."""
        return self.root / "state" / "journal.json"

    @property
    def lock(self) -> Path:
        """Locked during a deploy or a rollback."""
        return self.root / "state" / "apply.lock"

    @property
    def durable(self) -> bool:
        """Whether writes must survive a power cut."""
        return self.environ.get("AGENTPACK_FSYNC", "").strip().lower() in _TRUTHY

    def expand(self, text: str) -> str:
        """An absolute path from configuration text: `~/` is the user's home, else from the cwd."""
        absolute = os.path.join(self.cwd, expand_home(text, self.user))
        if ".." in absolute.split("/"):
            reads.at(absolute)
            return os.path.realpath(absolute)
        return os.path.normpath(absolute).replace("//", "/")

    def repo(self, given: str | None) -> Path:
        """The config repo: the one asked for, or the home's."""
        if given is None:
            return self.default_repo
        try:
            usable = b"\x00" not in os.fsencode(given)
        except UnicodeEncodeError:
            usable = False
        if not usable:
            raise DeployError("E_INVALID_ARGUMENTS", "repo: not a valid path")
        try:
            repo = self.paths.resolve(given)
        except NoBaseError as error:
            raise DeployError("E_INVALID_ARGUMENTS", f"repo: {error}") from error
        hint = self.paths.hint(given)
        if hint and not repo.exists():
            raise DeployError("E_INVALID_ARGUMENTS", f"repo: {given[:200]} does not exist{hint}")
        return repo


def git(
    home: Home, cwd: Path | str, *arguments: str, timeout_s: float = 60.0, ceiling: str = ""
) -> process.Completed:
    """Run git without prompts; it looks for a repository below the ceiling only, if one is given.

    Raises `DeployError` when git is not installed.
    """
    environ = {name: value for name, value in home.environ.items() if name not in _GIT_OWN}
    environ |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    if ceiling:
        environ["GIT_CEILING_DIRECTORIES"] = os.path.realpath(ceiling)
    try:
        return process.run(["git", *arguments], cwd=Path(cwd), env=environ, timeout_s=timeout_s)
    except FileNotFoundError as error:
        if not Path(cwd).is_dir():
            raise DeployError.io(cwd, error, "enter") from error
        raise DeployError(
            "E_GIT_NOT_FOUND",
            "git is required for this and was not found",
            args=list(arguments),
            hint="install git, and make sure it is on PATH",
            **both_ways(cwd=cwd),
        ) from error
    except process.ProcessTimeoutError as error:
        message = f"git {arguments[0]} took longer than {timeout_s:g} s"
        raise DeployError.because("git_timeout", message) from error
    except OSError as error:
        raise DeployError.io(cwd, error, "run git in") from error


def git_text(home: Home, cwd: Path | str, *arguments: str) -> str:
    """What git prints on one line; empty when it fails, or is not installed."""
    try:
        done = git(home, cwd, *arguments)
    except DeployError:
        return ""
    return done.text.rstrip("\n") if done.status == 0 else ""


def machine_id(home: Home, given: str | None = None) -> str:
    """The name under which this machine's overlays are kept."""
    variables = ("AGENTPACK_MACHINE_ID", "HOSTNAME", "COMPUTERNAME")
    candidates = [given or "", *(home.environ.get(name, "") for name in variables)]
    names = map(normal_machine, [*candidates, socket.gethostname()])
    return next(filter(None, names), "unknown")


def normal_machine(text: str) -> str:
    """A machine's name as a directory name: other characters become single dashes."""
    return re.sub(r"-?[^a-z0-9_-]+", "-", text.strip().lower()).strip("-")
