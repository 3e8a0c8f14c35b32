"""Tools in a container of podman or docker."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from fleet_agentpack.enact.backends import gateway, holder
from fleet_agentpack.enact.backends.child import Command
from fleet_agentpack.enact.backends.job import (
    CLIENT_VARIABLES,
    DEFAULT_IMAGE,
    WORKSPACE,
    Job,
    Launch,
    whole_network,
    workspaces,
)
from fleet_agentpack.enact.errors import EnactError, ask_user
from fleet_agentpack.enact.proxy import Proxy
from fleet_agentpack.enact.settings import ContainerSettings
from fleet_agentpack.kit import process

SELINUX = Path("/sys/fs/selinux/enforce")
PULL_S = 600.0
_SECURITY = ("--security-opt", "no-new-privileges")
# For the user's own files, unless they may be given a container's label: it stays on them for good.
_UNLABELLED = ("--security-opt", "label=disable")
CONTAINER_FAILED = 125  # podman and docker: no image, no engine, a bad option
# Podman alone: no unlimited tmpfs beside ours, no volume on disk because an image declares one.
_READ_ONLY_PODMAN = ("--read-only-tmpfs=false",)
_PODMAN_ONLY = ("--image-volume=ignore",)
_PROXY = f"http://127.0.0.1:{gateway.PORT}"
_SOURCE = Path("/tmp/enact-source")  # noqa: S108 - in memory, so that it is not in the image
# What package managers need; a build has none of the user's files and no way to get more.
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
_AS_BUILDER = ("--user", "0:0", *(f"--cap-add={each}" for each in _CAPABILITIES))
_IN_IMAGE = """
mkdir -p /workspace && cp -R /tmp/enact-source/. /workspace/ && cd /workspace || exit 1
[ -e /work ] || ln -s workspace /work
"$@" || exit
chmod -R a+rX,go-w /workspace
"""


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

    def unavailable(self, image: str | None = None) -> str | None:  # noqa: ARG002
        """Why nothing can run here."""
        return None if self._program else f"{self._wanted} is not installed"

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Launch]:
        """The command for a job; its variables go in a file, never on the command line."""
        name = _build_name(job.builds) if job.builds else f"enact-{secrets.token_hex(8)}"
        with (
            tempfile.TemporaryDirectory(prefix="enact-") as scratch,
            self._networked(job) as (network, proxy),
        ):
            variables = Path(scratch) / "env"
            variables.touch(mode=0o600)
            proxied = gateway.proxy_variables(_PROXY) if proxy else {}
            # The environment of a build would stay in its image.
            given = _env_file(job, {} if job.builds else proxied)
            variables.write_text(given, encoding="utf-8")
            is_podman = self.name == "podman"
            argv = [
                *self._base,
                *("run", "--interactive", "--name", name, "--entrypoint", ""),
                *("--network", network, *(_PODMAN_ONLY if is_podman else ())),
                *(_AS_BUILDER if job.builds else ("--rm", "--read-only", "--user", self._user)),
                *(_READ_ONLY_PODMAN if is_podman and not job.builds else ()),
                *("--log-driver", "none"),  # what a tool prints may contain secrets
                *("--cap-drop", "ALL", *_SECURITY, *self._label_options(job)),
                *("--pids-limit", str(job.bounds.processes)),
                *("--memory", str(job.bounds.memory_bytes)),
                *("--tmpfs", f"/tmp:size={job.bounds.disk_bytes}"),  # noqa: S108
                *("--env-file", str(variables)),
                *("--workdir", "/" if job.builds else str(WORKSPACE)),
                *self._mount_options(job, Path(scratch)),
                *self._settings.run_args,
                job.bounds.image or DEFAULT_IMAGE,
                *(_in_image(job.argv, proxied) if job.builds else job.argv),
            ]
            yield Launch(
                Command(argv, self._env, None, job.stdin),
                on_kill=lambda: self._remove(name),
                failed_status=CONTAINER_FAILED,
                proxy=proxy,
            )

    @contextmanager
    def _networked(self, job: Job) -> Iterator[tuple[str, Proxy | None]]:
        """What a container joins, and the proxy that it finds there. Raises `EnactError`."""
        if not job.network or sys.platform != "linux":  # elsewhere, it is in a virtual machine
            yield "bridge" if whole_network(job, "a container here") else "none", None
            return
        making = self._through_podman if self.name == "podman" else self._through_docker
        try:
            with making(job) as joined:
                yield joined
        except gateway.NetworkError as error:
            reason = f"a network for it could not be made: {error}"
            step = ask_user(f"check that {self.name} works for this user, and `unshare --net`")
            raise EnactError.backend_unavailable(job.tool, reason, step) from error

    @contextmanager
    def _through_podman(self, job: Job) -> Iterator[tuple[str, Proxy]]:
        """A network that a process of ours has made: podman joins it."""
        entering = [*self._base, "unshare"] if self._is_rootless else []
        argv = [*entering, "unshare", "--net", "--"]
        with gateway.network(job.network, lambda _: argv) as (proxy, place):
            yield f"ns:{place}", proxy

    @contextmanager
    def _through_docker(self, job: Job) -> Iterator[tuple[str, Proxy]]:
        """The network of a container of ours: docker joins no other. Raises `NetworkError`."""
        name, home = f"enact-{secrets.token_hex(8)}", Path(self._env.get("HOME", "/"))
        try:
            empty = holder.image(self._base, self._env)
        except (OSError, TimeoutError) as error:
            raise gateway.NetworkError(str(error)) from error

        def making(folder: Path) -> Iterator[str]:
            yield from self._base
            yield from holder.options(name, folder, self._user, home)
            yield empty

        try:
            with gateway.network(job.network, making, self._env) as (proxy, _):
                yield f"container:{name}", proxy
        finally:
            self._remove(name)

    def pinned(self, image: str) -> str:
        """An image by digest, fetched if it is not there. Raises `EnactError`."""
        if "@sha256:" in image or not self._program:
            return image
        found = self._inspected(image)
        if found is None:
            done = process.run([*self._base, "pull", image], env=self._env, timeout_s=PULL_S)
            found = None if done.status else self._inspected(image)
            if found is None:
                reason = f"{self.name} cannot fetch {image}: {done.complaint[-300:]}"
                step = ask_user(f"check that {self.name} works and can pull {image}")
                raise EnactError.backend_unavailable(image, reason, step)
        return found

    # Builds, each a container and an image under one name

    def written(self, build: str) -> int:
        """How much a build has written so far; nothing where that is not known yet."""
        asked = ("container", "inspect", "--size", "--format", "{{.SizeRw}}", _build_name(build))
        done = self._called(*asked, timeout_s=120)
        return int(done) if done.isdigit() else 0

    def committed(self, build: str) -> str:
        """The image of a build that is done. Raises `EnactError`."""
        self._called("commit", _build_name(build), _build_image(build), timeout_s=PULL_S)
        found = self._called("image", "inspect", "--format", "{{.Id}}", _build_image(build))
        if not found:
            step = ask_user(f"check that {self.name} works")
            raise EnactError.backend_unavailable(build, f"{self.name} cannot keep a build", step)
        return found

    def has(self, image: str) -> bool:
        """Whether an image is there."""
        return bool(self._called("image", "inspect", "--format", "{{.Id}}", image))

    def builds_of(self, owner: str) -> set[str]:
        """The builds of which a container or an image is there."""
        if not self._program:
            return set()
        name, image = _build_name(f"{owner}-"), _build_image(f"{owner}-")
        listed = self._called("ps", "--all", "--filter", f"name={name}", "--format", "{{.Names}}")
        kept = self._called("images", "--format", "{{.Repository}}:{{.Tag}}")
        named = [each.removeprefix(_build_name("")) for each in listed.split()]
        tagged = [each.rpartition(":")[2] for each in kept.split() if image in each]
        return {each for each in (*named, *tagged) if each.startswith(f"{owner}-")}

    def discard(self, build: str) -> None:
        """Remove the container of a build."""
        self._remove(_build_name(build))

    def forget(self, build: str) -> None:
        """Remove everything of a build."""
        self.discard(build)
        self._called("rmi", _build_image(build))

    def _called(self, *arguments: str, timeout_s: float = 60) -> str:
        """What the program prints; nothing where it fails."""
        try:
            done = process.run([*self._base, *arguments], env=self._env, timeout_s=timeout_s)
        except (OSError, TimeoutError):
            return ""
        return "" if done.status else done.text.strip()

    def _inspected(self, image: str) -> str | None:
        """An image that is here, by the digest of its registry or else by its own."""
        argv = [*self._base, "image", "inspect", "--format", "json", image]
        try:
            done = process.run(argv, env=self._env, timeout_s=60)
            (found,) = json.loads(done.stdout)
            remote = [each for each in found.get("RepoDigests") or () if not _is_local(each)]
            return str(remote[0] if remote else found["Id"])
        except (OSError, TimeoutError, ValueError, KeyError, TypeError):
            return None

    @cached_property
    def _user(self) -> str:
        """Who a tool is: the user. Without root, an engine's own root is the user."""
        return "0:0" if self._is_rootless else f"{os.getuid()}:{os.getgid()}"

    @cached_property
    def _is_rootless(self) -> bool:
        if self.name == "podman":
            return os.geteuid() != 0 and "CONTAINER_HOST" not in self._env
        argv = [*self._base, "info", "--format", "{{.SecurityOptions}}"]
        try:
            return "rootless" in process.run(argv, env=self._env, timeout_s=20).text
        except (OSError, TimeoutError):
            return False

    def _label_options(self, job: Job) -> Sequence[str]:
        """Nothing where what is mounted has a label that containers may use."""
        is_free = not job.mounts or self._settings.relabel or not self._labels
        return () if is_free else _UNLABELLED

    def _mount_options(self, job: Job, scratch: Path) -> Iterator[str]:
        labelled = self._labels and not self._label_options(job)
        places = [_SOURCE] if job.builds else [WORKSPACE, *workspaces(job)]
        for place in dict.fromkeys(() if job.in_image else places):
            yield from self._mount(job.folder, place, labelled=labelled)
        empty, nothing = scratch / "empty", scratch / "nothing"
        empty.mkdir(mode=0o755)
        nothing.touch(mode=0o644)
        for mount in job.mounts:
            yield from self._mount(
                mount.path, mount.path, writable=mount.writable, labelled=labelled
            )
            for each in mount.hidden:
                source = empty if each.is_dir() else nothing
                yield from self._mount(source, each, labelled=labelled)

    def _mount(
        self, source: Path, target: Path, *, writable: bool = False, labelled: bool = False
    ) -> Sequence[str]:
        """The options of one mount; shared labels, since runs share what they mount."""
        is_short = labelled and self.name != "podman"  # docker labels in the short form alone
        for path in (source, target):
            _check_plain(path, ':"\n\r' if is_short else ',"\n\r')
        if is_short:
            mode = "z" if writable else "ro,z"
            return ("--volume", f"{source}:{target}:{mode}")
        mode = "" if writable else ",readonly"
        label = ",relabel=shared" if labelled else ""
        return ("--mount", f"type=bind,source={source},target={target}{mode}{label}")

    @cached_property
    def _labels(self) -> bool:
        """Whether SELinux keeps containers from files without a label of theirs."""
        try:
            return SELINUX.read_text().strip() == "1"
        except OSError:
            return False

    @property
    def _base(self) -> list[str]:
        return [str(self._program), *self._settings.global_args]

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            process.run([*self._base, "rm", "--force", name], env=self._env, timeout_s=30)


def _build_name(build: str) -> str:
    return f"enact-build-{build}"


def _build_image(build: str) -> str:
    return f"localhost/enact-build:{build}"


def _in_image(argv: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """A command behind what puts the tool's files into the image, for every user to read."""
    exported = "".join(f"export {name}={shlex.quote(variables[name])}\n" for name in variables)
    return ["sh", "-c", exported + _IN_IMAGE, "sh", *argv]


def _env_file(job: Job, more: Mapping[str, str]) -> str:
    values = {**job.env, "HOME": "/tmp", "TMPDIR": "/tmp", **more}  # noqa: S108
    for name, value in values.items():
        if "\n" in value or "\r" in value:
            raise EnactError.backend_unavailable(
                job.tool,
                f"{name} has several lines, which cannot be passed to a container",
                ask_user(f"store {name} as one line"),
            )
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _is_local(digest: str) -> bool:
    return digest.startswith(("localhost/", "<none>"))


def _check_plain(path: Path, separators: str) -> None:
    """Refuse a path with a character that separates options."""
    if found := [char for char in separators if char in str(path)]:
        raise EnactError.bad_argument("path", f"{path} has {found[0]!r} in its name")
