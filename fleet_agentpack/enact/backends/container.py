"""Tools in a container of podman or docker."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fleet_agentpack.enact.backends.child import Command
from fleet_agentpack.enact.backends.job import (
    CLIENT_VARIABLES,
    DEFAULT_IMAGE,
    SCRATCH_BYTES,
    Job,
    Launch,
)
from fleet_agentpack.enact.errors import EnactError, ask_user
from fleet_agentpack.enact.settings import ContainerSettings
from fleet_agentpack.kit import process

CONTAINER_FAILED = 125  # podman and docker: no image, no engine, a bad option
# Podman alone: no unlimited tmpfs beside ours, no volume on disk because an image declares one.
_PODMAN_ONLY = ("--read-only-tmpfs=false", "--image-volume=ignore")


class Container:
    """A container of podman or docker: no network, no capabilities, a read-only root."""

    def __init__(
        self, settings: ContainerSettings, environ: Mapping[str, str], wanted: str | None = None
    ) -> None:
        candidates = [wanted] if wanted else [settings.program or "", "podman", "docker"]
        path = environ.get("PATH", os.defpath)
        found = (shutil.which(each, path=path) for each in candidates if each)
        self._program = next((each for each in found if each), None)
        self._wanted = wanted or settings.program or "podman or docker"
        self._settings = settings
        self._env = {key: environ[key] for key in CLIENT_VARIABLES if key in environ}
        self.name = Path(self._program).name if self._program else "container"

    def unavailable(self) -> str | None:
        """Why nothing can run here."""
        return None if self._program else f"{self._wanted} is not installed"

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Launch]:
        """The command for a job; its variables go in a file, never on the command line."""
        name = f"enact-{secrets.token_hex(8)}"
        with tempfile.TemporaryDirectory(prefix="enact-") as scratch:
            variables = Path(scratch) / "env"
            variables.touch(mode=0o600)
            variables.write_text(_env_file(job), encoding="utf-8")
            argv = [
                *self._base,
                *("run", "--rm", "--interactive", "--name", name, "--entrypoint", ""),
                *("--network", "bridge" if job.network else "none", "--read-only"),
                *(_PODMAN_ONLY if self.name == "podman" else ()),
                *("--log-driver", "none"),  # what a tool prints may contain secrets
                *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
                *("--pids-limit", "256", "--tmpfs", f"/tmp:size={SCRATCH_BYTES}"),  # noqa: S108
                *("--env-file", str(variables), "--workdir", "/workspace"),
                *_mount_options(job),
                *self._settings.run_args,
                job.image or DEFAULT_IMAGE,
                *job.argv,
            ]
            yield Launch(
                Command(argv, self._env, None, job.stdin),
                on_kill=lambda: self._remove(name),
                failed_status=CONTAINER_FAILED,
            )

    @property
    def _base(self) -> list[str]:
        return [str(self._program), *self._settings.global_args]

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            process.run([*self._base, "rm", "--force", name], env=self._env, timeout_s=30)


def _env_file(job: Job) -> str:
    values = {**job.env, "HOME": "/tmp", "TMPDIR": "/tmp"}  # noqa: S108
    for name, value in values.items():
        if "\n" in value or "\r" in value:
            raise EnactError.backend_unavailable(
                job.tool,
                f"{name} has several lines, which cannot be passed to a container",
                ask_user(f"store {name} as one line"),
            )
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _mount_options(job: Job) -> Iterator[str]:
    yield from ("--mount", f"{_bind(job.folder)},target=/workspace,readonly")
    for mount in job.mounts:
        mode = "" if mount.writable else ",readonly"
        yield from ("--mount", f"{_bind(mount.path)},target={mount.path}{mode}")


def _bind(path: Path) -> str:
    """The source of a mount; commas separate its options, so a path must not contain any."""
    if any(char in str(path) for char in ',"\n\r'):
        raise EnactError.bad_argument(
            "path", f"{path} has a comma, a quote or a line break in its name"
        )
    return f"type=bind,source={path}"
