"""The backends that the same cases run against, and what each of them is known not to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.backends import cgroup
from fleet_agentpack.enact.permissions import Permissions
from fleet_agentpack.enact.results import RunResult
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.enact.settings import ContainerSettings
from tests.enact.kit import add_tool, make_service, use_directory

NAME = "eve/case"
ENGINE_VARIABLES = (
    *("_EXPERIMENTAL_DAGGER_RUNNER_HOST", "_EXPERIMENTAL_DAGGER_CLI_BIN", "DOCKER_HOST"),
)
OUTSIDE = {key: os.environ[key] for key in ENGINE_VARIABLES if key in os.environ}
DAGGER_IMAGE = os.environ.get("ENACT_DAGGER_IMAGE", "")


@dataclass(frozen=True)
class Lack:
    """A promise that a backend does not keep, as the documentation says it."""

    said: str
    applies: bool = True  # whether it does so here; else the promise has to hold


@dataclass(frozen=True)
class Kind:
    """A backend, and the cases that do not hold there."""

    name: str
    lacks: Mapping[str, Lack] = field(default_factory=dict)
    has_images: bool = True


def _has_group() -> bool:
    return cgroup.delegated() is not None


_AS_ROOT = Lack("not when root starts the server", os.geteuid() == 0 and not _has_group())
_WHOLE = Lack("all hosts or none")
_OPEN = (
    *("own", "private", "given", "hidden", "loopback", "host", "deaf"),
    *("memory", "processes", "scratch", "built", "alone", "covered", "workspaces"),
)
KINDS = {
    kind.name: kind
    for kind in (
        Kind("bubblewrap", {"processes": _AS_ROOT}, has_images=False),
        Kind("podman"),
        Kind("docker"),
        Kind("dagger", {"host": _WHOLE, "deaf": _WHOLE}),
        Kind("local", dict.fromkeys(_OPEN, Lack("no")), has_images=False),
    )
}


@dataclass(frozen=True)
class Place:
    """A backend, in a home of its own."""

    kind: Kind
    home: Path
    work: Path
    image: str | None = None
    container: ContainerSettings | None = None

    def run(
        self,
        script: str,
        args: Mapping[str, Any] | None = None,
        *,
        granted: Permissions | None = None,
        environ: Mapping[str, str] | None = None,
        report: Callable[[float, float | None, str], None] = lambda *_: None,
        again: int = False,
        **fields: Any,
    ) -> RunResult:
        """Run a shell script as a tool."""
        properties = fields.pop("properties", {})
        inputs = " ".join(f"{{{{{name}}}}}" for name in properties)
        given = {
            "command": f"sh run.sh {inputs}".strip(),
            "inputSchema": {"type": "object", "properties": properties},
            "from": self.image,
            **fields,
        }
        execution = {"default": self.kind.name, "defaultTimeout": "60s", **given.pop("limits", {})}
        registry = self.home / "registry"
        if not again:
            shutil.rmtree(registry, ignore_errors=True)
            add_tool(registry, NAME, files={"run.sh": script}, **given)
        use_directory(self.home, registry, execution=execution)
        outside = {key: os.environ[key] for key in ("HOME",) if key in os.environ}
        service = self._service({**outside, **OUTSIDE, **(environ or {})})
        service.install(NAME)
        if granted:
            service.grants.allow(NAME, granted)
        return service.run(NAME, args, report=report)

    def clear(self) -> None:
        """Remove what was installed, and what was built of it."""
        service = self._service({**{key: os.environ[key] for key in ("HOME",)}, **OUTSIDE})
        if NAME in service.store.tools().tools:
            service.uninstall(NAME)

    def _service(self, environ: Mapping[str, str]) -> EnactService:
        return make_service(self.home, environ=environ, container=self.container)
