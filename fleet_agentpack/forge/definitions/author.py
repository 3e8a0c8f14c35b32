"""Writes new definitions: from what a person says, or as a fork with a record of its upstream."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.command_results import Created
from fleet_agentpack.forge.config.configuration import Configuration
from fleet_agentpack.forge.definitions.definition import BODY_FIELD, Definition, ForkRecord
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.definitions.validation import validate
from fleet_agentpack.forge.errors import ForgeError, Loaded
from fleet_agentpack.forge.files import Directories, timestamp, writing_below
from fleet_agentpack.forge.forks.bases import (
    DefinitionFiles,
    ForkBases,
    KeptFork,
    cut,
    files_of,
    renamed,
    with_line_ends,
)
from fleet_agentpack.forge.names import KINDS, Kind, Reference, is_kebab, parse_reference
from fleet_agentpack.forge.registries.trees import FileContent, write_files
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import jsonable
from fleet_agentpack.kit.swap import New

Format = Literal["md", "yaml"]


Field = str | list[str] | dict[str, str | dict[str, str]]  # of a new definition


@dataclass(frozen=True)
class Draft:
    """What a person says of a new definition."""

    name: str
    description: str
    tags: Sequence[str] = ()
    author: str | None = None
    extends: str | None = None
    tools: Sequence[str] = ()
    provider: str = "anthropic"
    model: str = "claude-sonnet-4"
    prompt: str | None = None
    command: str = "echo 'replace this command'"

    def fields(self, kind: Kind) -> dict[str, Field]:
        """The fields of the new definition."""
        common: dict[str, Field] = {
            "name": self.name,
            "type": kind,
            "description": self.description,
            "version": "1.0.0",
            **({"author": self.author} if self.author else {}),
            "tags": list(self.tags),
            **({"extends": self.extends} if self.extends else {}),
        }
        if kind == "tool":
            implementation: Field = {"type": "bash", "bash": {"command": self.command}}
            return {**common, "parameters": {}, "implementation": implementation}
        return {
            **common,
            "llm": {"provider": self.provider, "model": self.model},
            "tools": list(self.tools),
            "system_prompt": self.prompt or f"You are {self.name}. {self.description}",
        }


def create(
    configuration: Configuration, resolver: Resolver, kind: Kind, draft: Draft, form: Format
) -> Created:
    """Write a new definition that passes strict validation. Raises `ForgeError`."""
    check_new_name(kind, draft.name)
    path = configuration.local_root(kind) / draft.name / f"{kind}.{form}"
    text = definition_text(draft.fields(kind), kind, form)
    _check(kind, draft.name, path.name, text, resolver)
    directories = configuration.directories
    with writing_below(directories.project):
        refuse_taken(directories, resolver.find_local(kind, draft.name), path, path)
        write_atomic(path, text, durable=True)
    return Created(directories.shown(path))


def refuse_taken(directories: Directories, known: Path | None, path: Path, whole: Path) -> None:
    """Refuse a name that is taken, or a file whose place (or directory) is."""
    if known is not None or whole.exists():
        raise ForgeError.conflict(
            f"{directories.shown(known or path)} already exists; nothing was written",
            "Choose another name",
        )


def _check(kind: Kind, name: str, file_name: str, text: str, resolver: Resolver) -> None:
    """Validate the new text in a scratch directory, before anything is written."""
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / name / file_name
        draft.parent.mkdir()
        draft.write_text(text, encoding="utf-8")
        result = validate(draft, kind, file_name, resolver, strict=True)
    if not result.valid:
        problems = [f"{each.field}: {each.message}" for each in result.errors]
        raise ForgeError.invalid(
            f"the {kind} would not be valid, so it was not written: {'; '.join(problems)}",
            "Create the tools that it refers to first, or leave them out",
            errors=jsonable(result.errors),
        )


def check_new_name(kind: Kind, name: str) -> None:
    """Refuse a name that a new definition should not have. Raises `ForgeError`."""
    if not all(is_kebab(part) for part in name.split(":")) or (kind == "tool" and ":" in name):
        raise ForgeError.invalid(
            f"{name[:80]!r} is not a name for a new {kind}: "
            "use lower-case words joined by hyphens, such as release-notes"
        )


def definition_text(fields: Mapping[str, Any], kind: Kind, form: Format) -> str:
    """The text of a new definition."""
    if form == "yaml":
        return yaml12.dump(fields)
    header = {key: value for key, value in fields.items() if key != BODY_FIELD[kind]}
    return f"---\n{yaml12.dump(header)}---\n{fields.get(BODY_FIELD[kind], '')}\n"


# Where a program finds its own definitions in a project, by their format.
PLACES = {
    "claude-agent": ".claude/agents",
    "claude-command": ".claude/commands",
    "agent-skill": ".claude/skills",
    "codex-agent": ".codex/agents",
    "copilot-agent": ".github/agents",
}


def create_fork(
    configuration: Configuration,
    resolver: Resolver,
    kind: Kind | None,
    source: str,
    name: str,
    now: datetime,
) -> Created:
    """Copy a definition under a new name, with all of its directory. Raises `ForgeError`."""
    found = _source(resolver, kind, parse_reference(source))
    upstream, directories = found.value, configuration.directories
    check_new_name(upstream.kind, name)
    original = files_of(upstream)
    record = ForkRecord(upstream.identity.qualified, upstream.version, timestamp(now))
    path = _place(configuration, upstream, original, name)
    fork = _copied(upstream, original, path.name, record, name, resolver)
    bases = ForkBases(directories.project)
    kept = KeptFork(upstream.kind, name, path, record, original.main, _details(upstream))
    with writing_below(directories.project):
        whole = upstream.identity.directory is not None or upstream.format == "fractary"
        folder = path.parent if whole else path
        refuse_taken(directories, resolver.find_local(upstream.kind, name), path, folder)
        swap = bases.swap
        swap.recover()
        new: New = partial(write_files, fork.files) if whole else fork.files[fork.main].data
        swap.replace({folder: new, **bases.changes(kept, original)})
    return Created(directories.shown(path), configuration.noted(found.warnings))


def _source(resolver: Resolver, kind: Kind | None, reference: Reference) -> Loaded[Definition]:
    """The definition to fork, an agent before a tool. Raises `ForgeError`."""
    kinds: tuple[Kind, ...] = (kind,) if kind else KINDS
    for each in kinds:
        found = resolver.find(each, reference)
        if found.definition:
            return Loaded(found.definition, found.warnings)
    named = Reference(reference.name)
    there = [each for each in kinds if resolver.nearest_file(each, named)]
    return resolver.resolve((*there, *kinds)[0], reference)  # says why it is not found


def _place(
    configuration: Configuration, upstream: Definition, original: DefinitionFiles, name: str
) -> Path:
    """The file of the fork, where the program that reads its format looks for it."""
    kind, main = upstream.kind, original.main
    top = PLACES.get(upstream.format)
    if top is None:
        return configuration.local_root(kind) / name / f"{kind}{original.suffix}"
    if upstream.file and ".agents" in upstream.file.parts:
        top = top.replace(".claude", ".agents")
    root = configuration.directories.project.parent / top
    if upstream.identity.directory is not None:
        return root / name / main
    _, dot, endings = main.partition(".")
    return root / f"{name}{dot}{endings}"


def _copied(
    upstream: Definition,
    original: DefinitionFiles,
    main: str,
    record: ForkRecord,
    name: str,
    resolver: Resolver,
) -> DefinitionFiles:
    """The files of the fork; only its name and, in Fractary's format, the record are new."""
    text = renamed(original.text, original.suffix, name)
    parts = cut(text, original.suffix) if upstream.format == "fractary" else None
    if parts is not None:
        if base := _own_base(upstream, resolver):
            parts = parts.with_value("extends", base)
        origin = {"name": record.name, "version": record.version, "forked_at": record.created_at}
        parts = parts.without("fork").with_value("fork_of", origin)
        text = with_line_ends(str(parts), text)
    content = replace(original.files[original.main], data=text.encode())
    return DefinitionFiles(main, {**original.others, main: FileContent(content.data)})


def _own_base(upstream: Definition, resolver: Resolver) -> str | None:
    """What a fork has to extend where upstream means a base of its own plugin by a bare name."""
    text = upstream.data.get("extends")
    if not isinstance(text, str) or upstream.owner is None:
        return None
    reference = parse_reference(text)
    base = resolver.find(upstream.kind, reference, upstream).definition
    if base is None or base.owner != upstream.owner:
        return None
    return str(Reference(base.identity.qualified, reference.wanted))


def _details(upstream: Definition) -> dict[str, str]:
    owner = {"owner": upstream.owner} if upstream.owner else {}
    return {**owner, "source": upstream.source, "path": upstream.path, "format": upstream.format}
