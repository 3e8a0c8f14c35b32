"""What the known settings of a configuration file must be; every other key is kept as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Struct, field

from fleet_agentpack.forge.config.files import is_registry_url
from fleet_agentpack.kit.shapes import Nouns, Rule

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
    url: Annotated[str, Rule("a URL with https://, http:// or file://", is_registry_url)]
    type: Annotated[Literal["manifest", "stockyard"], Rule("manifest or stockyard")] = "manifest"
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
