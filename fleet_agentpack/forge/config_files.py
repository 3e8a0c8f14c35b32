"""Finds the configuration files that count and reads each into one common shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.parsing import UnparsableError, as_mapping, read_mapping
from fleet_agentpack.forge.places import Places
from fleet_agentpack.kit.shapes import misfits, without

OLD_STOCKYARD_URL = "https://stockyard.fractary.dev/manifest.json"
DEFAULT_PRIORITY = 10

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


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
    layer.values, layer.warnings = _checked(_common_shape(data, path), places.shown(path))
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


def _checked(values: dict[str, Any], shown: str) -> tuple[dict[str, Any], list[str]]:
    """The values without those of a wrong kind, and a warning for each of those."""
    if not values:
        return {}, []
    from fleet_agentpack.forge.config_shape import NOUNS, ConfigShape

    # One wrong value makes a registry unusable as a whole.
    wrong = {
        each.place[:2] if each.place[0] == "registries" else each.place: each
        for each in reversed(misfits(ConfigShape, values, nouns=NOUNS))
    }
    kept = without(values, wrong)
    for entry in kept.get("registries", []):
        entry.setdefault("priority", DEFAULT_PRIORITY)
    return kept, [f"{shown}: {each}; ignored" for each in reversed(wrong.values())]


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
