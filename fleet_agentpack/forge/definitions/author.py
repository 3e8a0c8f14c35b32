"""Writes new definitions: an agent, a tool, or a fork of one."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.command_results import Created
from fleet_agentpack.forge.config.configuration import Configuration
from fleet_agentpack.forge.definitions.definition import BODY_FIELD, Definition
from fleet_agentpack.forge.definitions.inheritance import inherit
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.definitions.validation import validate
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.files import timestamp, writing_below
from fleet_agentpack.forge.loaded import Loaded
from fleet_agentpack.forge.names import KINDS, Kind, Reference, is_kebab, parse_reference
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import jsonable

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


class Author:
    """Writes new definitions into a project."""

    def __init__(self, configuration: Configuration, resolver: Resolver) -> None:
        self._configuration = configuration
        self._resolver = resolver

    def create(self, kind: Kind, draft: Draft, form: Format) -> Created:
        """Write a new definition that passes strict validation. Raises `ForgeError`."""
        path, text = self._file(kind, draft.name, draft.fields(kind), form)
        self._check(kind, draft.name, path.name, text)
        return Created(self._write(kind, draft.name, path, text))

    def create_fork(self, kind: Kind | None, source: str, name: str, now: datetime) -> Created:
        """Copy a definition under a new name, with a record of where it came from."""
        found = self._source(kind, parse_reference(source))
        inherited = inherit(found.value, self._resolver)
        upstream = found.value
        fields = {
            **{k: v for k, v in inherited.checked().fields.items() if k not in ("fork_of", "fork")},
            "name": name,
            "fork_of": {
                "name": upstream.name,
                "version": upstream.version,
                "forked_at": timestamp(now),
            },
        }
        form: Format = "md" if upstream.file and upstream.file.suffix == ".md" else "yaml"
        path, text = self._file(upstream.kind, name, fields, form)
        return Created(
            self._write(upstream.kind, name, path, text),
            self._configuration.noted(found.warnings, inherited.warnings),
        )

    def _source(self, kind: Kind | None, reference: Reference) -> Loaded[Definition]:
        """The definition to fork, an agent before a tool. Raises `ForgeError`."""
        kinds: tuple[Kind, ...] = (kind,) if kind else KINDS
        for each in kinds:
            found = self._resolver.find(each, reference)
            if found.definition:
                return Loaded(found.definition, found.warnings)
        named = Reference(reference.name)
        there = [each for each in kinds if self._resolver.nearest_file(each, named)]
        return self._resolver.resolve((*there, *kinds)[0], reference)  # says why it is not found

    def _file(
        self, kind: Kind, name: str, fields: Mapping[str, Any], form: Format
    ) -> tuple[Path, str]:
        if not all(is_kebab(part) for part in name.split(":")) or (kind == "tool" and ":" in name):
            raise ForgeError.invalid(
                f"{name[:80]!r} is not a name for a new {kind}: "
                "use lower-case words joined by hyphens, such as release-notes"
            )
        path = self._configuration.local_root(kind) / name / f"{kind}.{form}"
        return path, _text(fields, kind, form)

    def _write(self, kind: Kind, name: str, path: Path, text: str) -> str:
        """Write a new file; returns its path as shown."""
        directories = self._configuration.directories
        with writing_below(directories.project):
            taken = self._resolver.find_local(kind, name)
            if taken is not None or path.exists():
                raise ForgeError.conflict(
                    f"{directories.shown(taken or path)} already exists; nothing was written",
                    "Choose another name",
                )
            write_atomic(path, text, durable=True)
        return directories.shown(path)

    def _check(self, kind: Kind, name: str, file_name: str, text: str) -> None:
        """Validate the new text in a scratch directory, before anything is written."""
        with tempfile.TemporaryDirectory() as scratch:
            draft = Path(scratch) / name / file_name
            draft.parent.mkdir()
            draft.write_text(text, encoding="utf-8")
            result = validate(draft, kind, file_name, self._resolver, strict=True)
        if not result.valid:
            problems = [f"{each.field}: {each.message}" for each in result.errors]
            raise ForgeError.invalid(
                f"the {kind} would not be valid, so it was not written: {'; '.join(problems)}",
                "Create the tools that it refers to first, or leave them out",
                errors=jsonable(result.errors),
            )


def _text(fields: Mapping[str, Any], kind: Kind, form: Format) -> str:
    if form == "yaml":
        return yaml12.dump(fields)
    header = {key: value for key, value in fields.items() if key != BODY_FIELD[kind]}
    return f"---\n{yaml12.dump(header)}---\n{fields.get(BODY_FIELD[kind], '')}\n"
