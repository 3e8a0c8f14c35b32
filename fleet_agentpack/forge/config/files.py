"""Finds the configuration files that count, checks each and reads it into one common shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Struct, field

from fleet_agentpack.forge.config.addresses import is_address, is_ref, is_registry_url
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.files import Directories
from fleet_agentpack.kit.mappings import UnparsableError, as_mapping, read_mapping
from fleet_agentpack.kit.shapes import Nouns, Rule, misfits, without

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
