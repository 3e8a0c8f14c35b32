"""Finds the configuration files that count and reads each into one common shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.parsing import UnparsableError, as_mapping, read_mapping, type_name
from fleet_agentpack.forge.places import Places

OLD_STOCKYARD_URL = "https://stockyard.fractary.dev/manifest.json"
DEFAULT_PRIORITY = 10

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

Check = Callable[[Any], bool]


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


# What a known setting must be; every other key is kept as it is.
_SETTINGS: dict[str, tuple[Check, str]] = {
    "cache.directory": (_is_text, "a path"),
    "cache.ttl": (_is_count, "a number of seconds"),
    "resolution.local": (_is_bool, "true or false"),
    "resolution.global": (_is_bool, "true or false"),
    "resolution.stockyard": (_is_bool, "true or false"),
    "registry.local.enabled": (_is_bool, "true or false"),
    "registry.local.agents_path": (_is_text, "a path"),
    "registry.local.tools_path": (_is_text, "a path"),
    "registry.global.enabled": (_is_bool, "true or false"),
    "registry.global.path": (_is_text, "a path"),
    "registry.stockyard.enabled": (_is_bool, "true or false"),
    "registry.stockyard.url": (lambda value: _is_text(value) and is_registry_url(value), "a URL"),
    "registry.stockyard.token_env": (_is_text, "the name of a variable"),
    "install.default_scope": (lambda value: value in ("global", "local"), "global or local"),
    "install.verify_checksums": (_is_bool, "true or false"),
    "install.auto_install_dependencies": (_is_bool, "true or false"),
}
_REGISTRY: dict[str, tuple[Check, str]] = {
    "type": (lambda value: value in ("manifest", "stockyard"), "manifest or stockyard"),
    "enabled": (_is_bool, "true or false"),
    "priority": (_is_count, "a number"),
    "cache_ttl": (_is_count, "a number of seconds"),
    "auth": (lambda value: isinstance(value, Mapping), "an object"),
}


@dataclass
class Layer:
    """What one file says, in the common shape."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    problem: ForgeError | None = None


def candidates(places: Places) -> list[Path]:
    """The files that may count, the one that wins first."""
    given = places.environ.get("FRACTARY_CONFIG")
    if given:
        return [places.expanded(given)]
    found = [
        places.project / "config.json",
        places.project / "plugins/forge/config.json",
        places.project / "config.yaml",
        places.project / "forge/config.yaml",
        places.project / "forge.config.json",
        places.user / "config.json",
        places.user / "config.yaml",
    ]
    return list(dict.fromkeys(found))


def read_layer(path: Path, places: Places) -> Layer | None:
    """One file in the common shape, None when it is not there."""
    layer = Layer(path)
    try:
        data = read_mapping(path)
        if path.suffix in (".yaml", ".yml"):
            data = _expanded(_forge_section(path, data, places), places.environ)
    except FileNotFoundError:
        return None
    except UnparsableError as error:
        layer.problem = ForgeError.config(places.shown(path), str(error))
        return layer
    layer.values = _checked(_common_shape(data, path), layer, places.shown(path))
    return layer


def _forge_section(path: Path, data: dict[str, Any], places: Places) -> dict[str, Any]:
    """`config.yaml` is shared with other products: only its `forge` section is ours."""
    shared = path in (places.project / "config.yaml", places.user / "config.yaml")
    section = data.get("forge", {} if shared else data)
    return as_mapping({} if section is None else section)


def _expanded(value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: environ.get(match[1], ""), value)
    if isinstance(value, list):
        return [_expanded(item, environ) for item in value]
    if isinstance(value, dict):
        return {key: _expanded(item, environ) for key, item in value.items()}
    return value


def _common_shape(data: dict[str, Any], path: Path) -> dict[str, Any]:
    values = dict(data)
    old = values.get("stockyard")
    if "registries" not in values and path.suffix == ".json" and isinstance(old, Mapping):
        url = old.get("url") or OLD_STOCKYARD_URL
        entry = {"name": "stockyard", "type": "manifest", "url": url}
        values["registries"] = [entry] if old.get("enabled") else []
    tiers = values.get("registry")
    if isinstance(tiers, Mapping):
        switches = {
            tier: settings["enabled"]
            for tier, settings in tiers.items()
            if tier in ("local", "global", "stockyard")
            and isinstance(settings, Mapping)
            and isinstance(settings.get("enabled"), bool)
        }
        resolution = values.get("resolution", {})
        if switches and isinstance(resolution, Mapping):
            values["resolution"] = {**switches, **resolution}
    return values


def _checked(values: dict[str, Any], layer: Layer, shown: str) -> dict[str, Any]:
    """The values without those of a wrong type, each of which is named in a warning."""
    kept = _checked_settings(values, layer, shown, "")
    if "registries" in values:
        kept["registries"] = _checked_registries(values["registries"], layer, shown)
    return kept


def _checked_settings(
    values: Mapping[str, Any], layer: Layer, shown: str, prefix: str
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        check, wanted = _SETTINGS.get(name, (None, ""))
        is_table = any(known.startswith(f"{name}.") for known in _SETTINGS)
        if is_table and not isinstance(value, Mapping):
            layer.warnings.append(f"{shown}: {name} must be an object; ignored")
        elif is_table:
            kept[key] = _checked_settings(value, layer, shown, f"{name}.")
        elif check and not check(value):
            layer.warnings.append(f"{shown}: {name} must be {wanted}; ignored")
        else:
            kept[key] = value
    return kept


def _checked_registries(entries: Any, layer: Layer, shown: str) -> list[dict[str, Any]]:
    if not isinstance(entries, list):
        layer.warnings.append(f"{shown}: registries must be an array; ignored")
        return []
    kept = []
    for index, entry in enumerate(entries):
        problem = _registry_problem(entry)
        if problem:
            layer.warnings.append(f"{shown}: registries.{index} {problem}; ignored")
        else:
            kept.append({**entry, "priority": entry.get("priority", DEFAULT_PRIORITY)})
    return kept


def _registry_problem(entry: Any) -> str:
    if not isinstance(entry, Mapping):
        return f"must be an object, not {type_name(entry)}"
    if not _is_text(entry.get("name")):
        return "needs a name"
    if not _is_text(entry.get("url")) or not is_registry_url(entry["url"]):
        return f"({entry['name']}) needs a usable url that starts with https://, http:// or file://"
    for key, (check, wanted) in _REGISTRY.items():
        if key in entry and not check(entry[key]):
            return f"({entry['name']}): {key} must be {wanted}"
    return ""


def is_registry_url(url: str) -> bool:
    """Whether a registry can be read from this URL."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for what is no port
    except ValueError:
        return False
    if not url.isprintable():
        return False
    if parts.scheme == "file":
        return parts.netloc in ("", "localhost") and parts.path.startswith("/")
    return parts.scheme in ("http", "https") and bool(parts.hostname)
