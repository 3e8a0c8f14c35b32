"""Adds a command: its prompt file, its profile and its record, so that it is found at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.climpt import library
from fleet_agentpack.climpt.check import check
from fleet_agentpack.climpt.errors import ClimptError, RenderError
from fleet_agentpack.climpt.new_profile import NewProfile, in_project
from fleet_agentpack.climpt.options import profile_name
from fleet_agentpack.climpt.profile import Profile
from fleet_agentpack.climpt.project_files import (
    FOLDER,
    NAME,
    NAME_RULE,
    ProjectFiles,
    UnusableFileError,
    below,
)
from fleet_agentpack.climpt.results import Added
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN

# Option, what a prompt calls it, and its variable.
_INPUTS = (
    ("file", "File", "input_text_file"),
    ("destination", "Write to", "destination_path"),
    ("stdin", "Input", "input_text"),
)


@dataclass(frozen=True)
class NewCommand:
    """What a new command is called and what its prompt takes."""

    c1: str
    c2: str
    c3: str
    title: str
    description: str
    options: tuple[str, ...] = ()  # of file, stdin, destination
    variables: tuple[tuple[str, str], ...] = ()  # name, and what it is for

    def prompt(self, agent: str) -> str:
        """The prompt file to begin with."""
        header = {
            "c1": self.c1,
            "c2": self.c2,
            "c3": self.c3,
            "title": self.title,
            "description": self.description,
            "usage": f"climpt-{profile_name(agent, self.c1)} {self.c2} {self.c3}",
            "c3l_version": "0.5",
            "options": {
                "edition": ["default"],
                "adaptation": ["default"],
                **{name: name in self.options for name in ("file", "stdin", "destination")},
            },
            **({"uv": [{name: text} for name, text in self.variables]} if self.variables else {}),
        }
        taken = [f"{label}: {{{place}}}" for name, label, place in _INPUTS if name in self.options]
        taken += [f"{text or name}: {{uv-{name}}}" for name, text in self.variables]
        body = "\n\n".join([f"# {self.title}", self.description, *taken])
        return f"---\n{yaml12.dump(header)}---\n\n{body}\n"


def add(files: ProjectFiles, agent: str, command: NewCommand) -> Added:
    """Write a new command's files; no prompt that exists is changed. Raises `ClimptError`."""
    for name in (command.c1, command.c2, command.c3):
        if not NAME.fullmatch(name):
            raise ClimptError("Cannot add", details=f"{name!r} cannot be a name", hint=NAME_RULE)
    files.registry_path(agent)  # a broken configuration is told before anything is written
    profile = NewProfile(agent, command.c1, command.c2, command.c3)
    texts = profile.texts(files)
    new = {} if library.has_profile(files, profile_name(agent, command.c1)) else texts
    prompt = _prompt_path(files, agent, command, has_profile=not new)
    if prompt.exists():
        raise ClimptError("Cannot add", details=f"{files.shown(prompt)} exists already")
    for path, text in {**new, prompt: command.prompt(agent)}.items():
        try:
            write_atomic(path, text)
        except OSError as error:
            reason = error.strerror or "cannot be written"
            raise ClimptError("Cannot add", details=f"{files.shown(path)}: {reason}") from error
    updated = check(files, agent, write=True).written
    also = () if updated is UNKNOWN else updated
    return Added(files.shown(prompt), (*map(files.shown, new), *also))


def _prompt_path(
    files: ProjectFiles, agent: str, command: NewCommand, *, has_profile: bool
) -> Path:
    file = f"{command.c2}/{command.c3}/f_default.md"
    if not has_profile:
        return in_project(files, f"{FOLDER}/{agent}/prompts/{command.c1}/{file}")
    try:
        profile = Profile.load(files, profile_name(agent, command.c1))
        return below(profile.prompt_dir, file)
    except (RenderError, UnusableFileError) as error:
        raise ClimptError("Cannot add", details=str(error)) from error
