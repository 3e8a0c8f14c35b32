"""Compares an agent's prompts with its registry and profiles, and brings the two up to date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fleet_agentpack.climpt import allowed_names, library
from fleet_agentpack.climpt.errors import RenderError
from fleet_agentpack.climpt.headers import HeaderError, PromptText, header_problems
from fleet_agentpack.climpt.library import PromptPlace
from fleet_agentpack.climpt.new_profile import missing_profiles
from fleet_agentpack.climpt.options import profile_name
from fleet_agentpack.climpt.profile import Profile
from fleet_agentpack.climpt.project_files import ProjectFiles, registry_errors
from fleet_agentpack.climpt.registry import Command, RegistryFormatError
from fleet_agentpack.climpt.registry_file import RegistryFile, differences
from fleet_agentpack.climpt.render import placeholders
from fleet_agentpack.climpt.results import Checked, CommandOptions, Finding
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN, Maybe

_OPTION_OF = {
    "input_text": "stdin",
    "input_text_file": "file",
    "destination_path": "destination",
}


@dataclass(frozen=True)
class _Prompt:
    place: PromptPlace
    text: PromptText


@dataclass(frozen=True)
class _Look:
    """What one pass over an agent's prompts found."""

    commands: tuple[Command, ...]  # as their headers describe them
    profiles: tuple[tuple[Profile, str], ...]  # each with its domain
    findings: tuple[Finding, ...]


def check(files: ProjectFiles, agent: str, *, write: bool = False) -> Checked:
    """Say what is wrong with an agent's prompts; with `write`, correct registry and patterns.

    Raises `ClimptError` for a registry that cannot be read, which is never replaced.
    """
    path = files.registry_path(agent)
    with registry_errors(files.shown(path)):
        registry = RegistryFile.read(path)
    written = [*_make_profiles(files, agent)] if write else []
    look = _look(files, agent)
    outdated = list(_against_registry(look.commands, registry, files.shown(path)))
    refused = list(_against_patterns(look))
    if write and outdated:
        registry.update(look.commands)
        registry.write()
        written.append(files.shown(path))
        outdated = list(_against_registry(look.commands, registry, files.shown(path)))
    if write and refused:
        written += _allow_all(files, look)
        refused = list(_against_patterns(_look(files, agent)))
    findings = [*_without_profile(files, agent), *look.findings, *outdated, *refused]
    return Checked(
        agent, len(registry.by_key()), tuple(findings), tuple(dict.fromkeys(written)) or UNKNOWN
    )


def _without_profile(files: ProjectFiles, agent: str) -> Iterator[Finding]:
    """Prompts that nothing finds, since their domain is not configured."""
    for profile in missing_profiles(files, agent):
        told = f"is missing, so nothing finds the prompts in {profile.prompt_dir}"
        yield Finding(profile.shown, told, fixable=True)


def _make_profiles(files: ProjectFiles, agent: str) -> Iterator[str]:
    """Configure the domains that have prompts and nothing else, each file named."""
    for profile in list(missing_profiles(files, agent)):
        for path, text in profile.texts(files).items():
            write_atomic(path, text)
            yield files.shown(path)


def _look(files: ProjectFiles, agent: str) -> _Look:
    commands: list[Command] = []
    profiles: list[tuple[Profile, str]] = []
    findings: list[Finding] = []
    for c1 in library.domains(files, agent):
        try:
            profile = Profile.load(files, profile_name(agent, c1))
            places = list(library.prompts(profile, c1))
        except RenderError as error:
            findings.append(Finding(f"{profile_name(agent, c1)}-app.yml", str(error)))
            continue
        profiles.append((profile, c1))
        findings += [Finding(files.shown(path), why) for path, why in library.unusable(profile)]
        for prompts in _by_command(places, findings):
            findings += _inside(prompts)
            findings += _without_files(prompts)
            if described := _command(prompts):
                commands.append(described)
    return _Look(tuple(commands), tuple(profiles), tuple(findings))


def _by_command(places: list[PromptPlace], findings: list[Finding]) -> Iterator[list[_Prompt]]:
    """The readable prompts of each command, the default one first."""
    grouped: dict[tuple[str, str, str], list[_Prompt]] = {}
    for place in places:
        try:
            text = place.read()
        except HeaderError as error:
            findings.append(Finding(place.shown, str(error)))
        else:
            grouped.setdefault(place.key, []).append(_Prompt(place, text))
    for prompts in grouped.values():
        yield sorted(prompts, key=lambda p: (p.place.edition != "default", p.place.path.name))


