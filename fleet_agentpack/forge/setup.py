"""Sets up what a project uses: its configuration, its registries, its first definitions."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from fleet_agentpack.forge.access import is_secret_name
from fleet_agentpack.forge.catalogue import Catalogue, Unavailable, offers_of
from fleet_agentpack.forge.configuration import LISTING, Configuration
from fleet_agentpack.forge.definition import BODY_FIELD, MARKETPLACE
from fleet_agentpack.forge.errors import ForgeError, Warnings, noted, run
from fleet_agentpack.forge.names import (
    Directories,
    Kind,
    Registry,
    git_url,
    is_address,
    is_kebab,
    is_ref,
    local_path,
    write_file,
    writing_below,
)
from fleet_agentpack.forge.registries import RegistryClient
from fleet_agentpack.forge.resolver import Resolver
from fleet_agentpack.forge.trees import is_bare_repository
from fleet_agentpack.forge.validation import validate
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.paths import NoBaseError
from fleet_agentpack.kit.proxies import is_loopback
from fleet_agentpack.kit.results import UNKNOWN, Maybe, json_file, jsonable


@dataclass(frozen=True)
class Initialised:
    """The configuration and directories that `init` created."""

    created: tuple[str, ...]


@dataclass(frozen=True)
class Created:
    """The file of a new agent, tool or fork."""

    path: str
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class RegistryAddition:
    """A registry that was added, the file that changed, and what was found there."""

    name: str
    path: str
    url: str
    format: Maybe[Literal["claude", "fractary", "plugins"]] = UNKNOWN
    plugins: Maybe[int] = UNKNOWN  # those that can be shown
    listed: Maybe[int] = UNKNOWN  # those that it lists
    commit: Maybe[str] = UNKNOWN
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class RegistryRemoval:
    """A registry that was removed, and the file that changed."""

    name: str
    path: str


STARTING_CONFIGURATION: dict[str, object] = {
    "registries": [],
    "cache": {"ttl": 3600},
    "resolution": {"local": True, "global": True, "stockyard": False},
    "install": {
        "default_scope": "local",
        "verify_checksums": True,
        "auto_install_dependencies": True,
    },
}

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


def initialise(configuration: Configuration, *, for_user: bool) -> Initialised:
    """Make a configuration and the directories beside it. Raises `ForgeError` if there is one."""
    directories = configuration.directories
    root = directories.user if for_user else directories.project
    path = root / "config.json"
    with writing_below(root):
        if path.exists():
            raise ForgeError.conflict(
                f"{directories.shown(path)} already exists; nothing was changed",
                run("See what it says: {}", "config", "show"),
            )
        base = configuration.global_root if for_user else root
        folders = [base / "agents", base / "tools"]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        write_file(path, json_file(STARTING_CONFIGURATION))
    return Initialised(tuple(directories.shown(each) for each in (path, *folders)))


def put_registry(directories: Directories, registry: Registry, *, for_user: bool = False) -> str:
    """Add a registry to the project's or the user's file; returns its path. Raises `ForgeError`."""
    if not _NAME.match(registry.name):
        raise ForgeError.invalid(
            f"{registry.name[:80]!r} is not a registry name: letters, digits, - and _ are allowed"
        )
    if registry.priority < 0:
        raise ForgeError.invalid("the priority must be 0 or more; the lowest is asked first")
    if registry.token_env is not None and not _VARIABLE.match(registry.token_env):
        raise ForgeError.invalid(
            "--token-env takes the name of a variable, such as MY_TOKEN",
            run("Or keep it outside of files: {}", "login", registry.name),
        )
    path = _file(directories, for_user=for_user)
    with writing_below(path.parent):
        data, registries = _read(path)
        if _without(registry.name, registries) != registries:
            raise ForgeError.conflict(
                f"{directories.shown(path)} already has a registry {registry.name}",
                run("Remove it first: {}", "registry", "remove", registry.name),
                run("Or give it another name: {}", "registry", "add", "NAME", "ADDRESS"),
            )
        entry: dict[str, object] = {
            "name": registry.name,
            "type": registry.kind,
            "url": registry.url,
            "enabled": True,
            "priority": registry.priority,
            **({"ref": registry.ref} if registry.ref else {}),
        }
        if registry.token_env:
            entry["auth"] = {"type": "bearer", "token_env": registry.token_env}
        write_file(path, json_file({**data, "registries": [*registries, entry]}))
    return directories.shown(path)


def remove_registry(
    directories: Directories, name: str, *, for_user: bool = False
) -> RegistryRemoval:
    """Take a registry out of the project's or the user's file. Raises `ForgeError`."""
    path = _file(directories, for_user=for_user)
    with writing_below(path.parent):
        data, registries = _read(path)
        kept = _without(name, registries)
        if kept == registries:
            raise ForgeError(
                "CONFIG_ERROR",
                f"{directories.shown(path)} has no registry {name[:80]!r}",
                run("See them all: {}", "registry", "list"),
                path=str(path),
                name=name[:80],
            )
        write_file(path, json_file({**data, "registries": kept}))
    return RegistryRemoval(name, directories.shown(path))


def _without(name: str, registries: list[object]) -> list[object]:
    return [
        each for each in registries if not (isinstance(each, dict) and each.get("name") == name)
    ]


def _file(directories: Directories, *, for_user: bool) -> Path:
    given = directories.environ.get("FRACTARY_CONFIG")
    root = directories.user if for_user else directories.project
    path = directories.expanded(given) if given else root / "config.json"
    if path.suffix != ".json":
        raise ForgeError.config(path, "registries are added to JSON files only; edit it by hand")
    return path


class _Content(NamedTuple):
    data: dict[str, object]
    registries: list[object]


def _read(path: Path) -> _Content:
    try:
        data = read_mapping(path)
    except FileNotFoundError:
        return _Content({}, [])
    except UnparsableError as error:
        raise ForgeError.config(path, f"{error}; nothing was changed") from error
    registries = data.get("registries", [])
    if not isinstance(registries, list):
        raise ForgeError.config(path, "registries must be an array; nothing was changed")
    return _Content(data, registries)


def check_url(registry: Registry) -> None:
    """Refuse an address that cannot be read, or would keep a secret. Raises `ForgeError`."""
    url = registry.url
    if not is_address(url):
        raise ForgeError.invalid("the URL must start with https://, ssh:// or file:///")
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ForgeError.invalid("a registry on another machine needs https://")
    in_query = any(is_secret_name(name) for name, _ in parse_qsl(parts.query))
    user = parts.username and parts.scheme != "ssh"  # who to log in as, not a secret
    if user or parts.password or in_query:
        raise ForgeError.invalid(
            "the URL contains a password or token, which would be stored in plain text",
            run("Leave it out and use: {}", "login", "NAME"),
        )


MOST_NOT_INSTALLABLE = 5

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_LOCAL = ("./", "../", "/", "~", "$", ".\\")
_GIT_HOSTS = ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org")


def add_registry(
    client: RegistryClient,
    directories: Directories,
    wanted: Registry,
    *,
    for_user: bool = False,
    offline: bool = False,
) -> RegistryAddition:
    """Add what an address names to the project's or the user's file, and say what it lists.

    `wanted` has the address as it was typed; without a name the registry keeps the name that it
    gives itself. Nothing is written when it cannot be read. Raises `ForgeError`.
    """
    located = _located(wanted, directories)
    for each in located:
        check_url(each)
    if offline or wanted.kind == "stockyard":
        registry = _named(located[0], Catalogue({}))
        path = put_registry(directories, registry, for_user=for_user)
        return RegistryAddition(registry.name, path, registry.url)
    registry, catalogue = _first_readable(client, located)
    registry = _named(registry, catalogue)
    found = offers_of(registry, catalogue)
    elsewhere = [
        f"{each.name} cannot be installed: {each.origin.why}"
        for each in found.value
        if isinstance(each.origin, Unavailable)
    ]
    more = len(elsewhere) - MOST_NOT_INSTALLABLE
    path = put_registry(directories, registry, for_user=for_user)
    return RegistryAddition(
        name=registry.name,
        path=path,
        url=registry.url,
        format=catalogue.format,
        plugins=len(found.value),
        listed=len(catalogue.entries),
        commit=catalogue.commit or UNKNOWN,
        warnings=noted(
            found.warnings,
            elsewhere[:MOST_NOT_INSTALLABLE],
            [f"… and {more} more that cannot be installed"] if more > 0 else [],
        ),
    )


def _first_readable(client: RegistryClient, located: list[Registry]) -> tuple[Registry, Catalogue]:
    """The first of some readings of an address that works. Raises the first one's `ForgeError`."""
    problems: list[ForgeError] = []
    for registry in located:
        try:
            return registry, client.look(registry)
        except ForgeError as error:
            problems.append(error)
    first = problems[0]
    also = "".join(f"; {each}" for each in problems[1:])
    raise ForgeError(
        first.code,
        f"{first}{also}; nothing was added",
        *first.actions,
        run("Add it unread: {}", "registry", "add", "NAME", "URL", "--offline"),
        **first.details,
    ) from first


