"""Images, runs and builds on one session of a Dagger engine.

An engine keeps what a session has seen for as long as the session is open, whatever is pruned.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fleet_agentpack.enact.backends import dagger_build_file as build_file
from fleet_agentpack.enact.backends.child import LARGEST_OUTPUT, MARKER
from fleet_agentpack.enact.backends.dagger_build_file import SCRIPT, STDIN, TOLD, USER
from fleet_agentpack.enact.backends.dagger_changes import Lazy, Writable, give_back, stamps
from fleet_agentpack.enact.backends.dagger_messages import BuildRequest, RunRequest, Task
from fleet_agentpack.enact.backends.limits import limited

WORKSPACE, OLD_WORKSPACE = "/workspace", "/work"
ROOT = "0:0"
LARGEST_LOG = 16 * 1024 * 1024  # of a build
# It is a word of the build: one that could be more has no place there.
_REFERENCE = re.compile(r"[\w.:/-]+@sha256:[0-9a-f]{64}", re.ASCII)
_DOCKERFILE = "enact.Dockerfile"
_PROGRAMS = (
    ("/bin/sh",),
    ("/usr/bin/head", "/bin/head"),
    ("/usr/bin/mkfifo", "/bin/mkfifo"),
    ("/usr/bin/du", "/bin/du"),
)
_NOT_PLAIN = frozenset("*?[]\\!#")  # in a pattern


class Ending(NamedTuple):
    """How a task ended."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""
    kept: Sequence[str] = ()  # what both the tool and the user have changed
    reason: str = "exit"  # or `output`, `size`


