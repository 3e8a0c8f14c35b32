"""What programs accept of a plugin as a whole: its manifest, hooks, MCP entries and AGENTS.md."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fleet_agentpack.forge.definitions.schema import (
    Fault,
    Rule,
    anything,
    boolean,
    list_of,
    map_of,
    mapping,
    number,
    record,
    text,
    typed,
    valid,
    variant,
)
from fleet_agentpack.forge.files import KeyPath
from fleet_agentpack.kit.mappings import type_name

MOST_READ_BY_CODEX = 32 * 1024  # bytes of AGENTS.md
HOOK_EVENTS = (
    *("PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "Notification"),
    *("UserPromptSubmit", "UserPromptExpansion", "SessionStart", "SessionEnd", "Stop"),
    *("StopFailure", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact"),
    *("PermissionRequest", "PermissionDenied", "Setup", "TeammateIdle", "TaskCreated"),
    *("TaskCompleted", "Elicitation", "ElicitationResult", "ConfigChange", "WorktreeCreate"),
    *("WorktreeRemove", "InstructionsLoaded", "CwdChanged", "FileChanged", "MessageDisplay"),
)
_OF_ENTRIES = ("category", "tags", "strict", "source")
_COMPONENT_FIELDS = ("commands", "agents", "skills", "hooks", "outputStyles")
_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")


def _name(value: str) -> bool:
    return bool(value) and not any(each in value for each in (" ", "/", "\\", ".."))


def _is_url(value: str) -> bool:
    try:
        return bool(urlsplit(value).scheme)
    except ValueError:
        return False


def _path(value: Any, path: KeyPath) -> Iterable[Fault]:
    if isinstance(value, str) and not value.startswith("./"):
        return [Fault(path, "a path starts with ./ and is relative to the plugin")]
    return text(value, path)


def _one_or_more(item: Rule) -> Rule:
    def check(value: Any, path: KeyPath) -> Iterable[Fault]:
        return list_of(item)(value, path) if isinstance(value, list) else item(value, path)

    return check


def _markdown(value: Any, path: KeyPath) -> Iterable[Fault]:
    if isinstance(value, str) and not value.endswith(".md"):
        return [Fault(path, "must name a Markdown file")]
    return _path(value, path)


def _commands(value: Any, path: KeyPath) -> Iterable[Fault]:
    """Paths, or a table of commands with a source or a content each."""
    return mapping(value, path) if isinstance(value, dict) else _one_or_more(_path)(value, path)


def _inline(value: Any, path: KeyPath) -> Iterable[Fault]:
    """A path to a file, or what would be in it."""
    return () if isinstance(value, dict) else _one_or_more(anything)(value, path)


_PERSON = record({"name": text, "email?": text, "url?": text})
MANIFEST_FIELDS: dict[str, Rule] = {
    "name": valid(_name, "must be one word, such as my-plugin"),
    "version?": text,
    "displayName?": text,
    "description?": text,
    "author?": _PERSON,
    "homepage?": valid(_is_url, "not a URL"),
    "repository?": text,
    "license?": text,
    "keywords?": list_of(text),
    "defaultEnabled?": boolean,
    "dependencies?": typed(list, "array"),
    "commands?": _commands,
    "agents?": _one_or_more(_markdown),
    "skills?": _one_or_more(_path),
    "hooks?": _inline,
    "outputStyles?": _one_or_more(_path),
}
_ALSO_READ = (
    *("mcpServers", "lspServers", "settings", "userConfig", "channels", "monitors", "themes"),
    *("workflows", "experimental", "metadata", "$schema", "binaries", "fallback", "evals"),
)
_HOOK = variant(
    "type",
    {
        "command": record({"command": text, "timeout?": number}),
        "prompt": record({"prompt": text, "timeout?": number}),
        "agent": record({"prompt": text, "timeout?": number}),
        "http": record({"url": text, "timeout?": number}),
        "mcp_tool": record({"timeout?": number}),
    },
)
_HOOKS = map_of(list_of(record({"matcher?": text, "hooks": list_of(_HOOK)})))
_SOURCE_FIELDS = {
    "github": record({"repo": text}),
    "url": record({"url": text}),
    "git": record({"url": text}),
    "git-subdir": record({"url": text, "path": text}),
    "npm": record({"package": text}),
    "pip": record({"package": text}),
}


def manifest_faults(manifest: Mapping[str, Any], folder: Path) -> Iterator[Fault]:
    """What Claude Code says of a `.claude-plugin/plugin.json`."""
    yield from record(MANIFEST_FIELDS)(manifest, ())
    name = manifest.get("name")
    if isinstance(name, str) and _name(name) and not _KEBAB.match(name):
        message = "Claude Code takes it; claude.ai wants lower-case words joined by hyphens"
        yield Fault(("name",), message, "advice")
    known = {*(each.removesuffix("?") for each in MANIFEST_FIELDS), *_ALSO_READ}
    for key in manifest:
        if key in _OF_ENTRIES:
            message = "Claude Code ignores it here; it belongs in the marketplace's entry"
            yield Fault((key,), message, "error if strict")
        elif key not in known:
            yield Fault((key,), "Claude Code ignores this field", "error if strict")
    for key in ("version", "description", "author"):
        if manifest.get(key) is None:
            yield Fault((key,), f"Consider adding `{key}`; people see it", "advice")
    for field in _COMPONENT_FIELDS:
        value = manifest.get(field)
        for at, each in enumerate(value if isinstance(value, list) else [value]):
            place: KeyPath = (field, at) if isinstance(value, list) else (field,)
            if isinstance(each, str) and not os.path.lexists(folder / each):
                yield Fault(place, f"{each} does not exist; Claude Code reports a failed load")


def hook_faults(data: Mapping[str, Any], *, in_settings: bool = False) -> Iterator[Fault]:
    """What Claude Code says of hooks: one mistake, and none of them is loaded."""
    hooks = data.get("hooks")
    if hooks is None:
        if not in_settings:
            yield Fault(("hooks",), "required: the events belong inside `hooks`")
        return
    for event in hooks if isinstance(hooks, dict) else ():
        if event not in HOOK_EVENTS:
            message = "Claude Code has no such event and loads none of these hooks"
            yield Fault(("hooks", str(event)), message)
    known = hooks
    if isinstance(hooks, dict):
        known = {event: each for event, each in hooks.items() if event in HOOK_EVENTS}
    yield from _HOOKS(known, ("hooks",))


def marketplace_faults(data: Mapping[str, Any], root: Path) -> Iterator[Fault]:
    """What Claude Code says of a `marketplace.json`."""
    shape = {
        "name": valid(_name, "must be one word, such as my-marketplace"),
        "owner": _PERSON,
        "plugins": list_of(_entry),
    }
    yield from record(shape)(data, ())
    entries = data.get("plugins")
    names = (
        [each.get("name") for each in entries if isinstance(each, dict)]
        if isinstance(entries, list)
        else []
    )
    for at, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue
        if isinstance(entry.get("name"), str) and names.count(entry["name"]) > 1:
            yield Fault(("plugins", at, "name"), f"{entry['name']!r} is there more than once")
        source = entry.get("source")
        if isinstance(source, str) and source.startswith("./") and not (root / source).is_dir():
            message = f"{source} does not exist; the plugin cannot be installed"
            yield Fault(("plugins", at, "source"), message, "advice")
    metadata = data.get("metadata")
    described = data.get("description") or (
        isinstance(metadata, dict) and metadata.get("description")
    )
    if not described:
        yield Fault(("description",), "Consider describing what the marketplace offers", "advice")
    if entries == []:
        yield Fault(("plugins",), "The marketplace has no plugins", "advice")


def server_faults(data: Mapping[str, Any]) -> Iterator[Fault]:
    """What is wrong with the MCP entries of a `.mcp.json`."""
    inner = data.get("mcpServers")
    servers = inner if inner is not None else data
    if not isinstance(servers, dict):
        yield Fault(("mcpServers",), f"expected object, received {type_name(servers)}")
        return
    above: KeyPath = ("mcpServers",) if inner is not None else ()
    for name, server in servers.items():
        place = (*above, str(name))
        if not isinstance(server, dict):
            yield Fault(place, f"expected object, received {type_name(server)}")
        elif not any(isinstance(server.get(key), str) for key in ("command", "url", "serverUrl")):
            yield Fault(place, "needs a `command` to start or a `url` to call; it never connects")


def instruction_faults(content: str) -> Iterator[Fault]:
    """What is wrong with an AGENTS.md."""
    size = len(content.encode())
    if not content.strip():
        yield Fault((), "The file is empty: it tells an agent nothing", "advice")
    elif size > MOST_READ_BY_CODEX:
        message = f"Codex reads the first {MOST_READ_BY_CODEX:,} bytes of these {size:,}"
        yield Fault((), message, "advice")


def _entry(value: Any, path: KeyPath) -> Iterable[Fault]:
    shape = {"name": valid(_name, "must be one word, such as my-plugin"), "source": _source}
    return record({**MANIFEST_FIELDS, **shape})(value, path)


def _source(value: Any, path: KeyPath) -> Iterable[Fault]:
    if isinstance(value, dict):
        return variant("source", _SOURCE_FIELDS)(value, path)
    if isinstance(value, str) and ".." in value.split("/"):
        return [Fault(path, "leads out of the marketplace; paths start at its root")]
    return _path(value, path)