def _located(wanted: Registry, directories: Directories) -> list[Registry]:
    """What an address may mean, the likeliest first. Raises `ForgeError`."""
    text = wanted.url.strip()
    if wanted.kind == "stockyard":
        return [wanted]
    local = _local(text, directories)
    if local is not None:
        return [_of_path(wanted, local)]
    address, _, ref = text.partition("#")
    url = git_url(address)
    if ref and not is_ref(ref):
        raise ForgeError.invalid(f"{ref[:80]!r} is no branch, tag or commit")
    git = replace(wanted, kind="git", url=url or address, ref=ref or wanted.ref)
    plain = replace(wanted, kind="manifest", url=text)
    if "://" not in address:
        if url is None:
            raise ForgeError.invalid(
                f"{text[:80]!r} is no address of a registry",
                "Give owner/repo, a URL, a marketplace.json or a directory",
            )
        return [git]
    parts = urlsplit(address)
    if url is None or parts.path.endswith(".json"):
        return [plain]
    on_a_host = parts.hostname in _GIT_HOSTS or parts.path.endswith(".git") or ref or wanted.ref
    if on_a_host or parts.scheme == "ssh":
        return [git]
    return [plain, git]


def _local(text: str, directories: Directories) -> Path | None:
    """The path that an address is, if it is one."""
    if text.startswith("file:"):
        return local_path(text)
    if "://" in text or "@" in text.partition("/")[0]:
        return None
    try:
        path = directories.paths.resolve(text)
        there = path.exists()
    except (NoBaseError, OSError, ValueError):
        return None
    return path.absolute() if there or text.startswith(_LOCAL) else None


