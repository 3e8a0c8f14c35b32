"""The original's rules for values that become part of a prompt or a command line."""

from __future__ import annotations

import re

from fleet_agentpack.climpt.errors import RenderError
from fleet_agentpack.climpt.options import Options
from fleet_agentpack.climpt.project_files import NAME, NAME_HINT

_SHELL = re.compile(r"[;|&<>]")
_FILE_PART = re.compile(r"\w[\w.-]{0,99}")
_PATH_RULES = {
    "absolutePath": re.compile(r"[/\\]|[A-Za-z]:"),
    "homeExpansion": re.compile(r"~(?:[/\\]|\Z)"),
    "parentTraversal": re.compile(r".*(?:\.\.[/\\]|\.\.\Z)", re.DOTALL),
    "specialChars": re.compile(r".*[\x00-\x1f\x7f]", re.DOTALL),
}
_HINTS = {
    "shellInjection": "leave out ; | & < and >; long text belongs in stdin",
    "absolutePath": "give a path relative to the project",
    "homeExpansion": "give a path relative to the project",
    "parentTraversal": "give a path inside the project, without ..",
    "specialChars": "leave out control characters",
    "fileName": "use letters, digits, '.', '-' and '_' only",
}


def check(options: Options) -> None:
    """Refuse options that the original's parser refuses. Raises `RenderError`."""
    given = {name: value for name, value in options.named().items() if value}
    for name, value in given.items():
        if _SHELL.search(value):
            raise _violation("shellInjection", name)
    for name in ("edition", "adaptation"):
        if name in given and not _FILE_PART.fullmatch(given[name]):
            raise _violation("fileName", name)
    for name in ("from", "destination"):
        for category, rule in _PATH_RULES.items():
            if name in given and rule.match(given[name]):
                raise _violation(category, name)


def check_names(*names: str) -> None:
    """Refuse names that could be taken for a path or an option. Raises `RenderError`."""
    for name in names:
        if not NAME.fullmatch(name):
            raise RenderError(f"Invalid command name: {name!r}", NAME_HINT)


def _violation(category: str, option: str) -> RenderError:
    return RenderError(f"Security error: {category} violation in option {option}", _HINTS[category])
