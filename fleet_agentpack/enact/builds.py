"""What was built of tools that have to be built: once, for as long as nothing that counts changes.

A build is kept in the cache directory, or as an image, under the digests of the bundle and of the
image that it began with, and what was granted to it. Deleting it costs a build and nothing else.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_agentpack.enact import permissions
from fleet_agentpack.enact.backends import building
from fleet_agentpack.enact.backends.building import BuildError, Made, remove_tree
from fleet_agentpack.enact.backends.container import Container
from fleet_agentpack.enact.backends.dagger import Dagger
from fleet_agentpack.enact.backends.job import DEFAULT_IMAGE, Backend, Job
from fleet_agentpack.enact.config import ExecutionConfig
from fleet_agentpack.enact.errors import PUBLISHER, EnactError, ask_to_run, ask_user
from fleet_agentpack.enact.network import covered
from fleet_agentpack.enact.permissions import ANYWHERE, LONGEST_TIMEOUT_S, Bounds, Permissions
from fleet_agentpack.enact.settings import EnactSettings
from fleet_agentpack.enact.store import Store
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock

if TYPE_CHECKING:
    from fleet_agentpack.enact.runner import Report, Runnable

FORMAT = 1
FAILED_FOR_S = 3600.0  # how long a build that failed without a network is not tried again
_RECORD = "record.json"


@dataclass(frozen=True)
class Build:
    """What was built, from what, and how it went."""

    tool: str
    digest: str  # sha256 of the bundle
    backend: str
    granted: tuple[str, ...]  # hosts
    base: str | None  # the image that it began with
    built_at: str
    duration_ms: int
    made: Made

    def content(self) -> bytes:
        """The record as it is stored."""
        made = {"size_bytes": self.made.size_bytes, "image": self.made.image}
        rows = {**self.__dict__, "made": {**made, "stamp": self.made.stamp}, "format": FORMAT}
        return json.dumps(rows, indent=2).encode()

    @classmethod
    def read(cls, folder: Path) -> Build | None:
        """A build that is there; None for one that is not whole."""
        try:
            data: dict[str, Any] = json.loads((folder / _RECORD).read_bytes())
            if data.pop("format") != FORMAT:
                return None
            made = Made(**data.pop("made"))
            return cls(**{**data, "granted": tuple(data["granted"]), "made": made})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


class Builds:
    """The builds of a user's tools."""

    def __init__(self, settings: EnactSettings) -> None:
        self._settings = settings
        self._root = settings.cache / "enact-builds"
        self._owner = hashlib.sha256(str(self._root).encode()).hexdigest()[:12]

    def ready(
        self,
        subject: Runnable,
        provider: Backend,
        execution: ExecutionConfig,
        report: Report,
        *,
        again: bool = False,
    ) -> Runnable:
        """A tool with what its build has made, now if need be. Raises `EnactError`."""
        manifest = subject.manifest
        if not manifest.build:
            return subject
        if isinstance(provider, Container | Dagger):
            image = subject.image or provider.pinned(manifest.image or DEFAULT_IMAGE)
            subject = replace(subject, image=image)
        key = _key(subject, provider)
        found = None if again else self._usable(key, provider)
        if found is None:
            with self._locked(key, manifest.name, report):
                found = None if again else self._usable(key, provider)
                if found is None:
                    if not again:
                        self._recall(key, subject)
                    found = self._build(key, subject, provider, execution, report)
        if found.made.image:
            return replace(subject, image=found.made.image, in_image=True)
        in_image = isinstance(provider, Dagger)
        return replace(subject, folder=self._root / key / "tree", in_image=in_image)

    def of(self, digest: str) -> Build | None:
        """The last build of a bundle."""
        found = (each for _, each in self._all() if each.digest == digest)
        return max(found, key=lambda each: each.built_at, default=None)

    def forget_unneeded(self, store: Store, tool: str) -> None:
        """Remove the builds of versions of a tool that are not installed any more."""
        needed = store.digests(tool)
        self._forget(lambda each: each["tool"] == tool and each["digest"] not in needed)

    def prune(self, store: Store) -> int:
        """Remove every build that nothing installed needs; tells how many those were."""
        needed = {each: store.digests(each) for each in store.names()}
        count = self._forget(lambda each: each["digest"] not in needed.get(each["tool"], ()))
        for left in self._root.glob("*.part"):
            with self._if_free(left.stem) as is_free:
                if is_free:
                    remove_tree(left)
        known = {key for key, _ in self._all()}
        for program in ("podman", "docker"):
            container = self._container(program)
            for name in container.builds_of(self._owner):
                key = name.rpartition("-")[2]
                with self._if_free(key) as is_free:
                    if is_free and key not in known:
                        container.forget(name)
                        count += 1
        return count

    def _build(
        self,
        key: str,
        subject: Runnable,
        provider: Backend,
        execution: ExecutionConfig,
        report: Report,
    ) -> Build:
        manifest, limit = subject.manifest, execution.build_bytes
        part, started = self._root / f"{key}.part", time.monotonic()
        remove_tree(part)
        job = Job(
            tool=manifest.name,
            folder=subject.folder,
            argv=building.command(manifest.build, limit),
            network=subject.granted.build if manifest.build_network else (),
            bounds=_bounds(subject, execution),
            builds=f"{self._owner}-{key}",
        )

        def tick(elapsed_s: float) -> None:
            report(round(elapsed_s, 1), None, f"building {job.tool}, for {elapsed_s:.0f} s")

        try:
            part.mkdir(parents=True, mode=0o700)
            if isinstance(provider, Container):
                made = building.in_image(provider, job, limit, tick)
            elif isinstance(provider, Dagger):
                (part / "tree").mkdir()
                job = replace(job, into=part.resolve() / "tree", limit_bytes=limit)
                made = building.in_archive(provider, job, tick)
            else:
                shutil.copytree(subject.folder, part / "tree")
                job = replace(job, folder=part.resolve() / "tree")
                made = building.in_tree(provider, job, limit, tick)
            taken = round((time.monotonic() - started) * 1000)
            now = datetime.now(UTC).isoformat("T", "seconds")
            granted = _granted(subject)
            found = Build(
                job.tool, subject.digest, provider.name, granted, subject.image, now, taken, made
            )
            (part / _RECORD).write_bytes(found.content())
            remove_tree(self._root / key)
            os.rename(part, self._root / key)  # noqa: PTH104
            self._failure(key).unlink(missing_ok=True)
            return found
        except BuildError as error:
            if not subject.granted.build and error.exit_code:
                self._remember(key, subject, error)
            raise _refusal(subject, error) from error
        except OSError as error:
            raise EnactError.store_unavailable(self._root, error.strerror or str(error)) from error
        finally:
            remove_tree(part)

    def _usable(self, key: str, provider: Backend) -> Build | None:
        """A build that is there, and as it was made."""
        folder = self._root / key
        found = Build.read(folder)
        if found is None:
            return None
        if isinstance(provider, Container):
            return found if found.made.image and provider.has(found.made.image) else None
        try:
            is_same = building.stamp_of(folder / "tree") == found.made.stamp
        except (BuildError, OSError):
            return None
        return found if is_same else None

    # Builds that failed

    def _failure(self, key: str) -> Path:
        return self._root / f"{key}.failed.json"

    def _remember(self, key: str, subject: Runnable, error: BuildError) -> None:
        """Keep why a build failed without a network: the next call need not wait for it again."""
        row = {
            "tool": subject.manifest.name,
            "digest": subject.digest,
            "at": time.time(),
            "said": [str(error), error.exit_code, error.stdout, error.stderr],
        }
        write_atomic(self._failure(key), json.dumps(row).encode())

    def _recall(self, key: str, subject: Runnable) -> None:
        """Refuse at once what failed a while ago and has not changed. Raises `EnactError`."""
        try:
            row = json.loads(self._failure(key).read_bytes())
            error = BuildError(*row["said"])
            is_fresh = 0 <= time.time() - float(row["at"]) < FAILED_FOR_S
        except (OSError, ValueError, KeyError, TypeError):
            return
        if is_fresh:
            refusal = _refusal(subject, error)
            again = ask_to_run("tool", "build", row["tool"], why="try again with")
            refusal.actions = (*refusal.actions, again)
            raise refusal

    # Forgetting

    def _all(self) -> Iterator[tuple[str, Build]]:
        for folder in sorted(self._root.glob("*/")):
            if found := Build.read(folder):
                yield folder.name, found

    def _forget(self, is_unneeded: Callable[[dict[str, Any]], bool]) -> int:
        count = 0
        for key, found in list(self._all()):
            if is_unneeded({"tool": found.tool, "digest": found.digest}):
                if found.made.image:
                    self._container(found.backend).forget(f"{self._owner}-{key}")
                remove_tree(self._root / key)
                count += 1
        for file in self._root.glob("*.failed.json"):
            try:
                row = json.loads(file.read_bytes())
                is_over = is_unneeded(row)
            except (OSError, ValueError, KeyError, TypeError):
                is_over = True
            if is_over:
                file.unlink(missing_ok=True)
        return count

    def _container(self, program: str) -> Container:
        return Container(self._settings.container, self._settings.environ, program)

    # Locks

    def _lock(self, key: str) -> Path:
        return self._root / "locks" / key

    @contextmanager
    def _locked(self, key: str, tool: str, report: Report) -> Iterator[None]:
        """Hold the lock of one build; another process that builds the same is waited for."""
        with ExitStack() as held:
            for waited in itertools.count():
                try:
                    held.enter_context(file_lock(self._lock(key), timeout_s=1.0))
                    break
                except LockTimeoutError:
                    report(float(waited), None, f"{tool} is being built by another process")
                except OSError as error:
                    reason = error.strerror or str(error)
                    raise EnactError.store_unavailable(self._root, reason) from error
            yield

    @contextmanager
    def _if_free(self, key: str) -> Iterator[bool]:
        """Hold the lock of a build, unless somebody builds it now."""
        with ExitStack() as held:
            try:
                held.enter_context(file_lock(self._lock(key), timeout_s=0))
            except (LockTimeoutError, OSError):
                yield False
                return
            yield True


