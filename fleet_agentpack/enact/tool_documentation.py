"""A tool's documentation for the agent: the publisher's text, then how to call it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fleet_agentpack.enact.manifest import Manifest, Script, Variable
from fleet_agentpack.enact.permissions import Bounds, allow_command, changes, changes_said, wanted
from fleet_agentpack.kit.actions import named


def describe(manifest: Manifest, mcp_names: Mapping[str | None, str], bounds: Bounds) -> str:
    """The whole documentation as Markdown; `mcp_names` maps scripts to their MCP tools."""
    parts = [manifest.documentation.strip(), f"## Calling {manifest.name}"]
    if manifest.is_instruction:
        parts.append("This tool is a set of instructions to follow; there is nothing to run.")
    for entry, script in manifest.entries().items():
        if script is not None:
            parts += _script(entry.key, script, mcp_names.get(script.name))
    if manifest.variables:
        parts += ["### Environment", "\n".join(map(_variable, manifest.variables))]
    if not manifest.is_instruction:
        parts += ["### Permissions", *_permissions(manifest, bounds)]
    return "\n\n".join(parts)


def _permissions(manifest: Manifest, bounds: Bounds) -> Iterator[str]:
    if asked := wanted(manifest):
        command = allow_command(manifest.name, asked)
        yield f"It asks for {asked.said()}. A person grants it: `{command}`"
    if changed := changes(manifest):
        yield changes_said(changed)
    if manifest.build:
        steps = "; ".join(f"`{each}`" for each in manifest.build)
        yield f"Before its first run it is built, once, in its sandbox: {steps}"
    if not (asked or changed):
        yield "It asks for nothing beyond its sandbox."
    yield f"A run may use {bounds.said()}."


def _script(key: str, script: Script, mcp_name: str | None) -> list[str]:
    how = _how(key, named(mcp_name) if mcp_name else "", named("enact__run"))
    parts = [f"### {key}", script.description, how, "Input:", _fenced(script.input_schema)]
    if script.output_schema is not None:
        parts += ["Output:", _fenced(script.output_schema)]
    return parts


def _how(key: str, own_name: str, run: str) -> str:
    if own_name:
        return f"Call `{own_name}`."
    return f'Install it, or call `{run}` with `tool: "{key}"`.' if run else "Install it first."


def _variable(variable: Variable) -> str:
    marks = [*(["secret"] * variable.secret), *(["required"] * variable.required)]
    noted = f" ({', '.join(marks)})" if marks else ""
    return f"- `{variable.name}`{noted}: {variable.description}"


def _fenced(schema: Mapping[str, Any]) -> str:
    return f"```json\n{json.dumps(schema, indent=2, ensure_ascii=False)}\n```"
