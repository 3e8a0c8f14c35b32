"""The configuration: each file that counts is checked, all are merged over the defaults."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Struct, field

from fleet_agentpack.forge.access import is_secret_name, masked
from fleet_agentpack.forge.errors import ForgeError, Warnings, noted
from fleet_agentpack.forge.names import (
    DEFAULT_TTL_S,
    Directories,
    Registry,
    Scope,
    is_address,
    is_ref,
    is_registry_url,
)
from fleet_agentpack.kit.mappings import UnparsableError, as_mapping, read_mapping
from fleet_agentpack.kit.paths import expand_home
from fleet_agentpack.kit.shapes import Nouns, Rule, misfits, without
from fleet_agentpack.kit.stamps import Remembered

NOUNS = Nouns("an object", "an array")

FilePath = Annotated[str, Rule("a path", bool)]
Number = Annotated[int | float, Rule("a number", lambda number: number >= 0)]
Seconds = Annotated[int | float, Rule("a number of seconds", lambda number: number >= 0)]


class CacheShape(Struct):
    """`cache`."""

    directory: FilePath = ""
    ttl: Seconds = 0


class ResolutionShape(Struct):
    """`resolution`: which tiers are searched."""

    local: bool = True
    everywhere: bool = field(name="global", default=True)
    stockyard: bool = False


class LocalShape(Struct):
    """`registry.local`."""

    enabled: bool = True
    agents_path: FilePath = ""
    tools_path: FilePath = ""


class GlobalShape(Struct):
    """`registry.global`."""

    enabled: bool = True
    path: FilePath = ""


class StockyardShape(Struct):
    """`registry.stockyard`."""

    enabled: bool = False
    url: Annotated[str, Rule("a URL", is_registry_url)] = ""
    token_env: Annotated[str, Rule("the name of a variable", bool)] = ""


class TiersShape(Struct):
    """`registry`: the older form of `resolution`, with where each tier is."""

    local: LocalShape = field(default_factory=LocalShape)
    everywhere: GlobalShape = field(name="global", default_factory=GlobalShape)
    stockyard: StockyardShape = field(default_factory=StockyardShape)


class InstallShape(Struct):
    """`install`."""

    default_scope: Annotated[Literal["global", "local"], Rule("global or local")] = "global"
    verify_checksums: bool = True
    auto_install_dependencies: bool = True


class RegistryShape(Struct):
    """An entry of `registries`."""

    name: Annotated[str, Rule("text that is not empty", bool)]
    url: Annotated[str, Rule("a URL with https://, http://, ssh:// or file://", is_address)]
    type: Annotated[
        Literal["manifest", "git", "directory", "stockyard"],
        Rule("manifest, git, directory or stockyard"),
    ] = "manifest"
    ref: Annotated[str, Rule("a branch, tag or commit", is_ref)] = ""
    enabled: bool = True
    priority: Number = 0
    cache_ttl: Seconds = 0
    auth: Mapping[str, Any] = field(default_factory=dict)


class ConfigShape(Struct):
    """A configuration file."""

    cache: CacheShape = field(default_factory=CacheShape)
    resolution: ResolutionShape = field(default_factory=ResolutionShape)
    registry: TiersShape = field(default_factory=TiersShape)
    install: InstallShape = field(default_factory=InstallShape)
    registries: list[RegistryShape] = field(default_factory=list)


OLD_STOCKYARD_URL = "https://stockyard.fractary.dev/manifest.json"
DEFAULT_PRIORITY = 10

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class ConfigLayer:
    """What one file says, in the common shape."""

    path: Path
    values: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    problem: ForgeError | None = None


_OF_USER = ("config.json", "config.yaml")
_OF_PROJECT = (
    "config.json",
    "plugins/forge/config.json",
    "config.yaml",
    "forge/config.yaml",
    "forge.config.json",
)


def candidates(directories: Directories) -> list[Path]:
    """The files that may count, the one that wins first."""
    given = directories.environ.get("FRACTARY_CONFIG")
    if given:
        return [directories.expanded(given)]
    own = [] if directories.root is None else [directories.project / name for name in _OF_PROJECT]
    return list(dict.fromkeys([*own, *(directories.user / name for name in _OF_USER)]))


def read_layer(path: Path, directories: Directories) -> ConfigLayer | None:
    """One file in the common shape, None when it is not there."""
    shown = directories.shown(path)
    try:
        data = read_mapping(path)
        if path.suffix in (".yaml", ".yml"):
            # `config.yaml` is shared with other products: only its `forge` section is ours.
            roots = [directories.user, *([directories.project] if directories.root else [])]
            shared = path in [root / "config.yaml" for root in roots]
            section = data.get("forge", {} if shared else data)
            data = as_mapping(_expanded({} if section is None else section, directories.environ))
    except FileNotFoundError:
        return None
    except UnparsableError as error:
        return ConfigLayer(path, {}, problem=ForgeError.config(shown, str(error)))
    return _checked(path, {**data, **_from_older_keys(data, path)}, shown)


class Expanded(str):
    """A text whose `${VAR}` were replaced; it is shown as it was written."""

    __slots__ = ("written",)
    written: str


def as_written(value: object) -> object:
    """Values with every `${VAR}` where it was."""
    if isinstance(value, Expanded):
        return value.written
    if isinstance(value, list):
        return [as_written(item) for item in value]
    if isinstance(value, dict):
        return {key: as_written(item) for key, item in value.items()}
    return value


def _expanded(value: object, environ: Mapping[str, str]) -> object:
    if isinstance(value, str) and _PLACEHOLDER.search(value):
        found = Expanded(_PLACEHOLDER.sub(lambda match: environ.get(match[1], ""), value))
        found.written = value
        return found
    if isinstance(value, list):
        return [_expanded(item, environ) for item in value]
    if isinstance(value, dict):
        return {key: _expanded(item, environ) for key, item in value.items()}
    return value


class _OlderKeys(TypedDict, total=False):
    registries: list[dict[str, Any]]
    resolution: dict[str, Any]


def _from_older_keys(data: Mapping[str, Any], path: Path) -> _OlderKeys:
    """`registries` and `resolution` as older files write them: `stockyard` and `registry`."""
    found: _OlderKeys = {}
    old, tiers = data.get("stockyard"), data.get("registry")
    if "registries" not in data and path.suffix == ".json" and isinstance(old, Mapping):
        url = old.get("url") or OLD_STOCKYARD_URL
        entry = {"name": "stockyard", "type": "manifest", "url": url}
        found["registries"] = [entry] if old.get("enabled") else []
    switches = {
        tier: settings["enabled"]
        for tier, settings in (tiers.items() if isinstance(tiers, Mapping) else ())
        if tier in ("local", "global", "stockyard")
        and isinstance(settings, Mapping)
        and isinstance(settings.get("enabled"), bool)
    }
    resolution = data.get("resolution", {})
    if switches and isinstance(resolution, Mapping):
        found["resolution"] = {**switches, **resolution}
    return found


def _checked(path: Path, values: Mapping[str, Any], shown: str) -> ConfigLayer:
    """The values without those of a wrong kind, each of which is named in a warning."""
    if not values:
        return ConfigLayer(path, {})
    # One wrong value makes a registry unusable as a whole.
    wrong = {
        each.place[:2] if each.place[0] == "registries" else each.place: each
        for each in reversed(misfits(ConfigShape, values, nouns=NOUNS))
    }
    kept = without(values, wrong)
    for entry in kept.get("registries", []):
        entry.setdefault("priority", DEFAULT_PRIORITY)
    warnings = tuple(f"{shown}: {each}; ignored" for each in reversed(wrong.values()))
    return ConfigLayer(path, kept, warnings)


LONGEST_KEY = 1000
TREES = ("git", "directory")  # registries that hold the plugins themselves
LISTING = ("manifest", *TREES)  # registries that list plugins
STOCKYARD_URL = "https://stockyard.fractary.dev"


@dataclass(frozen=True)
class Configuration:
    """Merged values with the files they come from."""

    directories: Directories
    chosen: dict[str, Any]  # what files and variables say
    values: dict[str, Any]  # the same over the defaults
    sources: tuple[Path, ...]
    warnings: tuple[str, ...] = ()
    problem: ForgeError | None = None  # a file that could not be read
    registries: tuple[Registry, ...] = ()  # in the order in which they are asked

    @property
    def cache_directory(self) -> Path:
        """Where manifests and downloads are kept."""
        return self.directories.expanded(self.values["cache"]["directory"])

    @property
    def global_root(self) -> Path:
        """Where definitions for all projects are."""
        given = self._text("registry", "global", "path")
        if not given:
            return self.directories.user / "registry"
        return self.directories.home / expand_home(given, self.directories.home)

    def local_root(self, kind: str) -> Path:
        """Where the project's own agents or tools are."""
        given = self._text("registry", "local", f"{kind}s_path")
        return self.directories.expanded(given) if given else self.directories.project / f"{kind}s"

    def tier_enabled(self, tier: str) -> bool:
        """Whether definitions are looked for in a tier."""
        there = tier != "local" or self.directories.root is not None
        return there and bool(self.values["resolution"][tier])

    @property
    def stockyard(self) -> Registry:
        """The stockyard that is asked when its tier is enabled."""
        for registry in self.registries:
            if registry.kind == "stockyard" and registry.enabled:
                return registry
        url = self._text("registry", "stockyard", "url") or STOCKYARD_URL
        token_env = self._text("registry", "stockyard", "token_env") or None
        ttl = self.values["cache"]["ttl"]
        return Registry("stockyard", url, 1, "stockyard", cache_ttl_s=ttl, token_env=token_env)

    @property
    def manifest_registries(self) -> list[Registry]:
        """The enabled registries that list plugins."""
        return [each for each in self.registries if each.enabled and each.kind in LISTING]

    @property
    def verify_checksums(self) -> bool:
        """Whether a wrong checksum is an error rather than a warning."""
        return self._setting("install", "verify_checksums") is not False

    @property
    def default_scope(self) -> Scope:
        """Where plugins are installed by default."""
        return "local" if self._setting("install", "default_scope") == "local" else "global"

    @property
    def auto_install_dependencies(self) -> bool:
        """Whether installing a plugin also installs those it needs."""
        return self._setting("install", "auto_install_dependencies") is not False

    def shown(self, *, include_defaults: bool = True) -> dict[str, object]:
        """The values for a reader, without secrets."""
        values = self.values if include_defaults else self.chosen
        frame = {key: values.get(key, empty) for key, empty in _FRAME.items()}
        environ = self.directories.environ
        named = {value for name, value in environ.items() if is_secret_name(name)}
        referred = {environ.get(registry.token_env or "", "") for registry in self.registries}
        return {
            key: masked(as_written(value), named | referred, key)
            for key, value in {**frame, **values}.items()
        }

    def noted(self, *groups: Iterable[str]) -> Warnings:
        """The warnings for an answer: those about the configuration come first."""
        return noted(self.warnings, *groups)

    def _text(self, *names: str) -> str:
        found = self._setting(*names)
        return found if isinstance(found, str) else ""

    def _setting(self, *names: str) -> object:
        found: object = self.values
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found


