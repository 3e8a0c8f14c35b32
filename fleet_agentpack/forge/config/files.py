"""Finds the configuration files that count and reads each into one common shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from fleet_agentpack.forge.directories import Directories
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.parsing import UnparsableError, as_mapping, read_mapping
from fleet_agentpack.kit.shapes import misfits, without

OLD_STOCKYARD_URL = "https://stockyard.fractary.dev/manifest.json"
DEFAULT_PRIORITY = 10

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class ConfigLayer:
    """What one file says, in the common shape."""

    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)
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
        return ConfigLayer(path, problem=ForgeError.config(shown, str(error)))
    return _checked(path, {**data, **_from_older_keys(data, path)}, shown)


def _expanded(value: object, environ: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: environ.get(match[1], ""), value)
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
        return ConfigLayer(path)
    from fleet_agentpack.forge.config.shape import NOUNS, ConfigShape

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


def is_registry_url(url: str) -> bool:
    """Whether a registry can be read from this URL."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return False
    if not url.isprintable():
        return False
    if parts.scheme == "file":
        return parts.netloc in ("", "localhost") and parts.path.startswith("/")
    return parts.scheme in ("http", "https") and bool(parts.hostname)
