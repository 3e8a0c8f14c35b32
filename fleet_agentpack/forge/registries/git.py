"""Git repositories from outside: fetched bare and read object by object, never checked out.

Without a checkout nothing in a repository is ever run or followed: no hook, no filter, no
submodule, no symbolic link. What git may talk to is an allow-list, and nothing that a repository
or a marketplace says is read as an option.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.forge.config.addresses import is_commit, masked_url, scheme_of
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock
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
