"""The sandbox that agents' programs run in: bubblewrap, where it works.

Writable are the agent's directory and a home of its own. Of the user's home it sees the program,
the toolchains on the PATH, git's configuration, and what the role lists.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fleet_agentpack.kit import process

TRIAL_S = 20.0
MAX_LINKS = 500  # of a directory on the PATH that are followed
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_READ_ONLY = ("/usr", "/opt", "/nix/store", "/gnu/store", "/snap")
# Of /etc, what programs need; never keys or passwords.
_ETC = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts"),
    *("gitconfig", "group", "host.conf", "hosts", "inputrc", "java", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "locale.conf", "localtime", "login.defs", "mime.types", "nsswitch.conf"),
    *("os-release", "passwd", "pki/ca-trust/extracted", "pki/tls/certs", "profile", "profile.d"),
    *("protocols", "resolv.conf", "services", "shells", "ssl/cert.pem", "ssl/certs"),
    *("ssl/openssl.cnf", "terminfo", "timezone"),
)
_PREFIX_MARKS = ("lib", "libexec", "share", "versions", "pyvenv.cfg", "include")


@dataclass(frozen=True)
class Room:
    """What one agent's program may see and change."""

    directory: Path  # where it works, inside `root`
    root: Path  # the agent's directory
    home: Path  # what the program finds at the user's home
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    program_home: tuple[Path, Path] | None = None  # ours, and where the program looks for it
    network: bool = True

    @property
    def owned(self) -> list[str]:
        """The directories, besides its own, whose content is up to the agent."""
        return [str(self.home), *([str(self.program_home[0])] if self.program_home else [])]


@dataclass(frozen=True)
class Sandbox:
    """Bubblewrap on this machine."""

    program: str
    home: Path
    environ: Mapping[str, str]

    def command(self, room: Room) -> list[str]:
        """The command that runs another one in a room; that one follows."""
        mounts = [*self._toolchains(), *self._git_settings()]
        readable = [*mounts, *(path for path in room.readable if path.exists())]
        writable = [(room.home, self.home), (room.root, room.root)]
        writable += [(path, path) for path in room.writable if path.exists()]
        writable += [room.program_home] if room.program_home else []
        return [
            *self._isolation(room.network),
            *_binds([(path, path) for path in dict.fromkeys(readable)], writable),
            *("--chdir", str(room.directory), "--"),
        ]

    def _isolation(self, network: bool) -> list[str]:
        argv = [self.program, "--die-with-parent", "--unshare-user", "--unshare-pid"]
        argv += ["--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"]
        argv += [] if network else ["--unshare-net"]
        for path in map(Path, _SYSTEM):
            if path.is_symlink():
                argv += ["--symlink", os.readlink(path), str(path)]  # noqa: PTH115 - the link's own text
            elif path.is_dir():
                argv += ["--ro-bind", str(path), str(path)]
        for name in (*_READ_ONLY, *(f"/etc/{each}" for each in _ETC)):
            argv += ["--ro-bind-try", name, name]
        return [*argv, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108

    def _toolchains(self) -> list[Path]:
        """The directories on the PATH and what belongs to them."""
        found: list[Path] = []
        for name in self.environ.get("PATH", "").split(os.pathsep):
            folder = Path(name)
            if folder.is_absolute() and folder.is_dir() and not _is_system(folder):
                found += [self.root_of(folder), *self._linked(folder)]
        rustup = Path(self.environ.get("RUSTUP_HOME") or self.home / ".rustup")
        return [*found, *([rustup] if rustup.is_dir() else [])]

    def _linked(self, folder: Path) -> Iterable[Path]:
        """What the links in a directory lead to."""
        try:
            links = [each for each in os.scandir(folder) if each.is_symlink()][:MAX_LINKS]
        except OSError:
            return
        for link in links:
            yield from self.runtime_of(Path(link.path))

    def runtime_of(self, program: Path) -> list[Path]:
        """What a program needs besides the system: itself, and where it is installed."""
        found, seen = [], program
        for _ in range(10):  # each link of a chain is needed
            if not _is_system(seen) and seen.exists():
                found.append(self.root_of(seen.parent) if seen.parent.name == "bin" else seen)
            if not seen.is_symlink():
                break
            seen = Path(os.path.normpath(seen.parent / seen.readlink()))
        real = program.resolve()
        if "node_modules" in real.parts:
            found.append(Path(*real.parts[: real.parts.index("node_modules") + 1]))
        return [path for path in found if not _is_system(path)]

    def root_of(self, folder: Path) -> Path:
        """A toolchain's root, given the directory of its programs."""
        parent = folder.parent
        if folder.name not in ("bin", "shims") or self._is_broad(parent):
            return folder
        return parent if any((parent / mark).exists() for mark in _PREFIX_MARKS) else folder

    def _is_broad(self, path: Path) -> bool:
        """Whether a directory holds more than a toolchain."""
        local = self.home / ".local"
        return self.home.is_relative_to(path) or local.is_relative_to(path)

    def _git_settings(self) -> list[Path]:
        """The files of git's user configuration, those that it includes, too."""
        known = _config_files(
            self.environ.get("PATH", ""), str(self.home), _variables(self.environ)
        )
        named = [Path(name) for name in known]
        usual = [self.home / ".config/git/ignore", self.home / ".config/git/attributes"]
        return [path for path in (*named, *usual) if path.is_file() and not _is_system(path)]


def find_sandbox(home: Path, environ: Mapping[str, str]) -> Sandbox | None:
    """The sandbox of this machine; None where there is none, or it does not work."""
    program = shutil.which("bwrap", path=environ.get("PATH"))
    return Sandbox(program, home, environ) if program and why_not(program) is None else None


@lru_cache(maxsize=4)
def why_not(program: str) -> str | None:
    """Why bubblewrap does not work here; tried, since containers may forbid namespaces."""
    argv = [program, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc"]
    try:
        done = process.run([*argv, "--", "/bin/sh", "-c", ":"], timeout_s=TRIAL_S)
    except (OSError, TimeoutError) as error:
        return f"bubblewrap cannot start: {error}"
    return f"bubblewrap does not work here: {done.complaint[:200]}" if done.status else None


def _binds(
    readable: Sequence[tuple[Path, Path]], writable: Sequence[tuple[Path, Path]]
) -> list[str]:
    """Mounts, the outer ones first: an inner one may be writable, or not, all the same."""
    rows = [("--ro-bind", *each) for each in readable] + [("--bind", *each) for each in writable]
    rows.sort(key=lambda row: (len(row[2].parts), row[0] == "--bind"))
    return [word for how, source, target in rows for word in (how, str(source), str(target))]


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(each) for each in (*_SYSTEM, *_READ_ONLY))


def _variables(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    names = ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")
    return tuple((name, environ[name]) for name in names if name in environ)


@lru_cache(maxsize=8)
def _config_files(path: str, home: str, variables: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    env = {"PATH": path, "HOME": home, **dict(variables)}
    argv = [
        "git",
        "config",
        "--global",
        "--includes",
        "--list",
        "--show-origin",
        "--name-only",
        "-z",
    ]
    try:
        listed = process.run(argv, env=env, timeout_s=TRIAL_S)
    except (OSError, TimeoutError):
        return ()
    origins = (part for part in listed.text.split("\0") if part.startswith("file:"))
    return tuple(dict.fromkeys(each.removeprefix("file:") for each in origins))
