"""A registry file as it is written: built from the prompts' headers, what else it has kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from fleet_agentpack.climpt.project_files import MAX_BYTES, UnusableFileError
from fleet_agentpack.climpt.registry import Command, parse
from fleet_agentpack.kit.files import UnreadableError, read_text, write_atomic
from fleet_agentpack.kit.results import UNKNOWN, json_file, jsonable

Key = tuple[str, str, str]


class Record(TypedDict):
    """One command of the file, as we write it."""

    c1: str
    c2: str
    c3: str
    description: str
    usage: NotRequired[str]
    options: dict[str, Any]
    uv: list[dict[str, str]] | str
    title: NotRequired[str]
    aliases: NotRequired[list[str]]


class Tools(TypedDict):
    """The part that holds the commands."""

    availableConfigs: list[str]
    commands: list[Record]


class Document(TypedDict):
    """The whole file."""

    version: str
    description: str
    tools: Tools


_VERSION = "1.0.0"
_DESCRIPTION = "Prompt commands of this project"


@dataclass
class RegistryFile:
    """A registry's JSON, to be changed and written back."""

    path: Path
    data: Document

    @classmethod
    def read(cls, path: Path) -> RegistryFile:
        """The file, or an empty registry where there is none. Raises `UnusableFileError`."""
        try:
            text = read_text(path, MAX_BYTES)
        except FileNotFoundError:
            empty: Tools = {"availableConfigs": [], "commands": []}
            return cls(path, {"version": _VERSION, "description": _DESCRIPTION, "tools": empty})
        except UnreadableError as error:
            raise UnusableFileError(str(error)) from error
        parse(text)
        return cls(path, json.loads(text))

    @property
    def records(self) -> list[Record]:
        """The records of commands, in order."""
        return self.data["tools"]["commands"]

    def by_key(self) -> dict[Key, list[Record]]:
        """The records of each command; several are its variants."""
        found: dict[Key, list[Record]] = {}
        for record in self.records:
            if isinstance(record, dict):
                key = tuple(str(record.get(name, "")) for name in ("c1", "c2", "c3"))
                found.setdefault(key, []).append(record)  # type: ignore[arg-type]
        return found

    def update(self, commands: Iterable[Command]) -> None:
        """Add the commands that are missing and bring the others up to date."""
        known = self.by_key()
        for command in commands:
            variants = known.get(command.key, [])
            if not variants:
                self.records.append(record_of(command))
            elif len(variants) == 1 and differences(variants[0], command):
                variants[0].update(record_of(command))
        domains = [r["c1"] for r in self.records if isinstance(r, dict) and r.get("c1")]
        listed = self.data["tools"].get("availableConfigs")
        listed = listed if isinstance(listed, list) else []
        new = [name for name in dict.fromkeys(domains) if name not in listed]
        self.data["tools"]["availableConfigs"] = [*listed, *new]

    def write(self) -> None:
        """Write the file, all of it or nothing."""
        write_atomic(self.path, json_file(self.data))


def record_of(command: Command) -> Record:
    """A command as a record; title and aliases are ours, the original passes them by."""
    record: Mapping[str, Any] = {
        "c1": command.c1,
        "c2": command.c2,
        "c3": command.c3,
        "description": command.description,
        "usage": command.usage or UNKNOWN,
        "options": command.options,
        "uv": [{name: purpose} for name, purpose in command.variables.items()],
        "title": command.title or UNKNOWN,
        "aliases": command.aliases or UNKNOWN,
    }
    plain: Record = jsonable(record)
    if not command.variables:
        plain["uv"] = ""
    return plain


def differences(record: Record, command: Command) -> list[str]:
    """The fields in which a record differs from what the prompt's header says."""
    wanted = record_of(command)
    read_elsewhere = [name for name in ("title", "aliases") if name not in record]
    return [
        name
        for name, value in wanted.items()
        if name not in read_elsewhere and record.get(name, "") != value
    ]
