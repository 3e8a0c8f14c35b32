"""Reads one agent or tool, leniently, and tells by place and contents which program's it is."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.names import (
    NO_VERSION,
    Format,
    Identity,
    Kind,
    Source,
    is_usable_name,
    parse_reference,
)
from fleet_agentpack.forge.results import Described
from fleet_agentpack.kit import frontmatter, yaml12
from fleet_agentpack.kit.mappings import (
    UnparsableError,
    as_mapping,
    parse_yaml,
    read_mapping,
    read_parsable,
)
from fleet_agentpack.kit.results import UNKNOWN, Maybe

KeyPath = tuple[str | int, ...]  # where a value is inside parsed data

# How a directory of definitions is laid out. In `fractary` the path gives name and version.
Layout = Literal["fractary", "agents", "commands", "skills", "codex", "copilot"]

# What says that a file defines something: the directory it is in, which a program reads; its own
# header; or, in a directory of any name, a header that only a subagent has.
Proof = Literal["place", "header", "alone"]

SKILL_FILES = ("SKILL.md", "skill.md")
PLUGIN_MANIFEST = ".claude-plugin/plugin.json"
MARKETPLACE = ".claude-plugin/marketplace.json"
PROGRAMS: dict[Format, str] = {
    "fractary": "Forge",
    "claude-agent": "Claude Code",
    "claude-command": "Claude Code",
    "claude-plugin": "Claude Code",
    "agent-skill": "Agent Skills",
    "codex-agent": "Codex",
    "copilot-agent": "Copilot",
}

_OF_SUBAGENTS = ("tools", "model", "color")
_OF_FRACTARY = ("llm", "implementation")
_COPILOT_HOMES = (".github", ".copilot")
_NAMED_INSIDE: tuple[Layout, ...] = ("agents", "codex")  # their files say what they are called


def dotted(path: KeyPath) -> str:
    """A path as text."""
    return ".".join(str(part) for part in path)


def path_name(layout: Layout, parts: Sequence[str], root: str) -> str | None:
    """What a file below a directory is called by its path; None for one that defines nothing."""
    file, folder = parts[-1], parts[-2] if len(parts) > 1 else root
    stem, _, ending = file.rpartition(".")
    if layout == "skills":
        return folder if file in SKILL_FILES else None
    if layout == "codex":
        return stem if ending == "toml" else None
    if ending not in (("md",) if layout != "agents" else ("md", "yaml", "yml")):
        return None
    if layout == "commands":
        return None if file in SKILL_FILES else ":".join([*parts[:-1], stem])
    if stem == "agent" and len(parts) > 1:
        return folder
    return stem.removesuffix(".agent")


def own_name(layout: Layout, path: Path, data: Mapping[str, Any]) -> str | None:
    """The name that a definition gives itself, where that counts and can be one."""
    name = data.get("name")
    counts = layout in _NAMED_INSIDE and not path.name.endswith(".agent.md")
    return name if counts and is_usable_name(name, "agent") else None


def format_of(path: Path, kind: Kind, data: Mapping[str, Any], layout: Layout | None) -> Format:
    """The dialect of a definition, by its place and by its contents."""
    if layout == "fractary":
        return "fractary"
    if path.name in SKILL_FILES:
        return "agent-skill"
    if path.suffix == ".toml":
        return "codex-agent"
    if path.suffix != ".md" or path.stem in ("agent", "tool") or says_fractary(data):
        return "fractary"
    if kind == "tool":
        return "claude-command"
    home = path.parent.parent.name if path.parent.name == "agents" else ""
    if layout == "copilot" or home in _COPILOT_HOMES or path.name.endswith(".agent.md"):
        return "copilot-agent"
    return "claude-agent"


def says_fractary(data: Mapping[str, Any]) -> bool:
    """Whether only a Fractary definition has these fields."""
    return data.get("type") in ("agent", "tool") or any(key in data for key in _OF_FRACTARY)


def is_definition(
    layout: Layout, path: Path, data: Mapping[str, Any], *, has_header: bool, proof: Proof
) -> bool:
    """Whether a file defines something, or only lies beside files that do."""
    if layout in ("fractary", "skills", "codex"):
        return True
    if path.suffix != ".md":
        return data.get("type") == "agent"
    if layout == "commands":
        return proof == "place" or "description" in data
    if proof != "place" and not path.name.endswith(".agent.md"):
        named = "description" in data and is_usable_name(data.get("name"), "agent")
        alike = data.get("name") == path.stem and any(key in data for key in _OF_SUBAGENTS)
        return named and (alike or proof == "header")
    return has_header


def listed_in(text: object) -> list[str]:
    """The names in a list, or in a text that separates them by commas; brackets stay together."""
    if isinstance(text, list):
        return [each for each in text if isinstance(each, str)]
    if not isinstance(text, str):
        return []
    found, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += char
    return [each.strip() for each in found if each.strip()]


_SOUGHT: dict[str, tuple[str, str]] = {
    "agent": (
        ".fractary/agents, .claude/agents, .codex/agents, .github/agents, in plugins, in "
        "directories called agents, and in Markdown files that say they are subagents",
        "an agent is .claude/agents/NAME.md with `name` and `description` in its header",
    ),
    "tool": (
        ".fractary/tools, .claude/skills, .claude/commands, every other .NAME/skills, in plugins, "
        "and in directories with a SKILL.md",
        "a tool is .claude/skills/NAME/SKILL.md with `name` and `description` in its header",
    ),
    "plugin": (
        ".fractary/plugins, directories with .claude-plugin/plugin.json, and marketplaces",
        "a plugin is a directory with .claude-plugin/plugin.json and `agents` or `skills`",
    ),
}


def sought(kind: str, source: str) -> str:
    """What an empty answer says: where it looked, and what it would have found."""
    where, example = _SOUGHT[kind]
    whose = {"local": "the project's", "global": "the home's"}.get(
        source, "the project's and home's"
    )
    return f"No {kind}s found in {whose} {where}; for example, {example}"


# As Claude Code 2.1 lists them when it starts, with those that it offers only in some settings and
# the older names that it still takes.
CLAUDE_CODE = frozenset(
    {
        *("Agent", "AskUserQuestion", "Bash", "BashOutput", "CronCreate", "CronDelete", "CronList"),
        *("DesignSync", "Edit", "EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree"),
        *("Glob", "Grep", "KillBash", "KillShell", "LS", "LSP", "ListMcpResourcesTool", "Monitor"),
        *("MultiEdit", "NotebookEdit", "NotebookRead", "PowerShell", "PushNotification", "Read"),
        *("ReadMcpResourceTool", "RemoteTrigger", "ReportFindings", "ScheduleWakeup"),
        *("SendMessage", "SendUserFile", "Skill", "SlashCommand", "StructuredOutput", "Task"),
        *("TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate"),
        *("TeamCreate", "TeamDelete", "TodoRead", "TodoWrite", "ToolSearch", "WebFetch"),
        *("WebSearch", "Workflow", "Write"),
    }
)
CODEX = frozenset(("apply_patch", "exec_command", "shell", "update_plan", "view_image"))
COPILOT = frozenset(
    {
        *("agent", "browser", "codebase", "custom-agent", "edit", "execute", "fetch", "githubRepo"),
        *("read", "runCommands", "runTasks", "search", "shell", "todo", "todos", "vscode", "web"),
    }
)

_ANY = frozenset(each.lower() for each in CLAUDE_CODE | CODEX | COPILOT)
_PATTERN = re.compile(r"([^(\s]+)\s*(?:\(.*\))?\Z", re.DOTALL)


def is_host_tool(text: str) -> bool:
    """Whether a reference means a tool of some program, or of an MCP server."""
    return text.startswith("mcp__") or _name_in(text).lower() in _ANY


def is_claude_tool(text: str) -> bool:
    """Whether Claude Code has this tool, perhaps limited to some uses, such as `Bash(git *)`."""
    name = _name_in(text)
    return name in CLAUDE_CODE or name.startswith("mcp__") or name == "*"


def _name_in(text: str) -> str:
    found = _PATTERN.match(text.strip())
    return found[1] if found else text


MAX_DEFINITION_BYTES = 1_000_000
SUFFIXES = (".md", ".yaml", ".yml")  # the first that exists wins
READABLE = (*SUFFIXES, ".toml")

_FIELD = re.compile(r"^([A-Za-z][\w-]*):(?=\s)", re.MULTILINE)

_TOML_KEY = re.compile(r"([A-Za-z0-9_-]+)\s*=")

# The names of a file that stands for the directory around it.
WHOLE_DIRECTORY = ("agent", "tool", "SKILL", "skill")

# The field that a Markdown body becomes.
BODY_FIELD: dict[str, str] = {"agent": "system_prompt", "tool": "extended_description"}


@dataclass(frozen=True)
class ForkRecord:
    """Where a definition was forked from."""

    name: str
    version: str
    created_at: str = ""
    merged_at: Maybe[str] = UNKNOWN


@dataclass(frozen=True)
class Definition:
    """One definition as it was found."""

    kind: Kind
    name: str
    version: str
    source: Source
    path: str  # as it is shown: relative, absolute, or a URL
    data: Mapping[str, Any]
    file: Path | None = None
    owner: str | None = None
    format: Format = "fractary"

    @property
    def identity(self) -> Identity:
        """Which definition this is."""
        whole = self.file is not None and self.file.stem in WHOLE_DIRECTORY
        directory = self.file.parent if self.file and whole else None
        return Identity(self.kind, self.name, self.version, self.owner, self.format, directory)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a list shows of a definition; kept in memory while its file is unchanged."""

    version: str = ""
    description: Maybe[str] = UNKNOWN
    tags: Maybe[tuple[str, ...]] = UNKNOWN
    fork: ForkRecord | None = None
    problem: str | None = None  # why the file cannot be read
    name: str | None = None  # that the definition gives itself
    format: Format = "fractary"
    counts: bool = True  # whether the file defines anything at all


