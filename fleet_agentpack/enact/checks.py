"""The tool registry's part of `doctor --all`: nothing is changed, every installed file is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from fleet_agentpack.enact.backends.bubblewrap import Bubblewrap
from fleet_agentpack.enact.backends.seatbelt import Seatbelt
from fleet_agentpack.enact.config import RegistryConfig
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.runner import sandbox_of
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
    yield _sandbox(sandbox_of(path, settings.home), strict=_is_strict(settings))
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
    yield from _unchecked(service)
    yield from _left_behind(service)


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
        return Check(AREA, INSTALLED, "ok", str(len(service.projection().installed)))
    reasons = "; ".join(each.error.message for each in broken)
    advice = dict.fromkeys(line for each in broken for line in each.error.advice())
    return Check(AREA, INSTALLED, "problem", f"{len(broken)} broken: {reasons}", "; ".join(advice))


def _unchecked(service: EnactService) -> Iterator[Check]:
    """Tools whose registry has not told of vetoes and withdrawals for days."""
    if told := service.audits.stale(service.projection().installed.values()):
        yield Check(AREA, "audits", "note", told, "check them with: fleet-agentpack tool audit")


def _left_behind(service: EnactService) -> Iterator[Check]:
    """Installs of an earlier release: names that are no longer any, tools without grants."""
    for warning in service.projection().warnings:
        yield Check(AREA, "names", "note", warning)
    if older := [*_ungranted(service)]:
        advice = "look at each with: fleet-agentpack tool info NAME; grant it with: tool allow NAME"
        detail = f"installed by 0.1, so nothing is granted: {', '.join(older)}"
        yield Check(AREA, "permissions", "note", detail, advice)


def _ungranted(service: EnactService) -> Iterator[str]:
    """The tools that were installed before there were permissions."""
    for each in service.projection().installed.values():
        with contextlib.suppress(EnactError):
            receipt = each.store.receipt(each.name, each.version)
            if receipt and receipt.granted is None and not receipt.is_builtin:
                yield each.name


def _is_strict(settings: Settings) -> bool:
    try:
        return EnactService(EnactSettings.of(settings)).config.execution.strict
    except EnactError:
        return False


def _sandbox(sandbox: Bubblewrap | Seatbelt, *, strict: bool) -> Check:
    if unavailable := sandbox.unavailable():
        advice = "install bubblewrap, or use tools with a container image"
        return Check(AREA, "sandbox", "note", unavailable, advice)
    parts = sandbox.parts()
    holding = ", ".join(part for part, holds in parts.items() if holds)
    missing = ", ".join(part for part, holds in parts.items() if not holds)
    if not missing:
        return Check(AREA, "sandbox", "ok", f"{sandbox.name}: {holding}")
    detail = f"{sandbox.name}: {holding}; not here: {missing}"
    if strict:
        advice = "provide it, or take `sandbox: strict` out of ~/.enact/config.yaml"
        return Check(AREA, "sandbox", "problem", detail, advice)
    return Check(AREA, "sandbox", "ok", detail)