_FRAME: dict[str, Any] = {"registries": [], "cache": {}, "resolution": {}}


class ConfigReader:
    """Reads the configuration again whenever one of its files has changed."""

    def __init__(self, directories: Directories) -> None:
        self._directories = directories
        self._lock = threading.Lock()
        self._last: Remembered[Configuration] = Remembered()

    def load(self) -> Configuration:
        """The configuration now; a file that cannot be read is its `problem`.

        Raises `ForgeError` when FRACTARY_CONFIG names a file that is not there.
        """
        paths = candidates(self._directories)
        with self._lock:
            return self._last.get(lambda: _read(paths, self._directories), *paths)

    def strict(self) -> Configuration:
        """The configuration, or the error of the first file that cannot be read."""
        configuration = self.load()
        if configuration.problem:
            raise configuration.problem
        return configuration


def look_up(values: object, key: str) -> tuple[object, bool]:
    """The value at a dotted path and whether it exists; a number is an index into a list."""
    if len(key) > LONGEST_KEY:
        return None, False
    return _at(values, key.replace("[", ".").replace("]", "").split("."))


def _at(values: object, parts: list[str]) -> tuple[object, bool]:
    if not parts:
        return values, True
    if isinstance(values, list):
        index = parts[0]
        if not (index.isascii() and index.isdigit()) or len(index) > 9 or int(index) >= len(values):
            return None, False
        return _at(values[int(index)], parts[1:])
    if isinstance(values, dict):
        for length in range(1, len(parts) + 1):  # a name may itself hold dots
            name = ".".join(parts[:length])
            if name in values:
                value, exists = _at(values[name], parts[length:])
                if exists:
                    return value, True
    return None, False


