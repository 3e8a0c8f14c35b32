"""The manifest of a tool: which file it is, what it may declare, which commands it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NotRequired, Protocol, TypedDict, TypeVar

from fleet_agentpack.enact import declared as said
from fleet_agentpack.enact import names, quantities, template
from fleet_agentpack.enact.permissions import MOST_WANTED, is_too_much
from fleet_agentpack.kit import frontmatter, yaml12
from fleet_agentpack.kit.visible import visible_throughout

PACKAGE_FILES = ("skill.package.yaml", "skill.package.yml", "skill.yml", "enact.yaml", "enact.yml")
MANIFEST_FILES = ("SKILL.md", *PACKAGE_FILES[:3], "enact.md", *PACKAGE_FILES[3:])
LONGEST_MANIFEST = 1024 * 1024
LONGEST_DESCRIPTION = 1024
MOST_TOOLS = 64
LARGEST_TOOL = 20_000  # bytes of description and schemas, which every client is sent
PATH_FORMATS = ("path", "file-path", "directory-path")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]{0,254}\Z")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
# Variables that change how a program is loaded, or that belong to this server.
_FORBIDDEN_VARIABLES = re.compile(
    r"(?:PATH|HOME|TMPDIR|IFS|ENV|BASH_ENV|SHELLOPTS|LD_.*|DYLD_.*|PYTHON.*|NODE_OPTIONS|PERL5.*"
    r"|RUBY(?:OPT|LIB)|FLEET_AGENTPACK_.*|CODER_.*|ENACT_AUTH_TOKEN)\Z"
)
# What `SKILL.md` says where the package's own file does not.
_FALLBACKS = ("description", "license", "compatibility", "metadata")

T = TypeVar("T")
Schema = dict[str, object]  # a JSON Schema
Annotations = Mapping[str, bool | str]  # the MCP hints of a tool, and its title


class ManifestError(ValueError):
    """A manifest that cannot be used; the message says why."""


class Files(Protocol):
    """The files of a package, by relative path; None for one that does not exist."""

    def read(self, path: str) -> bytes | None:
        """The content of one file."""


@dataclass(frozen=True)
class Variable:
    """An environment variable that a tool declares."""

    name: str
    description: str = ""
    secret: bool = False
    required: bool = False
    default: str | None = None


@dataclass(frozen=True)
class Resources:
    """What a tool says that it uses at most."""

    memory_bytes: int | None = None
    disk_bytes: int | None = None


@dataclass(frozen=True)
class Script:
    """One command of a tool, with the schemas of its input and output."""

    name: str | None  # None: the tool's own `command`
    command: str
    description: str
    input_schema: Schema
    output_schema: Schema | None = None
    annotations: Annotations = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """What a package says about itself."""

    name: str
    version: str | None
    description: str
    documentation: str
    command: Script | None = None
    scripts: Mapping[str, Script] = field(default_factory=dict)
    image: str | None = None
    network: tuple[str, ...] = ()  # hosts, or `*` for any
    build: tuple[str, ...] = ()  # commands, carried out once before the first run
    build_network: tuple[str, ...] = ()
    resources: Resources = Resources()
    stdin_json: bool = False  # whether the arguments are also sent to standard input, as JSON
    timeout_s: float | None = None
    variables: tuple[Variable, ...] = ()
    annotations: Annotations = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    license: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_instruction(self) -> bool:
        """Whether the tool is text for the agent, with nothing to run."""
        return self.command is None and not self.scripts

    def entries(self) -> dict[names.Entry, Script | None]:
        """What can be called, each with the script behind it."""
        found = names.entries_of(self.name, self.scripts, has_command=self.command is not None)
        return {
            entry: self.scripts[script] if script else self.command
            for entry, script in found.items()
        }


def load(files: Files) -> Manifest:
    """Read the manifest of a package. Raises `ManifestError`."""
    skill = files.read("SKILL.md")
    package = next((name for name in PACKAGE_FILES if files.read(name) is not None), None)
    if skill is not None and package is not None:
        text = frontmatter.split(_decode("SKILL.md", skill))
        header = _yaml("SKILL.md", text.header) if text.header is not None else {}
        fallbacks = {key: header[key] for key in _FALLBACKS if key in header}
        fields = _yaml(package, _decode(package, files.read(package) or b""))
        return parse({**fallbacks, **fields}, text.body.strip())
    for name in MANIFEST_FILES:
        content = files.read(name)
        if content is None:
            continue
        if not name.endswith(".md"):
            return parse(_yaml(name, _decode(name, content)))
        text = frontmatter.split(_decode(name, content))
        if text.header is None:
            raise ManifestError(f"{name} has no header between --- lines")
        return parse(_yaml(name, text.header), text.body.strip())
    raise ManifestError(f"no manifest found; a tool needs one of {', '.join(MANIFEST_FILES)}")


def parse(data: Mapping[str, object], body: str = "") -> Manifest:
    """A manifest from its parsed fields and the text below its header. Raises `ManifestError`.

    All of its text is a publisher's: what is hidden in it is made visible here, once.
    """
    data, body = visible_throughout(data), visible_throughout(body)
    name = _field(data, "name", str, "a string")
    if not names.is_name(name):
        raise ManifestError(f"name {name[:80]!r} is not owner/tool in lower case")
    description = _field(data, "description", str, "a string")
    if not description.strip() or len(description) > LONGEST_DESCRIPTION:
        raise ManifestError(f"description must have 1 to {LONGEST_DESCRIPTION} characters")
    annotations = _annotations(data)
    output = _schema(data, "outputSchema")
    inherited = Script(None, "", description.strip(), {}, output, annotations)
    return Manifest(
        name=name,
        version=_version(data),
        description=description.strip(),
        documentation=(_string(data, "doc") or body or description).strip(),
        command=_command(data, inherited),
        scripts=_scripts(data, inherited),
        image=_image(data),
        network=_said(said.hosts, data, "x-network"),
        build=_said(said.build_steps, data),
        build_network=_said(said.build_hosts, data),
        resources=_resources(data),
        stdin_json=_string(data, "x-stdin") == "json",
        timeout_s=_quantity(data, "timeout", quantities.seconds),
        variables=_variables(data),
        annotations=annotations,
        tags=_strings(data, "tags"),
        license=_string(data, "license") or None,
        warnings=tuple(said.never_run(name, data)),
    )


def _decode(name: str, content: bytes) -> str:
    if len(content) > LONGEST_MANIFEST:
        raise ManifestError(f"{name} is larger than {LONGEST_MANIFEST} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(f"{name} is not UTF-8 text") from error


def _yaml(name: str, text: str) -> dict[str, object]:
    try:
        data = yaml12.load(text)
    except yaml12.YamlError as error:
        raise ManifestError(f"{name}: {error}") from error
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ManifestError(f"{name} is not a mapping of fields")
    return data


def _field(
    data: Mapping[str, object], key: str, kind: type[T], words: str, default: T | None = None
) -> T:
    """A declared field of one kind, or its default. Raises `ManifestError`."""
    value = data.get(key)
    if value is None:
        value = default
    if value is None:
        raise ManifestError(f"{key} is missing")
    if not isinstance(value, kind):
        raise ManifestError(f"{key} must be {words}")
    return value


def _string(data: Mapping[str, object], key: str) -> str:
    return _field(data, key, str, "a string", "")


def _strings(data: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = data.get(key) or []
    if not isinstance(value, list):
        raise ManifestError(f"{key} must be a list of strings")
    return tuple(str(item) for item in value)


def _flag(data: Mapping[str, object], key: str) -> bool:
    value = data.get(key, False)
    if not isinstance(value, bool):
        raise ManifestError(f"{key} must be true or false")
    return value


def _quantity(data: Mapping[str, object], key: str, read: Callable[[str], T]) -> T | None:
    text = _string(data, key)
    try:
        return read(text) if text else None
    except ValueError as error:
        raise ManifestError(f"{key}: {error}") from error


def _resources(data: Mapping[str, object]) -> Resources:
    declared: dict[str, object] = _field(data, "resources", dict, "a mapping", {})
    sizes = (_quantity(declared, key, quantities.size) for key in ("memory", "disk"))
    return Resources(*sizes)


def _said(
    read: Callable[..., tuple[str, ...]], data: Mapping[str, object], *keys: str
) -> tuple[str, ...]:
    try:
        return read(data, *keys)
    except ValueError as error:
        raise ManifestError(str(error)) from error


def _version(data: Mapping[str, object]) -> str | None:
    text = _string(data, "version")
    if text and not names.is_version(text):
        raise ManifestError(f"version {text[:40]!r} is not a semantic version such as 1.2.3")
    return text or None


def _image(data: Mapping[str, object]) -> str | None:
    image = _string(data, "from")
    if image and not _IMAGE.match(image):
        raise ManifestError(f"from {image[:80]!r} is not a container image")
    return image or None


def _variables(data: Mapping[str, object]) -> tuple[Variable, ...]:
    declared: dict[object, object] = _field(data, "env", dict, "a mapping of variables", {})
    if is_too_much([*map(str, declared)]):
        raise ManifestError(f"env asks for too much: at most {MOST_WANTED} variables")
    return tuple(_variable(name, entry) for name, entry in declared.items())


def _variable(name: object, entry: object) -> Variable:
    if not isinstance(name, str) or not _VARIABLE.match(name):
        raise ManifestError(f"env: {name!r} is not the name of a variable")
    if _FORBIDDEN_VARIABLES.match(name):
        raise ManifestError(f"env: a tool must not ask for {name}")
    if not isinstance(entry, dict) or not _string(entry, "description"):
        raise ManifestError(f"env.{name} needs a description")
    default = entry.get("default")
    return Variable(
        name=name,
        description=entry["description"],
        secret=_flag(entry, "secret"),
        required=_flag(entry, "required"),
        default=None if default is None else str(default),
    )


def _annotations(data: Mapping[str, object]) -> dict[str, bool | str]:
    declared: dict[str, object] = _field(data, "annotations", dict, "a mapping", {})
    title = _string(declared, "title")
    hints = {key: _flag(declared, key) for key in _HINTS if key in declared}
    return {**hints, **({"title": title} if title else {})}


def _schema(data: Mapping[str, object], key: str, fallback: Schema | None = None) -> Schema | None:
    value = data.get(key)
    if value is None:
        return fallback
    if not isinstance(value, dict):
        raise ManifestError(f"{key} must be a JSON Schema")
    if key != "inputSchema":
        return value
    if value.get("type", "object") != "object":
        raise ManifestError("inputSchema must describe an object")
    properties = value.get("properties", {})
    if not isinstance(properties, dict):
        raise ManifestError("inputSchema: properties must be a mapping")
    for name, rule in properties.items():
        if isinstance(rule, dict) and "default" in rule and _takes_path(rule):
            reason = "a path must not have a default; only the caller names files"
            raise ManifestError(f"{name}: {reason}")
    return {"type": "object", **value}


def _takes_path(rule: Mapping[str, object]) -> bool:
    items = rule.get("items")
    return rule.get("format") in PATH_FORMATS or (isinstance(items, dict) and _takes_path(items))


def _command(data: Mapping[str, object], tool: Script) -> Script | None:
    command = _string(data, "command")
    if not command.strip():
        return None
    return _script(None, command, {"inputSchema": data.get("inputSchema")}, tool)


def _scripts(data: Mapping[str, object], tool: Script) -> dict[str, Script]:
    declared: dict[str, object] = _field(
        data, "scripts", dict, "a mapping of names to commands", {}
    )
    if len(declared) > MOST_TOOLS:
        raise ManifestError(f"{len(declared)} scripts are too many: at most {MOST_TOOLS}")
    if len(declared) == 1:
        tool = replace(tool, input_schema=_schema(data, "inputSchema") or {})
        return {name: _declared(name, entry, tool) for name, entry in declared.items()}
    own = replace(tool, output_schema=None)
    return {
        name: _declared(name, entry, replace(own, description=f"{tool.description} ({name})"))
        for name, entry in declared.items()
    }


def _declared(name: object, entry: object, tool: Script) -> Script:
    if not isinstance(name, str) or not names.SCRIPT_NAME.match(name):
        raise ManifestError(f"scripts: {name!r} is not a usable name")
    fields = {"command": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, dict):
        raise ManifestError(f"scripts.{name} must be a command or a mapping")
    command = _string(fields, "command")
    if not command.strip():
        raise ManifestError(f"scripts.{name} has no command")
    return _script(name, command, fields, tool)


def _script(name: str | None, command: str, fields: Mapping[str, object], tool: Script) -> Script:
    """A command with its own fields; what it does not declare, it inherits from the tool."""
    schema = _schema(fields, "inputSchema") or tool.input_schema or dict(_inferred(command))
    output = _schema(fields, "outputSchema", tool.output_schema)
    description = _string(fields, "description") or tool.description
    try:
        properties = schema.get("properties")
        template.check(command, properties if isinstance(properties, dict) else {})
        shown = quantities.json_bytes((description, schema, output))
    except ValueError as error:
        raise ManifestError(str(error)) from error
    if shown > LARGEST_TOOL:
        where = f"scripts.{name}" if name else "command"
        raise ManifestError(f"{where}: description and schemas exceed {LARGEST_TOOL} bytes")
    annotations = {**tool.annotations, **_annotations(fields)}
    return Script(name, command, description, schema, output, annotations)


class _ObjectSchema(TypedDict):
    type: Literal["object"]
    properties: dict[str, dict[str, str]]
    required: NotRequired[list[str]]


def _inferred(command: str) -> _ObjectSchema:
    """The schema of a command without one: every placeholder is a required string."""
    found = template.parameters(command)
    properties = {name: {"type": "string"} for name in found}
    schema: _ObjectSchema = {"type": "object", "properties": properties}
    return {**schema, "required": found} if found else schema
