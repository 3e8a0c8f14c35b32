"""Writes configuration files: a new one, or registries added to and removed from one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from fleet_agentpack.forge.command_results import Initialised, RegistryChange
from fleet_agentpack.forge.config.configuration import Configuration
from fleet_agentpack.forge.config.files import DEFAULT_PRIORITY, is_registry_url
from fleet_agentpack.forge.config.masking import is_secret_name
from fleet_agentpack.forge.directories import Directories
from fleet_agentpack.forge.errors import ForgeError, run
from fleet_agentpack.forge.files import write_json, writing_below
from fleet_agentpack.forge.parsing import UnparsableError, read_mapping
from fleet_agentpack.kit.proxies import is_loopback

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
        write_json(path, STARTING_CONFIGURATION)
    return Initialised(tuple(directories.shown(each) for each in (path, *folders)))


def add_registry(
    directories: Directories,
    name: str,
    url: str,
    *,
    for_user: bool = False,
    kind: str = "manifest",
    priority: int = DEFAULT_PRIORITY,
    token_env: str | None = None,
) -> RegistryChange:
    """Add a registry to the project's or the user's file. Raises `ForgeError`."""
    if not _NAME.match(name):
        raise ForgeError.invalid(
            f"{name[:80]!r} is not a registry name: letters, digits, - and _ are allowed"
        )
    _check_url(url)
    if priority < 0:
        raise ForgeError.invalid("the priority must be 0 or more; the lowest is asked first")
    if token_env is not None and not _VARIABLE.match(token_env):
        raise ForgeError.invalid(
            "--token-env takes the name of a variable, such as MY_TOKEN",
            run("Or keep it outside of files: {}", "login", name),
        )
    path = _file(directories, for_user=for_user)
    with writing_below(path.parent):
        data, registries = _read(path)
        if _without(name, registries) != registries:
            raise ForgeError.conflict(
                f"{directories.shown(path)} already has a registry {name}",
                run("Remove it first: {}", "registry", "remove", name),
            )
        entry: dict[str, object] = {
            "name": name,
            "type": kind,
            "url": url,
            "enabled": True,
            "priority": priority,
        }
        if token_env:
            entry["auth"] = {"type": "bearer", "token_env": token_env}
        write_json(path, {**data, "registries": [*registries, entry]})
    return RegistryChange(name, directories.shown(path))


def remove_registry(
    directories: Directories, name: str, *, for_user: bool = False
) -> RegistryChange:
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
        write_json(path, {**data, "registries": kept})
    return RegistryChange(name, directories.shown(path))


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


def _check_url(url: str) -> None:
    if not is_registry_url(url):
        raise ForgeError.invalid("the URL must start with https:// or file:///")
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ForgeError.invalid("a registry on another machine needs https://")
    in_query = any(is_secret_name(name) for name, _ in parse_qsl(parts.query))
    if parts.username or parts.password or in_query:
        raise ForgeError.invalid(
            "the URL contains a password or token, which would be stored in plain text",
            run("Leave it out and use: {}", "login", "NAME"),
        )