def _read(paths: list[Path], directories: Directories) -> Configuration:
    layers = [layer for path in paths if (layer := read_layer(path, directories))]
    if directories.environ.get("FRACTARY_CONFIG") and not layers:
        raise ForgeError(
            "CONFIG_ERROR",
            f"{paths[0]}: FRACTARY_CONFIG names this file, which does not exist",
            "Create the file, or start the server without FRACTARY_CONFIG",
            path=str(paths[0]),
        )
    cache_directory = directories.environ.get("FRACTARY_CACHE_DIR")
    chosen: dict[str, Any] = {"cache": {"directory": cache_directory}} if cache_directory else {}
    sources = []
    for layer in layers:
        merged = _merged(chosen, layer.values)
        if {"registries": [], **merged} != {"registries": [], **chosen}:
            sources.append(layer.path)
        chosen = merged
    if "registries" in chosen:
        chosen["registries"] = sorted(chosen["registries"], key=lambda entry: entry["priority"])
    problems = [layer.problem for layer in layers if layer.problem]
    broken = [f"{problem} (the file is ignored)" for problem in problems]
    values = _merged(chosen, _defaults(chosen.get("registries", []), directories))
    return Configuration(
        directories=directories,
        chosen=chosen,
        values=values,
        sources=tuple(sources),
        warnings=(
            *([directories.no_project] if directories.no_project else ()),
            *broken,
            *(warning for layer in layers for warning in layer.warnings),
        ),
        problem=next(iter(problems), None),
        registries=tuple(_registry(entry, values) for entry in values["registries"]),
    )


