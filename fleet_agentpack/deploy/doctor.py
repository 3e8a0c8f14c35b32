"""Doctor: do the roots exist, are they writable, does git ignore the manifests in them?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.deploy.actions import command
from fleet_agentpack.deploy.errors import DeployError, io_errors
from fleet_agentpack.deploy.home import Home, git, git_text
from fleet_agentpack.deploy.model import Root, posix
from fleet_agentpack.deploy.results import DoctorData, GitignoreFix, Issue, RootCheck
from fleet_agentpack.deploy.workspace import Workspace
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN

IGNORED = ".agentpack.manifest*.json"
_REPAIRS = {  # issue → what to do about it, and the command that does
    "missing": ("create directory", "mkdir -p"),
    "not_writable": ("fix permissions", "chmod u+rwx"),
}


@dataclass(frozen=True)
class GitHygiene:
    """A git work tree that does not ignore the manifests in it."""

    top: str
    warning: str


def examine(workspace: Workspace, *, fix: bool) -> tuple[DoctorData, list[str]]:
    """The state of every root, and what is odd about the repo; with `fix`, git is set right."""
    desired = workspace.desired()
    roots = [check_root(root) for root in desired.roots]
    unclean = check_git(workspace.home, desired.roots)
    ids = [module.id for module in workspace.manifest.modules]
    warnings = [
        *desired.warnings,
        *(finding.warning for finding in unclean),
        *workspace.overlays.layout_warnings(ids),
    ]
    tops = list(dict.fromkeys(finding.top for finding in unclean)) if fix else []
    fixes = [ignore_manifests(top) for top in tops]
    ignore: list[Action] = [command(workspace.request, "doctor", "--fix")]
    actions = [*(ignore if unclean and not fix else []), *repairs(roots)]
    return DoctorData(fixes, workspace.machine, roots, actions or UNKNOWN), warnings


def check_root(root: Root) -> RootCheck:
    """The state of one root; nothing is written to find out."""
    exists = os.path.lexists(root.dir)
    is_directory = os.path.isdir(root.dir)
    writable = is_directory and os.access(root.dir, os.W_OK | os.X_OK)
    issue: Issue | None = None
    if not exists:
        issue = "missing"
    elif not is_directory:
        issue = "not_a_directory"
    elif not writable:
        issue = "not_writable"
    purpose, command = _REPAIRS.get(issue or "", ("", ""))
    return RootCheck(
        exists,
        [issue] if issue else [],
        root.dir,
        posix(root.dir),
        root.scan_extras,
        f"{purpose}: {command} {_quoted(root.dir)}" if purpose else None,
        root.target,
        writable,
    )


def repairs(checked: Sequence[RootCheck]) -> list[Action]:
    """The commands that settle what was found, each once."""
    lines = {
        f"{_REPAIRS[issue][1]} {_quoted(check.root)}"
        for check in checked
        for issue in check.issues
        if issue in _REPAIRS
    }
    return [Action.instruction(line) for line in sorted(lines)]


def check_git(home: Home, roots: Iterable[Root]) -> list[GitHygiene]:
    """The roots inside a git work tree that does not ignore their manifests."""
    tops: dict[str, list[Root]] = {}
    for root in roots:
        if os.path.isdir(root.dir):
            top = git_text(home, root.dir, "rev-parse", "--show-toplevel")
            if top:
                tops.setdefault(top, []).append(root)
    return [
        GitHygiene(
            top,
            f"git does not ignore {root.manifest_path}: add the line {IGNORED} to"
            f" {top}/.gitignore, or run `fleet-agentpack doctor --fix`",
        )
        for top, inside in tops.items()
        for root in inside
        if not _is_ignored(home, root)
    ]


def ignore_manifests(top: str) -> GitignoreFix:
    """Add our line to a work tree's `.gitignore`, once."""
    path = Path(top, ".gitignore")
    updated = add_lines(path, [IGNORED])
    return GitignoreFix(str(path), path.as_posix(), top, posix(top), updated)


def add_lines(path: Path, wanted: list[str]) -> bool:
    """Append the lines that a text file lacks; returns whether it changed."""
    with io_errors(path, "write"):
        text = path.read_bytes() if path.exists() else b""
        present = {line.strip() for line in text.decode("utf-8", "replace").splitlines()}
        missing = [line for line in wanted if line not in present]
        if not missing:
            return False
        if text and not text.endswith(b"\n"):
            text += b"\n"
        write_atomic(path, text + "".join(f"{line}\n" for line in missing).encode())
    return True


def _is_ignored(home: Home, root: Root) -> bool:
    try:
        done = git(home, root.dir, "check-ignore", "--quiet", "--", root.manifest_path)
    except DeployError:
        return True
    return done.status == 0


def _quoted(path: str) -> str:
    plain = all(char.isalnum() or char in "/._-+@%" for char in path)
    return path if plain else "'" + path.replace("'", "'\\''") + "'"
