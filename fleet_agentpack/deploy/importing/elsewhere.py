"""What tools keep that a pack cannot hold: named with the reason, and with the secrets in it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from glob import escape, glob
from pathlib import Path

from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.importing import settings_files
from fleet_agentpack.deploy.importing.at_imports import taken_in
from fleet_agentpack.deploy.importing.items import Found, Item
from fleet_agentpack.deploy.importing.nested import nested
from fleet_agentpack.deploy.importing.places import Place
from fleet_agentpack.deploy.importing.results import SecretRow, SkippedRow
from fleet_agentpack.deploy.importing.secrets import is_secret_file
from fleet_agentpack.deploy.importing.settings_files import SettingsFile
from fleet_agentpack.deploy.manifest import Scope
from fleet_agentpack.deploy.model import MANIFEST_PREFIX

_SUBAGENT = "a pack cannot hold subagents"
_HOOK = settings_files.HOOK
_ELSEWHERE = "no target writes this place"
_PLUGIN = "its program owns what it installs"
_CREDENTIALS = "it holds credentials"


@dataclass(frozen=True)
class _Files:
    """Files of a tool, by a pattern below the user's or the project's directory."""

    target: str
    scope: Scope
    pattern: str
    what: str
    reason: str


_FILES = (
    _Files("claude_code", "user", "agents/**/*.md", "subagent", _SUBAGENT),
    _Files("claude_code", "project", ".claude/agents/**/*.md", "subagent", _SUBAGENT),
    _Files("claude_code", "project", "CLAUDE.local.md", "instructions", "private to this checkout"),
    _Files("claude_code", "user", "plugins", "plugins", _PLUGIN),
    _Files("codex", "user", "AGENTS.override.md", "instructions", _ELSEWHERE),
    _Files("codex", "project", "AGENTS.override.md", "instructions", _ELSEWHERE),
    _Files("codex", "user", "agents/*.toml", "subagent", _SUBAGENT),
    _Files("codex", "project", ".codex/agents/*.toml", "subagent", _SUBAGENT),
    _Files("cursor", "user", ".cursor/agents/*.md", "subagent", _SUBAGENT),
    _Files("cursor", "project", ".cursor/agents/*.md", "subagent", _SUBAGENT),
    _Files("cursor", "user", ".cursor/commands/**/*.md", "command", _ELSEWHERE),
    _Files("cursor", "user", ".cursor/extensions", "plugins", _PLUGIN),
    _Files("vscode", "project", ".github/agents/*.md", "subagent", _SUBAGENT),
    _Files("vscode", "project", ".github/chatmodes/*.md", "subagent", _SUBAGENT),
    _Files("vscode", "project", ".github/skills/*", "skill", _ELSEWHERE),
    _Files("vscode", "user", ".config/Code/User/prompts/*.md", "prompt", _ELSEWHERE),
    _Files(
        "vscode",
        "user",
        "Library/Application Support/Code/User/prompts/*.md",
        "prompt",
        _ELSEWHERE,
    ),
    _Files("vscode", "project", ".github/hooks/*", "hook", _HOOK),
    _Files("vscode", "user", ".copilot/agents/*.md", "subagent", _SUBAGENT),
    _Files("cursor", "project", ".cursorignore", "configuration", _ELSEWHERE),
    _Files("cursor", "project", ".cursorindexingignore", "configuration", _ELSEWHERE),
    _Files("gemini", "project", ".geminiignore", "configuration", _ELSEWHERE),
    _Files("gemini", "user", "agents/*.md", "subagent", _SUBAGENT),
    _Files("gemini", "project", ".gemini/agents/*.md", "subagent", _SUBAGENT),
    _Files("gemini", "user", "extensions", "plugins", _PLUGIN),
    _Files("gemini", "project", ".gemini/extensions", "plugins", _PLUGIN),
)
# The directories that belong to one program alone: nothing in them is passed over in silence.
_OWN = {
    ("claude_code", "user"): "",
    ("claude_code", "project"): ".claude",
    ("codex", "user"): "",
    ("codex", "project"): ".codex",
    ("cursor", "user"): ".cursor",
    ("cursor", "project"): ".cursor",
    ("vscode", "user"): ".copilot",
    ("agents", "user"): ".agents",
    ("agents", "project"): ".agents",
    ("gemini", "user"): "",
    ("gemini", "project"): ".gemini",
}
# Written by people, in a place that no target writes; all else is the program's own.
_BY_PEOPLE = frozenset(
    {
        "output-styles",
        "policies",
        "rules",
        "skills",
        "workflows",
        "keybindings.json",
        "themes",
    }
)
# Directories of notes that programs write.
_BY_PROGRAMS = frozenset({"memories", "memory", "plans", "projects", "sessions", "todos"})
_NOTES = (".md", ".mdc", ".sh", ".py", ".js", ".ts", ".txt")


@dataclass(frozen=True)
class Where:
    """Where to look: the directories of the user and the project, for some tools."""

    home: Home
    project: str  # empty: there is none
    user_dirs: Mapping[str, str]
    targets: tuple[str, ...]
    scopes: tuple[Scope, ...]

    def top(self, target: str, scope: Scope) -> str:
        """The directory that a tool's paths are below; empty if it is not looked at."""
        if target not in self.targets or scope not in self.scopes:
            return ""
        return self.user_dirs[target] if scope == "user" else self.project


