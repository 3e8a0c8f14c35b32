"""The original's rules for values that become part of a prompt or a command line."""

from __future__ import annotations

import re

from fleet_agentpack.climpt.errors import RenderError
from fleet_agentpack.climpt.options import Options

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
    paths = {"from": options.file, "destination": options.destination}
    parts = {"edition": options.edition, "adaptation": options.adaptation}
    variables = {f"uv-{name}": value for name, value in options.variables.items()}
    for name, value in {**parts, **paths, **variables}.items():
        if value and _SHELL.search(value):
            raise _violation("shellInjection", name)
    for name, value in parts.items():
        if value and not _FILE_PART.fullmatch(value):
            raise _violation("fileName", name)
    for name, value in paths.items():
        for category, rule in _PATH_RULES.items():
            if value and rule.match(value):
                raise _violation(category, name)


def _violation(category: str, option: str) -> RenderError:
    return RenderError(f"Security error: {category} violation in option {option}", _HINTS[category])
