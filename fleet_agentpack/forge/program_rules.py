"""What programs accept in agents, commands and skills, and in a plugin as a whole.

Errors are what makes a program refuse a file or lose part of it, as its own validator or loader
says; everything else is advice.
"""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fleet_agentpack.forge.definition import PROGRAMS, KeyPath, is_claude_tool, listed_in
from fleet_agentpack.forge.names import Format
from fleet_agentpack.forge.schema import (
    Fault,
    Fix,
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
from fleet_agentpack.kit.mappings import type_name

Rules = Callable[["Examined"], Iterator[Fault]]

LONGEST_SKILL_NAME, LONGEST_DESCRIPTION, LONGEST_COMPATIBILITY = 64, 1024, 500
LONGEST_COPILOT_PROMPT = 30_000
COLOURS = ("red", "blue", "green", "yellow", "purple", "orange", "pink", "cyan")
MODES = ("default", "acceptEdits", "auto", "bypassPermissions", "dontAsk", "plan", "bubble")
SPECIFIED = ("name", "description", "license", "allowed-tools", "metadata", "compatibility")
_SHARED = (
    *("name", "description", "model", "effort", "hooks", "version", "metadata", "author"),
    *("license", "tags", "keywords"),
)
AGENT_FIELDS = (
    *(*_SHARED, "tools", "disallowedTools", "color", "permissionMode", "mcpServers", "maxTurns"),
    *("skills", "initialPrompt", "memory", "background", "isolation"),
)
COMMAND_FIELDS = (
    *(*_SHARED, "allowed-tools", "disallowed-tools", "disallowedTools", "argument-hint"),
    *("arguments", "disable-model-invocation", "user-invocable", "shell", "when_to_use", "paths"),
    *("context", "agent", "compatibility", "created_by", "improved_by"),
)
COPILOT_FIELDS = (
    *("name", "description", "target", "tools", "model", "disable-model-invocation", "agents"),
    *("user-invocable", "infer", "mcp-servers", "metadata", "argument-hint", "handoffs", "hooks"),
)


@dataclass(frozen=True)
class Examined:
    """A definition that is being judged, and where it is."""

    path: Path
    data: Mapping[str, Any]
    body: str
    has_header: bool
    in_plugin: bool = False
    for_claude: bool = False  # whether Claude Code reads the place it is in
    lines: Mapping[tuple[str | int, ...], int] | None = None


def claude_agent(seen: Examined) -> Iterator[Fault]:
    """A subagent of Claude Code."""
    if not seen.has_header:
        yield Fault((), "Claude Code does not load it: an agent starts with a header of fields")
        return
    yield from _agent_name(seen)
    yield from _description(seen, required=not seen.in_plugin)
    for field in ("tools", "disallowedTools", "skills"):
        yield from _names(seen, field, "advice", "Claude Code ignores it")
    for field in ("tools", "disallowedTools"):
        for name in listed_in(seen.data.get(field)):
            if not is_claude_tool(name):
                yield _advice(field, f"Claude Code has no tool {name!r} and leaves it out")
    yield from _choice(seen, "color", COLOURS, "Claude Code shows it without a colour")
    yield from _choice(seen, "permissionMode", MODES, "Claude Code ignores it")
    yield from _choice(seen, "memory", ("user", "project", "local"), "Claude Code ignores it")
    yield from _choice(seen, "isolation", ("worktree", "remote"), "Claude Code ignores it")
    if "allowed-tools" in seen.data:
        yield _advice("allowed-tools", "Claude Code ignores it in an agent; the field is `tools`")
    for field in ("hooks", "mcpServers", "permissionMode") if seen.in_plugin else ():
        if field in seen.data:
            yield _advice(field, "Claude Code ignores it in an agent of a plugin")
    known = (*AGENT_FIELDS, "allowed-tools")
    yield from _unknown(seen, known, "Claude Code ignores this field")
    if not seen.body.strip():
        yield _advice("system_prompt", "The text below the header is the prompt, and it is empty")


def claude_command(seen: Examined) -> Iterator[Fault]:
    """A slash command of Claude Code."""
    if not seen.has_header:
        yield _advice("", "Without a header it has no description in the list of commands")
    else:
        yield from _description(seen, required=False)
        yield from _claude_fields(seen)
        yield from _unknown(seen, COMMAND_FIELDS, "Claude Code ignores this field")
    if not seen.body.strip():
        yield _advice("extended_description", "The command is empty: it asks for nothing")


def agent_skill(seen: Examined) -> Iterator[Fault]:
    """A skill: the specification's rules, or Claude Code's where that program reads it."""
    if seen.for_claude:
        if not seen.has_header:
            yield _advice("", "Without a description Claude Code never uses it by itself")
            return
        yield from _description(seen, required=False)
        yield from _claude_fields(seen)
        weight, why = "error if strict", "; Claude Code takes it, the Agent Skills format does not"
    elif not seen.has_header:
        yield Fault((), "a skill starts with a header that has `name` and `description`")
        return
    else:
        weight, why = "error", ""
    for fault in _specified_skill(seen):
        yield Fault(fault.path, fault.message + why, weight, fault.fix)  # type: ignore[arg-type]


def copilot_agent(seen: Examined) -> Iterator[Fault]:
    """A custom agent of GitHub Copilot."""
    if not seen.has_header:
        yield Fault((), "Copilot needs a header with a `description`")
        return
    yield from _description(seen, required=True)
    yield from _names(seen, "tools", "error", "Copilot takes a list or names joined by commas")
    yield from _choice(seen, "target", ("vscode", "github-copilot"), "Copilot does not offer it")
    kind = type_name(servers := seen.data.get("mcp-servers", {}))
    if not isinstance(servers, dict | list):
        yield Fault(("mcp-servers",), f"expected object, received {kind}")
    yield from _unknown(seen, COPILOT_FIELDS, "Copilot ignores this field")
    if len(seen.body) > LONGEST_COPILOT_PROMPT:
        message = f"Copilot on GitHub takes at most {LONGEST_COPILOT_PROMPT:,} characters of prompt"
        yield _advice("system_prompt", message)


def codex_agent(seen: Examined) -> Iterator[Fault]:
    """A custom agent of Codex."""
    for field in ("name", "description", "developer_instructions"):
        value = seen.data.get(field)
        if not isinstance(value, str) or not value.strip():
            yield Fault((field,), f"Codex ignores the agent: `{field}` must be a text")
    names = seen.data.get("nickname_candidates", ["one"])
    if not isinstance(names, list) or not names or len({*map(str, names)}) != len(names):
        yield Fault(("nickname_candidates",), "Codex ignores the agent: expected different names")


RULES: dict[Format, Rules] = {
    "claude-agent": claude_agent,
    "claude-command": claude_command,
    "agent-skill": agent_skill,
    "copilot-agent": copilot_agent,
    "codex-agent": codex_agent,
}


def _agent_name(seen: Examined) -> Iterator[Fault]:
    name = seen.data.get("name")
    stem = seen.path.stem
    if name is None:
        if seen.in_plugin:
            yield _advice("name", f"Claude Code calls it {stem!r}, after its file")
        else:
            fix = Fix(2, f"name: {stem}", is_new=True)
            yield Fault(("name",), "Claude Code does not load an agent without a name", fix=fix)
    elif not isinstance(name, str):
        yield Fault(("name",), f"expected string, received {type_name(name)}")


def _description(seen: Examined, *, required: bool) -> Iterator[Fault]:
    value = seen.data.get("description")
    program = PROGRAMS["copilot-agent" if seen.path.name.endswith(".agent.md") else "claude-agent"]
    if value is None or (isinstance(value, str) and not value.strip()):
        if required:
            message = f"{program} does not load an agent without a description"
            yield Fault(("description",), message)
        else:
            yield _advice("description", "Without it nobody can tell when to use this")
    elif isinstance(value, list | dict):
        yield Fault(
            ("description",), f"expected string, received {type_name(value)}; it is dropped"
        )


def _claude_fields(seen: Examined) -> Iterator[Fault]:
    """The fields that Claude Code checks in commands and skills alike."""
    name = seen.data.get("name", "")
    if not isinstance(name, str):
        yield Fault(("name",), f"expected string, received {type_name(name)}")
    yield from _names(seen, "allowed-tools", "error", "expected a list or names joined by commas")
    shell = seen.data.get("shell", "bash")
    if shell not in ("bash", "powershell"):
        yield Fault(("shell",), "expected bash | powershell")


def _specified_skill(seen: Examined) -> Iterator[Fault]:
    """What the Agent Skills specification asks for."""
    data, directory = seen.data, unicodedata.normalize("NFKC", seen.path.parent.name)
    line = (seen.lines or {}).get(("name",))
    renamed = Fix(line, f"name: {directory}") if line and _is_skill_name(directory) else None
    name = data.get("name")
    if name is None:
        named = Fix(2, f"name: {directory}", is_new=True) if _is_skill_name(directory) else None
        yield Fault(("name",), "required", fix=named)
    elif not isinstance(name, str) or not name.strip():
        yield Fault(("name",), "must be a text")
    else:
        plain = unicodedata.normalize("NFKC", name.strip())
        if not _is_skill_name(plain):
            hint = (
                f"must be lower-case words joined by single hyphens, at most {LONGEST_SKILL_NAME}"
            )
            yield Fault(("name",), f"{hint} characters", fix=renamed)
        elif plain != directory:
            yield Fault(("name",), f"must be the directory's name, {directory!r}", fix=renamed)
    text = data.get("description")
    if text is None:
        yield Fault(("description",), "required")
    elif not isinstance(text, str) or not text.strip():
        yield Fault(("description",), "must be a text")
    elif len(text) > LONGEST_DESCRIPTION:
        message = f"has {len(text):,} characters; at most {LONGEST_DESCRIPTION:,} are allowed"
        yield Fault(("description",), message)
    fits = data.get("compatibility", "")
    if not isinstance(fits, str) or len(fits) > LONGEST_COMPATIBILITY:
        message = f"must be a text of at most {LONGEST_COMPATIBILITY} characters"
        yield Fault(("compatibility",), message)
    for key in data:
        if key not in (*SPECIFIED, "extended_description"):
            message = f"Not a field of a skill; these are: {', '.join(SPECIFIED)}"
            yield Fault((key,), message)


def _is_skill_name(name: str) -> bool:
    return (
        0 < len(name) <= LONGEST_SKILL_NAME
        and name == name.lower()
        and all(part and part.isalnum() for part in name.split("-"))
    )


def _names(seen: Examined, field: str, weight: Any, what_happens: str) -> Iterator[Fault]:
    """A list of names, or names joined by commas."""
    value = seen.data.get(field)
    fits = value is None or isinstance(value, str)
    if not fits and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        yield Fault((field,), f"{what_happens}; this is {type_name(value)}", weight)


def _choice(
    seen: Examined, field: str, choices: Collection[str], what_happens: str
) -> Iterator[Fault]:
    value = seen.data.get(field)
    if value is not None and value not in choices:
        yield _advice(field, f"{what_happens}; expected {' | '.join(choices)}")


def _unknown(seen: Examined, known: Collection[str], what_happens: str) -> Iterator[Fault]:
    for key in seen.data:
        if key not in known and key not in ("system_prompt", "extended_description"):
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            yield _advice(key, f"{what_happens}{hint}")


def _advice(field: str, message: str) -> Fault:
    return Fault((field,) if field else (), message, "advice")


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


def hook_faults(data: Mapping[str, Any], _: Path) -> Iterator[Fault]:
    """What Claude Code says of a `hooks.json`."""
    if data.get("hooks") is None:
        yield Fault(("hooks",), "required: the events belong inside `hooks`")
    yield from settings_faults(data, _)


def settings_faults(data: Mapping[str, Any], _: Path) -> Iterator[Fault]:
    """What Claude Code says of the hooks in settings: one mistake, and none of them is loaded."""
    hooks = data.get("hooks")
    if hooks is None:
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
    listed, metadata = data.get("plugins"), data.get("metadata")
    entries = listed if isinstance(listed, list) else []
    names = [each.get("name") for each in entries if isinstance(each, dict)]
    for at, entry in enumerate(entries):
        if not isinstance(entry, dict):
            continue
        if isinstance(entry.get("name"), str) and names.count(entry["name"]) > 1:
            yield Fault(("plugins", at, "name"), f"{entry['name']!r} is there more than once")
        source = entry.get("source")
        if isinstance(source, str) and source.startswith("./") and not (root / source).is_dir():
            message = f"{source} does not exist; the plugin cannot be installed"
            yield Fault(("plugins", at, "source"), message, "advice")
    inner = metadata if isinstance(metadata, dict) else {}
    if not (data.get("description") or inner.get("description")):
        yield Fault(("description",), "Consider describing what the marketplace offers", "advice")
    if listed == []:
        yield Fault(("plugins",), "The marketplace has no plugins", "advice")


def server_faults(data: Mapping[str, Any], _: Path) -> Iterator[Fault]:
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
