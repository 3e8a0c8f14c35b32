"""Edits `agentpack.yaml`: what a person wrote, comments and order included, stays as it is."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from fleet_agentpack.deploy import manifest_text
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.manifest_text import NotEditableError
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.results import UNKNOWN, Maybe, jsonable
from fleet_agentpack.kit.yaml12 import YamlError

Place = tuple[str, ...]


@dataclass(frozen=True)
class GitEntry:
    """A module's source in git, as the manifest has it."""

    url: str
    ref: Maybe[str] = UNKNOWN
    subdir: Maybe[str] = UNKNOWN
    shallow: Maybe[bool] = UNKNOWN


@dataclass(frozen=True)
class LocalEntry:
    """A module's source in the repo, as the manifest has it."""

    path: str


@dataclass(frozen=True)
class SourceEntry:
    """One of the two."""

    local_path: Maybe[LocalEntry] = UNKNOWN
    git: Maybe[GitEntry] = UNKNOWN


@dataclass(frozen=True, kw_only=True)
class ModuleEntry:
    """A module as the manifest has it."""

    id: str
    type: str
    scope: Maybe[str] = UNKNOWN
    tags: Sequence[str]
    targets: Maybe[Sequence[str]] = UNKNOWN
    output: Maybe[str] = UNKNOWN
    source: SourceEntry


@dataclass(frozen=True)
class ProfileEntry:
    """A profile of one project, as the manifest has it."""

    include_tags: Sequence[str]
    include_modules: Maybe[Sequence[str]]
    exclude_modules: Maybe[Sequence[str]]
    project: str


# How people indent lists in YAML: the width of an item, and where its dash stands.
_INDENTS = ((2, 0), (4, 2), (3, 1))


@dataclass(frozen=True)
class ManifestEdit:
    """Values to set, by their place, modules to add at the end, and modules to take out."""

    values: Mapping[Place, object]
    added: Sequence[ModuleEntry] = ()
    removed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.values or self.added or self.removed)


def edited(text: str, edit: ManifestEdit) -> str:
    """The text with an edit. Raises `DeployError` when it cannot be made without other changes."""
    expected = yaml12.load(text)
    before = yaml12.load(text)
    _carry_out(expected, edit)
    with suppress(NotEditableError, YamlError):
        made = _in_place(text, before, edit)
        if yaml12.load(made) == expected:
            return made
    tries = [tried for tried in _tries(text, edit) if yaml12.load(tried) == expected]
    if not tries:
        raise DeployError.config_invalid(
            "agentpack.yaml cannot be edited without changing other values; nothing was written",
            hint="make the change by hand",
        )
    return min(tries, key=lambda tried: _lines_lost(text, tried))


def _in_place(text: str, before: Any, edit: ManifestEdit) -> str:
    """The text with an edit, and every other line as it was."""
    for place, value in edit.values.items():
        text = manifest_text.put(text, place, jsonable(value))
    modules = before.get("modules") or ()
    gone = [number for number, each in enumerate(modules) if each["id"] in edit.removed]
    if gone:
        text = manifest_text.without(text, "modules", gone)
    if edit.added:
        text = manifest_text.append(text, "modules", [jsonable(each) for each in edit.added])
    return text


def _tries(text: str, edit: ManifestEdit) -> Iterator[str]:
    from ruamel.yaml import YAML

    for sequence, offset in _INDENTS:
        yaml = YAML()
        yaml.preserve_quotes = True
        yaml.width = 4096
        yaml.indent(mapping=2, sequence=sequence, offset=offset)
        data, stream = yaml.load(text), io.StringIO()
        _carry_out(data, edit)
        yaml.dump(data, stream)
        yield stream.getvalue()


def _carry_out(data: Any, edit: ManifestEdit) -> None:
    for place, value in edit.values.items():
        *parents, last = place
        inside = data
        for name in parents:
            if not isinstance(inside.get(name), dict):
                inside[name] = {}
            inside = inside[name]
        inside[last] = jsonable(value)
    if edit.removed:
        kept = data["modules"]
        for number in reversed(range(len(kept))):
            if kept[number]["id"] in edit.removed:
                del kept[number]
    if edit.added:
        if not data.get("modules"):
            data["modules"] = []
        data["modules"].extend(map(jsonable, edit.added))


def _lines_lost(before: str, after: str) -> int:
    one, other = before.splitlines(), after.splitlines()
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return len(one) - sum(block.size for block in matcher.get_matching_blocks())