def _merged(nearer: Mapping[str, Any], farther: Mapping[str, Any]) -> dict[str, Any]:
    """The values of two files; where both have one, the nearer file wins."""
    merged = dict(nearer)
    for key, value in farther.items():
        if key == "registries":
            by_name: dict[str, Any] = {}
            for entry in (*nearer.get(key, []), *value):
                by_name.setdefault(entry["name"], entry)
            merged[key] = list(by_name.values())
        elif isinstance(nearer.get(key), dict) and isinstance(value, dict):
            merged[key] = _merged(nearer[key], value)
        else:
            merged.setdefault(key, value)
    return merged


def _defaults(
    registries: list[dict[str, Any]], directories: Directories
) -> dict[str, list[str] | dict[str, str | int]]:
    has_stockyard = any(
        entry.get("type") == "stockyard" and entry.get("enabled", True) for entry in registries
    )
    return {
        "registries": [],
        "cache": {"directory": str(directories.user / "cache"), "ttl": DEFAULT_TTL_S},
        "resolution": {"local": True, "global": True, "stockyard": has_stockyard},
    }


def _registry(entry: dict[str, Any], values: dict[str, Any]) -> Registry:
    auth = entry.get("auth") or {}
    token_env = auth.get("token_env")
    return Registry(
        name=entry["name"],
        url=entry["url"],
        priority=entry["priority"],
        kind=entry.get("type", "manifest"),
        enabled=entry.get("enabled", True),
        cache_ttl_s=entry.get("cache_ttl", values["cache"]["ttl"]),
        auth_type=str(auth.get("type", "bearer")),
        token_env=token_env if isinstance(token_env, str) else None,
        ref=entry.get("ref", ""),
    )
