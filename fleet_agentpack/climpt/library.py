"""The prompt files of an agent, found through its profiles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fleet_agentpack.climpt.errors import RenderError
from fleet_agentpack.climpt.headers import HeaderError, PromptText, read_prompt
from fleet_agentpack.climpt.options import profile_name
from fleet_agentpack.climpt.profile import Profile
from fleet_agentpack.climpt.project_files import (
    CONFIG_FOLDER,
    DEFAULT_AGENT,
    NAME,
    NAME_RULE,
    ProjectFiles,
    UnusableFileError,
    below,
    read,
)
from fleet_agentpack.climpt.registry import Command, RegistryFormatError

# Reading every prompt for its title would make the first search of a huge library slow.
MOST_TITLES_READ = 2_000

_TEMPLATE = re.compile(r"f_(?P<edition>[^_.]+)(?:_(?P<adaptation>.+))?\.md")
_APP = "-app.yml"


@dataclass(frozen=True)
class PromptPlace:
    """A prompt file, and the command that its place makes it."""

    profile: Profile
    path: Path
    c1: str
    c2: str
    c3: str
    edition: str
    adaptation: str | None

    @property
    def key(self) -> tuple[str, str, str]:
        """The command's three names."""
        return self.c1, self.c2, self.c3

    @property
    def shown(self) -> str:
        """The file as people name it."""
        root = self.profile.root.resolve()
        return str(self.path.relative_to(root) if self.path.is_relative_to(root) else self.path)

    def read(self) -> PromptText:
        """The file's header and prompt. Raises `HeaderError`."""
        try:
            folder = self.profile.prompt_dir
            for part in (self.c2, self.c3):
                folder = below(folder, part)  # the same steps as a rendering takes
            return read_prompt(read(folder, self.path.name) or "")
        except UnusableFileError as error:
            raise HeaderError(str(error)) from error


def domains(files: ProjectFiles, agent: str) -> list[str]:
    """The domains (c1) that an agent has a profile for, in order."""
    names = {
        file.name.removesuffix(_APP)
        for root in files.roots()
        for file in (root / CONFIG_FOLDER).glob(f"*{_APP}")
    }
    others = [f"{other}-" for other in files.folders() if other != DEFAULT_AGENT]
    if agent == DEFAULT_AGENT:
        found = {name for name in names if not name.startswith(tuple(others))}
    else:
        found = {n.removeprefix(f"{agent}-") for n in names if n.startswith(f"{agent}-")}
    return sorted(name for name in found if NAME.fullmatch(name))


def has_profile(files: ProjectFiles, name: str) -> bool:
    """Whether there is a configuration of that name, usable or not."""
    return any((root / CONFIG_FOLDER / f"{name}{_APP}").exists() for root in files.roots())


def prompts(profile: Profile, c1: str) -> Iterator[PromptPlace]:
    """The prompt files of one profile, in the order of their paths."""
    base = profile.prompt_dir
    for path in sorted(base.glob("*/*/f_*.md")):
        c2, c3 = path.parent.parent.name, path.parent.name
        match = _TEMPLATE.fullmatch(path.name)
        if match and path.is_file() and NAME.fullmatch(c2) and NAME.fullmatch(c3):
            yield PromptPlace(profile, path, c1, c2, c3, match["edition"], match["adaptation"])


def unusable(profile: Profile) -> Iterator[tuple[Path, str]]:
    """The files that look like prompts of a profile but cannot be any, each with the reason."""
    base = profile.prompt_dir
    for path in sorted({*base.rglob("f_*.md"), *base.glob("*/*/f_*.md")}):
        folders = path.relative_to(base).parts[:-1]
        odd = next((name for name in folders if not NAME.fullmatch(name)), None)
        if len(folders) != len(("c2", "c3")):
            yield path, "is not in a folder <action>/<target>, so it is no command's prompt"
        elif odd is not None:
            yield path, f"{odd!r} cannot be a name; {NAME_RULE}"
        elif not _TEMPLATE.fullmatch(path.name):
            yield path, "must be called f_<edition>.md or f_<edition>_<adaptation>.md"
        elif not path.is_file():
            yield path, "is not a file that can be read"


def with_titles(files: ProjectFiles, agent: str, commands: Iterable[Command]) -> list[Command]:
    """Commands with title and aliases from their prompts' headers, where the registry has none."""
    commands = list(commands)
    if len(commands) > MOST_TITLES_READ:
        return commands
    places: dict[str, dict[tuple[str, str, str], PromptPlace]] = {}
    titled = []
    for command in commands:
        if not command.title and command.c1 not in places:
            places[command.c1] = _first_prompts(files, agent, command.c1)
        place = None if command.title else places[command.c1].get(command.key)
        titled.append(_titled(command, place))
    return titled


def _first_prompts(
    files: ProjectFiles, agent: str, c1: str
) -> dict[tuple[str, str, str], PromptPlace]:
    """One prompt of each command of a domain: the default edition's where there is one."""
    try:
        places = list(prompts(Profile.load(files, profile_name(agent, c1)), c1))
    except (RenderError, OSError):
        return {}
    ordered = sorted(places, key=lambda p: (p.edition != "default", p.adaptation is not None))
    return {place.key: place for place in reversed(ordered)}


def _titled(command: Command, place: PromptPlace | None) -> Command:
    if place is None:
        return command
    try:
        described = place.read().command(*place.key)
    except (HeaderError, RegistryFormatError):
        return command
    return replace(command, title=described.title, aliases=command.aliases or described.aliases)
