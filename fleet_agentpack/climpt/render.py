"""Renders a command's prompt from its template, as the original's command line would."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.climpt import option_rules
from fleet_agentpack.climpt.errors import RenderError
from fleet_agentpack.climpt.options import Options, PromptRequest
from fleet_agentpack.climpt.profile import Profile, refused_as
from fleet_agentpack.climpt.project_files import ProjectFiles, below, read
from fleet_agentpack.kit import frontmatter

_NAME = r"\s*(uv-[A-Za-z0-9_-]+|[A-Za-z_][A-Za-z0-9_]*)\s*"
_PLACEHOLDER = re.compile(rf"\{{\{{{_NAME}\}}\}}|\$\{{{_NAME}\}}|\{{{_NAME}\}}")
# Names that a prompt can be given a value for; others in braces are part of its text.
_FILLABLE = ("input_text", "input_text_file", "destination_path")


@dataclass(frozen=True)
class Rendered:
    """A prompt's text, and the variables in it that no value was given for."""

    text: str
    unfilled: tuple[str, ...] = ()


def render(files: ProjectFiles, request: PromptRequest) -> Rendered:
    """The prompt of a command, from the project's files or the home's. Raises `RenderError`."""
    option_rules.check(request.options)
    option_rules.check_names(request.c2, request.c3)
    profile = Profile.load(files, request.profile)
    profile.check_names(request.c2, request.c3)
    folder, template = _template(profile, request)
    variables = _variables(files.roots()[0], profile, request, folder)
    return fill(template, variables)


def fill(template: str, variables: Mapping[str, str]) -> Rendered:
    """A template's body with its variables in place; unknown ones stay as they are.

    The header goes first and all forms are replaced in one pass, so that a value is never taken
    for a header or a template.
    """
    body = frontmatter.split(template).body.lstrip()
    unfilled: dict[str, None] = {}

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[3]
        if name not in variables and is_fillable(name):
            unfilled[name] = None
        return variables.get(name, match[0])

    text = _PLACEHOLDER.sub(value, body)
    return Rendered(text if text.endswith("\n") else f"{text}\n", tuple(unfilled))


def placeholders(body: str) -> list[str]:
    """The variables that a prompt's text names, each once."""
    names = (match[1] or match[2] or match[3] for match in _PLACEHOLDER.finditer(body))
    return list(dict.fromkeys(name for name in names if is_fillable(name)))


def is_fillable(name: str) -> bool:
    """Whether a caller can give a value for a variable of this name."""
    return name.startswith("uv-") or name in _FILLABLE


def _template(profile: Profile, request: PromptRequest) -> tuple[Path, str]:
    """The template's folder and text: that of the adaptation, else that of the edition alone."""
    folder = _folder(profile, request)
    names = _file_names(request.options)
    for name in names:
        with refused_as(f"Template {name}:"):
            text = read(folder, name)
        if text is not None and not frontmatter.split(text).body.strip():
            place = _shown(profile, folder / name)
            raise RenderError(f"Template is empty: {place}", "write the prompt below its header")
        if text is not None:
            return folder, text
    there = sorted(file.name for file in folder.glob("f_*.md"))
    raise RenderError(
        f"Template not found: tried {', '.join(names)} in {_shown(profile, folder)}",
        f"available: {', '.join(there)}" if there else "the folder has no template",
    )


def _folder(profile: Profile, request: PromptRequest) -> Path:
    folder = profile.prompt_dir
    for part in ("", request.c2, request.c3):
        with refused_as(f"Prompt directory {part}:"):
            folder = below(folder, part)
        if not folder.is_dir():
            wanted = profile.prompt_dir / request.c2 / request.c3 / "f_default.md"
            raise RenderError(
                f"Prompt directory not found: {_shown(profile, folder)}",
                f"create {_shown(profile, wanted)}",
            )
    return folder


def _file_names(options: Options) -> list[str]:
    edition = options.edition or "default"
    adapted = [f"f_{edition}_{options.adaptation}.md"] if options.adaptation else []
    return [*adapted, f"f_{edition}.md"]


def _variables(
    project: Path, profile: Profile, request: PromptRequest, folder: Path
) -> dict[str, str]:
    options = request.options
    found = {
        "input_text": options.stdin.strip() if options.stdin else None,
        "input_text_file": _input_file(project, options),
        "destination_path": _destination(profile, options),
        "schema_file": _schema(profile, request),
        "base_prompt_dir": str(folder),
        **{f"uv-{name}": value for name, value in options.variables.items()},
    }
    return {name: value for name, value in found.items() if value}


def _input_file(project: Path, options: Options) -> str | None:
    """The absolute path of the input file, which need not exist; `-` is standard input."""
    if not options.file or options.file == "-":
        return None
    return os.path.normpath(project.resolve() / options.file)


def _destination(profile: Profile, options: Options) -> str | None:
    """The absolute path of the destination; the prefix is put before it without a slash.

    A prefix without a destination stands for itself.
    """
    destination = profile.destination_prefix + (options.destination or "")
    if not destination:
        return None
    with refused_as("Destination:"):
        return str(below(profile.working_dir, destination))


def _schema(profile: Profile, request: PromptRequest) -> str | None:
    """The command's schema; where there is none, the name that the original gives it."""
    if profile.schema_dir is None:
        return None
    place = f"{request.c2}/{request.c3}"
    with refused_as("Schema:"):
        file = below(profile.schema_dir, f"{place}/base.schema.md")
    if file.is_file():
        return str(file)
    return f"{profile.schema_name}/{place}/f_{request.c3}.json"


def _shown(profile: Profile, path: Path) -> str:
    root = profile.root.resolve()
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
