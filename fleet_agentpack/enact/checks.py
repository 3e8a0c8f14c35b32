"""The tool registry's part of `doctor --all`: nothing is changed, every installed file is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleet_agentpack.enact.backends.bubblewrap import Bubblewrap
from fleet_agentpack.enact.config import RegistryConfig
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.enact.settings import EnactSettings
from fleet_agentpack.kit.checks import Check, directory, failure, program
from fleet_agentpack.kit.http import is_reachable
from fleet_agentpack.settings import Settings

AREA = "enact"
INSTALLED = "installed tools"


def checks(settings: Settings) -> Iterable[Check]:
    """The store, the configuration, the installed tools, and where tools can run."""
    yield directory(AREA, "store", settings.home / ".enact")
    yield from _configured(settings)
    path = settings.environ.get("PATH", "")
    yield _sandbox(Bubblewrap(path, settings.home).unavailable())
    engines = ["podman", "docker"]
    yield program(AREA, engines, path, "tools with an image cannot run", "install podman")


def _configured(settings: Settings) -> Iterator[Check]:
    try:
        service = EnactService(EnactSettings.of(settings))
        for warning in service.config.warnings:
            yield Check(AREA, "configuration", "problem", warning, "correct that file")
        yield Check(AREA, "trust policy", "ok", service.config.trust.policy)
        yield _registry(service.config.registry)
    except EnactError as error:
        yield failure(AREA, "configuration", error, "correct that file")
        return
    yield _installed_tools(service)


def _registry(config: RegistryConfig) -> Check:
    if not config.url:
        advice = "set registry.url in ~/.enact/config.yaml to use a remote one"
        return Check(AREA, "registry", "note", "built-in tools only", advice)
    if not config.url.startswith(("http://", "https://")):
        return Check(AREA, "registry", "ok", config.url)
    if is_reachable(config.url):
        return Check(AREA, "registry", "ok", f"{config.url} answers")
    detail, advice = f"{config.url} does not answer", "check registry.url and the network"
    return Check(AREA, "registry", "problem", detail, advice)


def _installed_tools(service: EnactService) -> Check:
    try:
        broken = service.broken()
    except EnactError as error:
        return failure(AREA, INSTALLED, error, "")
    if not broken:
        return Check(AREA, INSTALLED, "ok", str(len(service.installed().tools)))
    reasons = "; ".join(each.error.message for each in broken)
    advice = dict.fromkeys(line for each in broken for line in each.error.advice())
    return Check(AREA, INSTALLED, "problem", f"{len(broken)} broken: {reasons}", "; ".join(advice))


def _sandbox(unavailable: str | None) -> Check:
    if unavailable:
        advice = "install bubblewrap, or use tools with a container image"
        return Check(AREA, "sandbox", "note", unavailable, advice)
    return Check(AREA, "sandbox", "ok", "bubblewrap works")