def _of_path(wanted: Registry, path: Path) -> Registry:
    if str(path).endswith(MARKETPLACE) and path.is_file():
        path = path.parents[1]
    if not path.is_dir():
        return replace(wanted, kind="manifest", url=path.as_uri())
    bare = is_bare_repository(path)
    return replace(wanted, kind="git" if bare else "directory", url=path.as_uri())


def _named(registry: Registry, catalogue: Catalogue) -> Registry:
    """The registry with a name: as given, as it calls itself, or as its address ends."""
    own = catalogue.name if registry.kind in LISTING else None
    last = urlsplit(registry.url).path.rstrip("/").rpartition("/")[2]
    for text in (registry.name, own, last.removesuffix(".git").removesuffix(".json")):
        plain = _NOT_IN_A_NAME.sub("-", text).strip("-")[:64] if isinstance(text, str) else ""
        if plain:
            # A name that somebody typed is judged as it is.
            return replace(registry, name=registry.name or plain)
    raise ForgeError.invalid("the registry needs a name: forge registry add NAME ADDRESS")


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


def create(
    configuration: Configuration, resolver: Resolver, kind: Kind, draft: Draft, form: Format
) -> Created:
    """Write a new definition that passes strict validation. Raises `ForgeError`."""
    check_new_name(kind, draft.name)
    path = configuration.local_root(kind) / draft.name / f"{kind}.{form}"
    text = definition_text(draft.fields(kind), kind, form)
    _check(kind, draft.name, path.name, text, resolver)
    directories = configuration.directories
    with writing_below(directories.project):
        refuse_taken(directories, resolver.find_local(kind, draft.name), path, path)
        write_atomic(path, text, durable=True)
    return Created(directories.shown(path))


def refuse_taken(directories: Directories, known: Path | None, path: Path, whole: Path) -> None:
    """Refuse a name that is taken, or a file whose place (or directory) is."""
    if known is not None or whole.exists():
        raise ForgeError.conflict(
            f"{directories.shown(known or path)} already exists; nothing was written",
            "Choose another name",
        )


def _check(kind: Kind, name: str, file_name: str, text: str, resolver: Resolver) -> None:
    """Validate the new text in a scratch directory, before anything is written."""
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / name / file_name
        draft.parent.mkdir()
        draft.write_text(text, encoding="utf-8")
        result = validate(draft, kind, file_name, resolver, strict=True)
    if not result.valid:
        problems = [f"{each.field}: {each.message}" for each in result.errors]
        raise ForgeError.invalid(
            f"the {kind} would not be valid, so it was not written: {'; '.join(problems)}",
            "Create the tools that it refers to first, or leave them out",
            errors=jsonable(result.errors),
        )


def check_new_name(kind: Kind, name: str) -> None:
    """Refuse a name that a new definition should not have. Raises `ForgeError`."""
    if not all(is_kebab(part) for part in name.split(":")) or (kind == "tool" and ":" in name):
        raise ForgeError.invalid(
            f"{name[:80]!r} is not a name for a new {kind}: "
            "use lower-case words joined by hyphens, such as release-notes"
        )


def definition_text(fields: Mapping[str, Any], kind: Kind, form: Format) -> str:
    """The text of a new definition."""
    if form == "yaml":
        return yaml12.dump(fields)
    header = {key: value for key, value in fields.items() if key != BODY_FIELD[kind]}
    return f"---\n{yaml12.dump(header)}---\n{fields.get(BODY_FIELD[kind], '')}\n"