def read_data(path: Path, kind: Kind, *, forgiving: bool = False) -> dict[str, Any]:
    """The mapping in a definition file, a Markdown body included under its field's name.

    A forgiving reader takes a header as the coding agents do, which is more than is valid YAML.
    Raises `UnparsableError`, `FileNotFoundError`.
    """
    return parse_text(_text(path), path.suffix, kind, forgiving=forgiving)


def parse_text(text: str, suffix: str, kind: Kind, *, forgiving: bool = False) -> dict[str, Any]:
    """The mapping in the text of a definition file. Raises `UnparsableError`."""
    if suffix == ".toml":
        return as_mapping(_document(_toml_data(text), None, kind).data)
    header, body = split(text, suffix)
    try:
        data = parse_yaml(header)
    except UnparsableError:
        if not forgiving or body is None:
            raise
        data = _field_by_field(header)
    return as_mapping(_document(data, body, kind).data)


def read_document(path: Path, kind: Kind) -> yaml12.Document:
    """The same mapping with the line of every key. Raises as `read_data` does."""
    text = _text(path)
    if path.suffix == ".toml":
        return _document(_toml_data(text), None, kind, _toml_lines(text))
    header, body = split(text, path.suffix)
    offset = 0 if body is None else 1  # a Markdown header starts on the second line
    try:
        document = yaml12.load_document(header)
    except yaml12.YamlError as error:
        line = None if error.line is None else error.line + offset
        message = str(yaml12.YamlError(str(error).partition(" (line")[0], line))
        raise UnparsableError(f"not valid YAML: {message}") from error
    lines = {place: line + offset for place, line in document.lines.items()}
    return _document(document.data, body, kind, lines)


