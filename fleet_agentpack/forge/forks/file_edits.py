"""Changes single fields of a definition file and keeps everything else, comments included."""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet_agentpack.forge.definitions.definition import (
    BODY_FIELD,
    MAX_DEFINITION_BYTES,
    parse_text,
)
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.forks.changes import MISSING, Edit, same
from fleet_agentpack.forge.names import Kind
from fleet_agentpack.forge.parsing import UnparsableError
from fleet_agentpack.kit import frontmatter
from fleet_agentpack.kit.files import read_text


def edited(path: Path, kind: Kind, edits: Sequence[Edit]) -> str:
    """The text of a definition file after some edits; the file itself is not touched.

    Raises `ForgeError` when the text would not read back as exactly that.
    """
    before = read_text(path, MAX_DEFINITION_BYTES)
    after = _edited(before.replace("\r\n", "\n"), path, kind, edits)
    if "\r\n" in before:
        after = after.replace("\n", "\r\n")
    expected = copy.deepcopy(parse_text(before, path.suffix, kind))
    for edit in edits:
        _apply(expected, edit)
    try:
        exact = same(parse_text(after, path.suffix, kind), expected)
    except UnparsableError:
        exact = False
    if not exact:
        raise ForgeError.conflict(
            f"{path.name} cannot be edited without changing other values; nothing was written",
            "Make the change by hand",
            path=str(path),
        )
    return after


def _edited(text: str, path: Path, kind: Kind, edits: Sequence[Edit]) -> str:
    if path.suffix != ".md":
        return _edited_yaml(text, edits)
    document = frontmatter.split(text)
    body, field = document.body, (BODY_FIELD[kind],)
    for edit in edits:
        if edit.path == field:
            body = "" if edit.value is MISSING else f"{edit.value}\n"
    header = _edited_yaml(document.header or "", [each for each in edits if each.path != field])
    return f"---\n{header}---\n{body}"


def _edited_yaml(text: str, edits: Sequence[Edit]) -> str:
    if not edits:
        return text
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    data = yaml.load(text)
    if data is None:
        data = CommentedMap()
    for edit in edits:
        _apply(data, Edit(edit.path, _styled(edit.value)))
    stream = io.StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


def _apply(data: Any, edit: Edit) -> None:
    *parents, last = edit.path
    for part in parents:
        if not isinstance(data.get(part), dict):
            data[part] = {}
        data = data[part]
    if edit.value is MISSING:
        data.pop(last, None)
    else:
        data[last] = edit.value


def _styled(value: object) -> object:
    """Long text in block style, as a person would write it."""
    if isinstance(value, str) and "\n" in value:
        from ruamel.yaml.scalarstring import LiteralScalarString

        return LiteralScalarString(value)
    return value