def _command(prompts: Sequence[_Prompt]) -> Command | None:
    """The command that the first header describes, with the editions that have files."""
    described = next((p for p in prompts if p.text.header is not None), None)
    if described is None:
        return None
    try:
        command = described.text.command(*described.place.key)
    except RegistryFormatError:
        return None
    editions = dict.fromkeys(prompt.place.edition for prompt in prompts)
    adapted = dict.fromkeys(p.place.adaptation or "default" for p in prompts)
    given = command.options
    options = CommandOptions(
        edition=_with_files(given.edition, editions),
        adaptation=_with_files(given.adaptation, adapted),
        file=given.file is True,
        stdin=given.stdin is True,
        destination=given.destination is True,
    )
    return replace(command, options=options)


def _with_files(declared: Maybe[tuple[str, ...]], found: Iterable[str]) -> tuple[str, ...]:
    """The names that a header declares, then those that only files have."""
    return tuple(dict.fromkeys([*(() if declared is UNKNOWN else declared), *found]))


def _inside(prompts: Sequence[_Prompt]) -> Iterator[Finding]:
    """What is wrong inside the files of one command."""
    for prompt in prompts:
        place, text = prompt.place, prompt.text
        if not text.body.strip():
            yield Finding(place.shown, "the prompt below the header is empty")
        if text.header is None:
            yield Finding(place.shown, "has no header; describe the command between two --- lines")
            continue
        for name, value in zip(("c1", "c2", "c3"), place.key, strict=True):
            if text.header.get(name, value) != value:
                yield Finding(
                    place.shown, f"{name} is {text.header[name]!r}, but its folder says {value!r}"
                )
        for problem in header_problems(text.header):
            yield Finding(place.shown, problem)
        for name in ("title", "description"):
            if not text.header.get(name):
                yield Finding(place.shown, f"the header has no {name}; search looks at it")
        try:
            yield from _variables(place, text.command(*place.key), text.body)
        except RegistryFormatError as error:
            yield Finding(place.shown, str(error))


def _without_files(prompts: Sequence[_Prompt]) -> Iterator[Finding]:
    """Editions and adaptations that are declared but have no file of their own."""
    first = prompts[0].place
    there = {prompt.place.path.name for prompt in prompts}
    command = _command(prompts)
    if command is None:
        return
    editions, adaptations = command.options.edition, command.options.adaptation
    for edition in () if editions is UNKNOWN else editions:
        if f"f_{edition}.md" not in there:
            yield Finding(first.shown, f"declares the edition {edition}; f_{edition}.md is missing")
    for name in () if adaptations is UNKNOWN else adaptations:
        if name != "default" and not any(file.endswith(f"_{name}.md") for file in there):
            told = f"declares the adaptation {name}, which has no file; the edition's own is used"
            yield Finding(first.shown, told)


def _variables(place: PromptPlace, command: Command, body: str) -> Iterator[Finding]:
    used = placeholders(body)
    declared = [f"uv-{name}" for name in command.variables]
    for name in used:
        if name in _OPTION_OF:
            if getattr(command.options, _OPTION_OF[name]) is not True:
                yield Finding(
                    place.shown, f"uses {{{name}}}; say so with options.{_OPTION_OF[name]}: true"
                )
        elif name not in declared:
            yield Finding(
                place.shown, f"uses {{{name}}}, which `uv` in the header does not declare"
            )
    for name in declared:
        if name not in used:
            yield Finding(place.shown, f"declares {name}, which the prompt does not use")


def _against_registry(
    commands: Sequence[Command], registry: RegistryFile, shown: str
) -> Iterator[Finding]:
    known = registry.by_key()
    for command in commands:
        variants = known.pop(command.key, [])
        if not variants:
            yield Finding(shown, f"{command.name} is missing", fixable=True)
        elif len(variants) == 1 and (fields := differences(variants[0], command)):
            told = f"{command.name} differs from its prompt in {', '.join(fields)}"
            yield Finding(shown, told, fixable=True)
    for key in known:
        yield Finding(shown, f"{' '.join(key)} has no prompt with a header")


def _against_patterns(look: _Look) -> Iterator[Finding]:
    by_domain = {c1: profile for profile, c1 in look.profiles}
    for command in look.commands:
        profile = by_domain[command.c1]
        for keys, name in allowed_names.missing(profile, command.c2, command.c3):
            told = f"{'.'.join(keys)} does not allow {name}, so {command.name} cannot be rendered"
            yield Finding(f"{profile.name}-user.yml", told, fixable=True)


def _allow_all(files: ProjectFiles, look: _Look) -> Iterator[str]:
    """Let the patterns allow every command, each file named that was changed."""
    by_domain = {c1: profile for profile, c1 in look.profiles}
    for command in look.commands:
        profile = Profile.load(files, by_domain[command.c1].name)  # as the last change left it
        for keys, name in allowed_names.missing(profile, command.c2, command.c3):
            file = allowed_names.allow(profile, keys, name)
            if file:
                yield file