def summarise(
    path: Path,
    kind: Kind,
    version_in_path: str | None,
    layout: Layout = "fractary",
    *,
    proof: Proof = "place",
    plugin_version: str = "",
) -> Summary:
    """What a list shows of the definition in a file; never raises for what is in it."""
    version = version_in_path or ("" if layout == "fractary" else plugin_version or NO_VERSION)
    try:
        text = _text(path)
        data = parse_text(text, path.suffix, kind, forgiving=layout != "fractary")
    except UnparsableError as error:
        return Summary(version, problem=str(error), counts=proof == "place")
    except FileNotFoundError:
        return Summary(version, problem="disappeared while it was read")
    has_header = path.suffix != ".md" or frontmatter.split(text).header is not None
    return Summary(
        version=sys.intern(version_in_path or version_of(data) or version),
        description=text_of(data, "description"),
        tags=tags_of(data),
        fork=fork_of(data) or _fork_beside(path),
        name=own_name(layout, path, data),
        format=format_of(path, kind, data, layout),
        counts=is_definition(layout, path, data, has_header=has_header, proof=proof),
    )


def version_of(data: Mapping[str, object]) -> str:
    """A definition's version as text, empty when it has none."""
    version = data.get("version")
    return str(version) if isinstance(version, str | int | float) else ""


def text_of(data: Mapping[str, object], *keys: str) -> Maybe[str]:
    """The first of some fields that holds text."""
    return next((text for key in keys if isinstance(text := data.get(key), str)), UNKNOWN)


