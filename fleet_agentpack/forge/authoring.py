"""Creates what people start from: a configuration, an agent, a tool, a fork."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.definitions import BODY_FIELD, Kind
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.inheritance import flattened
from fleet_agentpack.forge.names import Reference, is_kebab, parse_reference
from fleet_agentpack.forge.service import Desk
from fleet_agentpack.forge.validation import validate
from fleet_agentpack.forge.writing import stamp, write_json, writing_below
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import write_atomic

Format = Literal["md", "yaml"]
STARTING_CONFIGURATION: dict[str, Any] = {
    "registries": [],
    "cache": {"ttl": 3600},
    "resolution": {"local": True, "global": True, "stockyard": False},
    "install": {
        "default_scope": "local",
        "verify_checksums": True,
        "auto_install_dependencies": True,
    },
}


@dataclass(frozen=True)
class Draft:
    """What a person says of a new definition."""

    name: str
    description: str
    tags: tuple[str, ...] = ()
    author: str | None = None
    extends: str | None = None
    tools: tuple[str, ...] = ()
    provider: str = "anthropic"
    model: str = "claude-sonnet-4"
    prompt: str | None = None
    command: str = "echo 'replace this command'"


def initialise(desk: Desk, *, for_user: bool) -> list[Path]:
    """Make a configuration and the directories beside it. Raises `ForgeError` if there is one."""
    places = desk.configuration.places
    root = places.user if for_user else places.project
    path = root / "config.json"
    with writing_below(root):
        if path.exists():
            raise ForgeError.conflict(
                f"{places.shown(path)} is already there; nothing was changed",
                "See what it says: fleet-agentpack forge config show",
            )
        base = desk.configuration.global_root if for_user else root
        folders = [base / "agents", base / "tools"]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        write_json(path, STARTING_CONFIGURATION)
    return [path, *folders]


def create(desk: Desk, kind: Kind, draft: Draft, form: Format) -> Path:
    """Write a new definition that passes strict validation. Raises `ForgeError`."""
    fields = _agent_fields(draft) if kind == "agent" else _tool_fields(draft)
    return _place(desk, kind, draft.name, fields, form)


def create_fork(desk: Desk, kind: Kind | None, source: str, name: str, now: datetime) -> Path:
    """Copy a definition under a new name, with a record of where it came from."""
    reference = parse_reference(source)
    kinds: tuple[Kind, ...] = (kind,) if kind else ("agent", "tool")
    found = next(
        (each for k in kinds if (each := desk.resolver.exists(k, reference, desk.warnings))), None
    )
    if found is None:
        named = Reference(reference.name)
        there = [k for k in kinds if desk.resolver.nearest_file(k, named)]
        desk.resolver.resolve((*there, *kinds)[0], reference, desk.warnings)
        raise AssertionError("resolve raises for what does not exist")
    fields = flattened(found, desk.resolver, desk.warnings)
    for old in ("fork_of", "fork"):
        fields.pop(old, None)
    fields["name"] = name
    fields["fork_of"] = {"name": found.name, "version": found.version, "forked_at": stamp(now)}
    is_markdown = found.file is not None and found.file.suffix == ".md"
    form: Format = "md" if is_markdown else "yaml"
    return _place(desk, found.kind, name, fields, form, must_be_valid=False)


def _place(
    desk: Desk,
    kind: Kind,
    name: str,
    fields: dict[str, Any],
    form: Format,
    *,
    must_be_valid: bool = True,
) -> Path:
    if not all(is_kebab(part) for part in name.split(":")) or (kind == "tool" and ":" in name):
        raise ForgeError.invalid(
            f"{name[:80]!r} is not a name for a new {kind}: "
            "use lower-case words joined by hyphens, such as release-notes"
        )
    places = desk.configuration.places
    path = desk.configuration.local_root(kind) / name / f"{kind}.{form}"
    text = _text(fields, kind, form)
    if must_be_valid:
        _check(desk, kind, name, path.name, text)
    with writing_below(places.project):
        taken = desk.resolver.find_local(kind, name)
        if taken is not None or path.exists():
            raise ForgeError.conflict(
                f"{places.shown(taken or path)} is already there; nothing was written",
                "Choose another name",
            )
        write_atomic(path, text, durable=True)
    return path


def _check(desk: Desk, kind: Kind, name: str, file_name: str, text: str) -> None:
    """Validate the new text where nobody sees it, before anything is written."""
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / name / file_name
        draft.parent.mkdir()
        draft.write_text(text, encoding="utf-8")
        result = validate(draft, kind, file_name, desk.resolver, strict=True)
    if not result["valid"]:
        problems = [f"{each['field']}: {each['message']}" for each in result["errors"]]
        raise ForgeError.invalid(
            f"the {kind} would not be valid, so it was not written: {'; '.join(problems)}",
            "Create the tools that it refers to first, or leave them out",
            errors=result["errors"],
        )


def _text(fields: dict[str, Any], kind: Kind, form: Format) -> str:
    if form == "yaml":
        return yaml12.dump(fields)
    header = {key: value for key, value in fields.items() if key != BODY_FIELD[kind]}
    return f"---\n{yaml12.dump(header)}---\n{fields.get(BODY_FIELD[kind], '')}\n"


def _agent_fields(draft: Draft) -> dict[str, Any]:
    prompt = draft.prompt or f"You are {draft.name}. {draft.description}"
    return {
        "name": draft.name,
        "type": "agent",
        "description": draft.description,
        "version": "1.0.0",
        **({"author": draft.author} if draft.author else {}),
        "tags": list(draft.tags),
        **({"extends": draft.extends} if draft.extends else {}),
        "llm": {"provider": draft.provider, "model": draft.model},
        "tools": list(draft.tools),
        "system_prompt": prompt,
    }


def _tool_fields(draft: Draft) -> dict[str, Any]:
    return {
        "name": draft.name,
        "type": "tool",
        "description": draft.description,
        "version": "1.0.0",
        **({"author": draft.author} if draft.author else {}),
        "tags": list(draft.tags),
        **({"extends": draft.extends} if draft.extends else {}),
        "parameters": {},
        "implementation": {"type": "bash", "bash": {"command": draft.command}},
    }