class LackError(Exception):
    """Something that a task needs is missing: its part and why."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(reason)
        self.part = part


class Image(NamedTuple):
    """An image, as far as a task has to know it."""

    reference: str  # by digest; empty for one that was built
    root: Lazy
    variables: Mapping[str, str]


class Session:
    """What is done on one session; `dag` is its client in the SDK."""

    def __init__(self, dagger: Any, dag: Lazy, held: contextlib.AsyncExitStack) -> None:
        self._dagger, self._dag, self._held = dagger, dag, held
        self._images: dict[str, Image] = {}
        self._built_images: dict[tuple[str, int, int], Image] = {}  # by their archives

    async def image(self, name: str) -> Image:
        """An image by name. Raises `LackError`."""
        if name not in self._images:
            try:
                made = self._dag.container().from_(name)
                reference = await made.image_ref()
                if not _REFERENCE.fullmatch(reference):
                    raise LackError(
                        "image", f"the image {name} is {reference!r}, which is no digest"
                    )
                self._images[name] = await self._looked_at(made, name, reference)
            except self._dagger.QueryError as error:
                raise LackError(
                    "image", f"the image {name} could not be pulled: {error}"
                ) from error
        return self._images[name]

    async def run(self, job: RunRequest) -> Ending:
        """Run a tool on copies of its files, and give back what it has changed."""
        image = await (self._built(job["folder"]) if job["in_image"] else self.image(job["image"]))
        # What is changed while it is copied has to count as changed since.
        seen = {path: stamps(path) for path, writable, _ in job["directories"] if writable}
        copies = {path: await self._copied(path, hidden) for path, _, hidden in job["directories"]}
        done = self._running(job, image, copies)
        ending = await self._ended(done, LARGEST_OUTPUT)
        kept: list[str] = []
        for path, writable, hidden in job["directories"]:
            if writable and ending.code == 0 and ending.reason == "exit":
                place = Writable(path, hidden, copies[path], seen[path])
                kept += await give_back(place, done.directory(path))
        return ending._replace(kept=kept)

    async def build(self, job: BuildRequest) -> Ending:
        """Build a tool in a copy of its image, which is kept as an archive."""
        image = await self.image(job["image"])
        argv = _within(job, LARGEST_LOG, job["limit_bytes"])
        files = self._dag.host().directory(job["folder"])
        given = self._given([]).with_directory(WORKSPACE, files, owner=USER)
        # Everything becomes the build's but the top of the image, so it has a place there.
        given = given.with_directory("/opt", self._dag.directory(), owner=USER)
        given = given.with_symlink(WORKSPACE, OLD_WORKSPACE)
        given = given.with_new_file(SCRIPT, build_file.script(argv))
        text = build_file.text(
            source=image.reference,
            folder=WORKSPACE,
            variables=image.variables,
            network=job["network"],
            disk_bytes=job["disk_bytes"],
            owner=USER,
        )
        done = self._made(text, image, given)
        ending = await self._ended(done, LARGEST_LOG)
        if ending.code == 0 and ending.reason == "exit":
            quick = self._dagger.ImageLayerCompression.Zstd
            await done.as_tarball(forced_compression=quick).export(job["archive"])
        return ending

    async def take_over(self, other: Session) -> None:
        """Know the images that another session knows, so that they are kept for the next task."""
        for name in other._images:
            await self.image(name)
        for archive, *_ in other._built_images:
            await self._built(archive)

    async def prune(self) -> None:
        """Forget copies of the user's files that no session holds."""
        with contextlib.suppress(self._dagger.DaggerError):
            await self._dag.engine().local_cache().prune()

    async def close(self) -> None:
        """End the session, and what it runs."""
        await self._held.aclose()

    def _running(self, job: RunRequest, image: Image, copies: Mapping[str, Lazy]) -> Lazy:
        """The image after a run, which has not begun."""
        dag, paths = self._dag, [*job["files"], *copies]
        given = self._given(paths)
        for place in job["places"]:
            given = given.with_directory(place, dag.host().directory(job["folder"]))
        for path in job["files"]:
            given = given.with_file(path, dag.host().file(path, no_cache=True), owner=USER)
        for path, copy in copies.items():
            given = given.with_directory(path, copy, owner=USER)
        script = build_file.script(_within(job, LARGEST_OUTPUT), STDIN if job["stdin"] else "")
        given = given.with_new_file(SCRIPT, script).with_new_file(STDIN, job["stdin"])
        secret_ids = {name: secrets.token_hex(8) for name in job["env"]}
        text = build_file.text(
            source=image.reference,
            folder=(*job["places"], WORKSPACE)[0],
            variables={**image.variables, **job["plain"]},
            secrets=secret_ids,
            given=paths,
            network=job["network"],
            disk_bytes=job["disk_bytes"],
            owner=ROOT if job["in_image"] else "",
        )
        values = [dag.set_secret(secret_ids[name], value) for name, value in job["env"].items()]
        return self._made(text, image, given, values)

    def _given(self, paths: Sequence[str]) -> Lazy:
        """What an image gets in addition: to begin with, places for outputs and scratch space."""
        given: Lazy = self._dag.directory()
        given = given.with_directory(TOLD, self._dag.directory(), owner=USER)
        for each in build_file.scratch(paths):
            given = given.with_new_directory(each, permissions=0o1777)
        return given

    def _made(self, text: str, image: Image, given: Lazy, values: Sequence[Lazy] = ()) -> Lazy:
        """The image that a build makes, which has not begun."""
        context = self._dag.directory().with_directory("given", given)
        if not image.reference:
            context = context.with_directory("image", image.root)
        context = context.with_new_file(_DOCKERFILE, text)
        # Without a new value, the engine would answer from its cache and run nothing.
        anew = self._dagger.BuildArg(MARKER, secrets.token_hex(8))
        done: Lazy = context.docker_build(
            dockerfile=_DOCKERFILE, build_args=[anew], secrets=list(values)
        )
        return done

    async def _ended(self, done: Lazy, most: int) -> Ending:
        """Carry it out; tells how it ended."""
        try:
            told = (await done.sync()).directory(TOLD)
        except self._dagger.ExecError as error:  # its shell was killed
            return Ending(error.exit_code, error.stdout.encode(), error.stderr.encode())
        try:
            if await told.exists("large"):
                return Ending(1, reason="size")
            files = [told.file(each) for each in ("code", "stdout", "stderr")]
            if max([await each.size() for each in files]) > most:
                return Ending(1, reason="output")
            code, out, err = [await _content(each) for each in files]
            return Ending(int(code), out, err)
        except (self._dagger.QueryError, ValueError):
            return Ending(1, stderr=b"what it printed is no longer there")

    async def _copied(self, path: str, hidden: Sequence[str]) -> Lazy:
        exclude = [*map(_pattern, hidden)]
        source = self._dag.host().directory(path, exclude=exclude, no_cache=True)
        copied: Lazy = await self._dag.directory().with_directory("/", source, owner=USER).sync()
        return copied

    async def _built(self, archive: str) -> Image:
        """An image that a build has left."""
        facts = os.stat(archive)  # noqa: PTH116 - it may have been built anew
        known = (archive, facts.st_ino, facts.st_mtime_ns)
        if known not in self._built_images:
            file = self._dag.host().file(archive, no_cache=True)
            made = self._dag.container().import_(file)
            self._built_images[known] = await self._looked_at(made, archive, "", ROOT)
        return self._built_images[known]

    async def _looked_at(self, made: Lazy, name: str, reference: str, owner: str = "") -> Image:
        root = made.rootfs()
        for places in _PROGRAMS:
            if not any([await root.exists(each) for each in places]):
                reason = f"the image {name} has no {places[0]}, which bounds what a tool uses"
                raise LackError("image", reason)
        names = [(await each.name(), await each.value()) for each in await made.env_variables()]
        image = Image(reference, root, dict(names))
        # The copy with which every task begins is kept, and with it all that was beside the image
        # when it was made for the first time: nothing of a user's.
        await self._made(build_file.base(reference, owner), image, self._dag.directory()).sync()
        return image


async def _content(file: Lazy) -> bytes:
    """What is in a file: as text, an engine would write it into its log."""
    with tempfile.TemporaryDirectory(prefix="enact-") as folder:
        path = Path(folder, "content")
        await file.export(str(path))
        return path.read_bytes()


def _within(job: Task, most: int, limit_bytes: int | None = None) -> list[str]:
    """The command within its limits."""
    argv = limited(job["argv"], job["memory_bytes"], job["processes"])
    return build_file.bounded(argv, most, limit_bytes)


def _pattern(path: str) -> str:
    """A pattern for a path: never less, even where a name looks like a pattern itself."""
    odd = (each in _NOT_PLAIN or each.isspace() or not each.isprintable() for each in path)
    return "".join("?" if is_odd else each for each, is_odd in zip(path, odd, strict=True))