def _key(subject: Runnable, provider: Backend) -> str:
    """What a build depends on."""
    image = subject.image if isinstance(provider, Container | Dagger) else None
    parts = [FORMAT, subject.digest, provider.name, image, _granted(subject)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _granted(subject: Runnable) -> tuple[str, ...]:
    return tuple(sorted(subject.granted.build)) if subject.manifest.build_network else ()


def _bounds(subject: Runnable, execution: ExecutionConfig) -> Bounds:
    return Bounds(
        memory_bytes=execution.memory_bytes,
        processes=execution.processes,
        time_s=min(execution.build_timeout_s, LONGEST_TIMEOUT_S),
        disk_bytes=max(execution.scratch_bytes, execution.build_bytes),
        image=subject.image,
    )


def _refusal(subject: Runnable, error: BuildError) -> EnactError:
    """Why a call cannot go on: a permission is missing, or the build itself fails."""
    manifest, told = subject.manifest, {"stdout": error.stdout, "stderr": error.stderr}
    message = f"the build of {manifest.name} {error}"
    wanted = [each for each in error.refused if _may_ask(manifest.build_network, each)]
    if not subject.granted.build and error.exit_code:
        wanted = [*manifest.build_network]
    if wanted:
        missing = Permissions(build=tuple(wanted))
        refused = permissions.required(manifest.name, missing, f"{message}; it has no network")
        if subject.granted.build:
            words = f"{message}; it may not reach {', '.join(wanted)}"
            refused = permissions.required(manifest.name, missing, words)
        refused.details |= told
        return refused
    steps: list[Action | str] = [f"read details.stderr, or {PUBLISHER}"]
    if error.exit_code is None:
        steps = [ask_user("look at execution.buildTimeout and buildSize in ~/.enact/config.yaml")]
    if manifest.build_network and not subject.granted.build:
        grant = permissions.allow_command(manifest.name, Permissions(build=manifest.build_network))
        steps.append(ask_user(f"decide whether it may have a network while it is built: {grant}"))
    code = error.exit_code
    return EnactError("BUILD_FAILED", message, *steps, tool=manifest.name, exit_code=code, **told)


def _may_ask(asked: tuple[str, ...], host: str) -> bool:
    return ANYWHERE in asked or (bool(asked) and covered(asked, host))