def elsewhere(where: Where, places: Iterable[Place], seen: Found) -> Found:
    """Everything that is known to be configuration and stays where it is."""
    skipped: list[SkippedRow] = []
    secrets: list[SecretRow] = []
    known = {*_of_places(places), *(item.path for item in seen.items)}
    for each in _FILES:
        if top := where.top(each.target, each.scope):
            paths = sorted(glob(f"{escape(top)}/{each.pattern}", recursive=True))
            skipped += [SkippedRow(path, each.what, each.reason) for path in paths]
    for file in settings_files.FILES:
        if top := where.top(file.target, file.scope):
            path = _settings_path(where.home, top, file)
            known.add(str(path))
            rows, hidden = settings_files.look_into(path, file, where.project)
            skipped += rows
            secrets += hidden
    if where.project and "project" in where.scopes:
        skipped += nested(where.project, where.targets)
    known |= {row.path for row in (*skipped, *seen.skipped)}
    for (target, scope), inside in _OWN.items():
        if top := where.top(target, "user" if scope == "user" else "project"):
            for row in _rest(os.path.join(top, inside).rstrip("/"), known, scope):
                skipped.append(row)
                if row.reason == _CREDENTIALS:
                    secrets.append(SecretRow(row.path, ""))
    return Found((), tuple(skipped), tuple(secrets))


def imports_of(items: Collection[Item], user: Path) -> Iterator[SkippedRow]:
    """The files that a CLAUDE.md or GEMINI.md takes in with `@`, and that stay where they are."""
    brought_in = {item.path for item in items}
    named: dict[str, str] = {}
    for item in items:
        if item.place.reading.pattern.startswith(("CLAUDE.md", "GEMINI.md")):
            named = {**taken_in(item.path, user), **named}
    for path, by in named.items():
        if path not in brought_in:
            reason = f"{by} takes it in with @; it stays where it is"
            yield SkippedRow(path, "imported file", reason)


def _settings_path(home: Home, top: str, file: SettingsFile) -> Path:
    """Claude Code keeps one file beside its directory, unless a variable names the directory."""
    if file.path == ".claude.json" and not home.environ.get("CLAUDE_CONFIG_DIR", "").strip():
        return home.user / file.path
    return Path(top, file.path)


def _of_places(places: Iterable[Place]) -> Iterator[str]:
    for place in places:
        reading = place.reading
        if reading.shape in ("one_file", "named_file"):
            yield f"{place.directory}/{reading.pattern}"
        elif reading.shape != "taken_in":
            yield place.directory


def _rest(top: str, known: Collection[str], scope: str) -> Iterator[SkippedRow]:
    """What else is in a program's own directory; its caches and state together."""
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return
    prefix = f"{top}/"
    named = {path[len(prefix) :].partition("/")[0] for path in known if path.startswith(prefix)}
    state = []
    for name in names:
        path = prefix + name
        if name in named or name.startswith(MANIFEST_PREFIX):
            continue
        if is_secret_file(name):
            yield SkippedRow(path, "credentials", _CREDENTIALS)
        elif name in ("hooks", "hooks.json"):
            yield SkippedRow(path, "hook", _HOOK)
        elif scope == "project" or _is_by_people(path, name):
            yield SkippedRow(path, "configuration", _ELSEWHERE)
        else:
            state.append(name)
    if state:
        reason = f"the program keeps these for itself: {', '.join(state)}"
        yield SkippedRow(top, "caches and state", reason)


def _is_by_people(path: str, name: str) -> bool:
    """Whether somebody wrote it, and not the program: a known name, or notes."""
    if name in _BY_PEOPLE or name.endswith(_NOTES):
        return True
    try:
        inside = os.listdir(path) if name not in _BY_PROGRAMS else []
    except OSError:
        return False
    return any(each.endswith(".md") for each in inside)
