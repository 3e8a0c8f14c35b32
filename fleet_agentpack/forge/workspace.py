"""Puts forge's parts together over one reading of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fleet_agentpack.forge.config.configuration import Configuration
from fleet_agentpack.forge.definitions.index import DefinitionIndex
from fleet_agentpack.forge.registries.credentials import Credentials
from fleet_agentpack.forge.registries.transport import Transport

if TYPE_CHECKING:
    from fleet_agentpack.forge.definitions.resolver import Resolver
    from fleet_agentpack.forge.definitions.stockyard import Stockyard
    from fleet_agentpack.forge.forks.forks import Forks
    from fleet_agentpack.forge.plugins.plugins import Plugins
    from fleet_agentpack.forge.registries.cache import Cache
    from fleet_agentpack.forge.registries.client import RegistryClient


@dataclass(frozen=True)
class Workspace:
    """The parts that one call works with, each imported and made when it is first needed."""

    configuration: Configuration
    index: DefinitionIndex
    transport: Transport
    credentials: Credentials
    clock: Callable[[], float]

    @cached_property
    def cache(self) -> Cache:
        """What was fetched before."""
        from fleet_agentpack.forge.registries.cache import Cache

        return Cache(self.configuration.cache_directory, self.configuration.directories, self.clock)

    @cached_property
    def registries(self) -> RegistryClient:
        """The registries that offer plugins."""
        from fleet_agentpack.forge.registries.client import RegistryClient

        environ = self.configuration.directories.environ
        return RegistryClient(self.cache, self.transport, self.credentials, environ)

    @cached_property
    def resolver(self) -> Resolver:
        """Agents and tools by name."""
        from fleet_agentpack.forge.definitions.resolver import Resolver

        return Resolver(self.configuration, self.index, self._stockyard)

    def _stockyard(self) -> Stockyard:
        from fleet_agentpack.forge.definitions.stockyard import Stockyard

        return Stockyard(self.configuration.stockyard, self.registries)

    @cached_property
    def plugins(self) -> Plugins:
        """Installed and offered plugins."""
        from fleet_agentpack.forge.plugins.plugins import Plugins

        return Plugins(self.configuration, self.registries, self.resolver.places)

    @cached_property
    def forks(self) -> Forks:
        """Forked agents and tools."""
        from fleet_agentpack.forge.forks.forks import Forks

        return Forks(self.configuration, self.resolver)