def described(name: str, version: str, data: Mapping[str, object]) -> Described:
    """What a definition or a manifest says of itself."""
    person = data.get("author")  # which some write as an object
    author = text_of(person, "name") if isinstance(person, Mapping) else text_of(data, "author")
    return Described(name, version, text_of(data, "description"), author, text_of(data, "license"))


def strings_of(value: object) -> list[str]:
    """The texts in a list; anything else in it is skipped."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def tags_of(data: Mapping[str, object]) -> Maybe[tuple[str, ...]]:
    """A definition's tags, unknown when it has no list of them."""
    tags = data.get("tags")
    return tuple(map(sys.intern, strings_of(tags))) if isinstance(tags, list) else UNKNOWN


def fork_of(data: Mapping[str, object]) -> ForkRecord | None:
    """The fork record inside a definition, in any of its three spellings."""
    own, other = data.get("fork_of"), data.get("fork")
    if isinstance(own, str) and own:
        reference = parse_reference(own)
        return ForkRecord(reference.name, "" if reference.any_version else reference.wanted)
    for record in (own, other):
        if isinstance(record, Mapping) and (fork := _fork_record(record)):
            return fork
    return None


def _fork_record(record: Mapping[str, object]) -> ForkRecord | None:
    name = text_of(record, "name", "upstream", "from_name")
    if name is UNKNOWN or not name:
        return None
    version = text_of(record, "version", "upstreamVersion", "from_version")
    created = text_of(record, "forked_at", "forkedAt", "created_at")
    return ForkRecord(
        name=parse_reference(name).name,
        version="" if version is UNKNOWN else version,
        created_at="" if created is UNKNOWN else created,
        merged_at=text_of(record, "merged_at", "mergedAt"),
    )


def _fork_beside(path: Path) -> ForkRecord | None:
    """The record that the original's command line keeps in `metadata.json` of a directory."""
    if path.stem not in ("agent", "tool"):
        return None
    try:
        return fork_of({"fork": read_mapping(path.with_name("metadata.json")).get("fork")})
    except (FileNotFoundError, UnparsableError):
        return None


def split(text: str, suffix: str) -> tuple[str, str | None]:
    """The YAML part of a text and, for Markdown, its body. Raises `UnparsableError`."""
    if suffix != ".md":
        return text, None
    document = frontmatter.split(text)
    if document.header is None and frontmatter.is_open(text):
        raise UnparsableError("the header is not closed: end it with a line of three hyphens")
    return document.header or "", document.body


def _field_by_field(header: str) -> object:
    """The fields of a header that is no YAML as a whole; a value that is none is taken as text."""
    fields: dict[str, object] = {}
    starts = list(_FIELD.finditer(header))
    for at, found in enumerate(starts):
        end = starts[at + 1].start() if at + 1 < len(starts) else len(header)
        part = header[found.start() : end]
        try:
            data = parse_yaml(part)
        except UnparsableError:
            data = {found[1]: header[found.end() : end].strip()}
        fields |= data if isinstance(data, dict) else {}
    return fields


def _text(path: Path) -> str:
    if path.suffix not in READABLE:
        raise UnparsableError(f"must end in {', '.join(READABLE)}")
    return read_parsable(path, MAX_DEFINITION_BYTES)


def _toml_data(text: str) -> object:
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnparsableError(f"not valid TOML: {error}") from error
    if isinstance(prompt := data.get("developer_instructions"), str):
        data.setdefault(BODY_FIELD["agent"], prompt.strip())
    return data


def _toml_lines(text: str) -> dict[tuple[str | int, ...], int]:
    """The line of each key before the first table."""
    lines: dict[tuple[str | int, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("["):
            break
        if found := _TOML_KEY.match(line):
            lines.setdefault((found[1],), number)
    return lines


def _document(
    data: object, body: str | None, kind: Kind, lines: Mapping[KeyPath, int] | None = None
) -> yaml12.Document:
    """The fields of parsed YAML; a Markdown body always replaces the header's field."""
    if not isinstance(data, dict | None):
        raise UnparsableError("must be a mapping of fields")
    fields = {str(key): value for key, value in (data or {}).items()}
    text = (body or "").replace("\r\n", "\n").strip()
    if text:
        fields[BODY_FIELD[kind]] = text
    elif body is not None:
        fields.pop(BODY_FIELD[kind], None)
    return yaml12.Document(fields, dict(lines or {}))
