"""Keeps one connection to a Dagger engine and runs jobs on it, one at a time.

Requests and answers are lines of JSON on standard input and output. The process ends when its input
does, or after a while without a request. Killing it ends what the engine runs for it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import json
import os
import secrets
import selectors
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from fleet_agentpack.enact.backends.child import LARGEST_OUTPUT, MARKER
from fleet_agentpack.enact.backends.dagger_messages import Answer, Request, RunRequest
from fleet_agentpack.enact.backends.limits import limited

IDLE_S = 300.0
CONNECT_S = 30.0
WORKSPACE = "/workspace"
USER = "65532:65532"  # nobody's: a tool works on copies, which belong to this user
STDIN = "/.enact-stdin"
NOISE = 64 * 1024  # what the engine itself may say about a run
_DOCKERFILE = "enact.Dockerfile"
_SHELL = "bin/sh"
_HEADS = ("bin/head", "usr/bin/head")
# Both outputs up to a limit, beyond which the tool gets SIGPIPE; the exit code is the tool's.
_BOUNDED = """exec 4>&1 5>&2
exit "$({{ {{ {{ "$@" 3>&- 4>&- 5>&- 6>&-; echo $? >&3; }} 2>&1 >&6 | head -c {0} >&5
}} 6>&1 | head -c {0} >&4; }} 3>&1)"
"""
BROKEN_PIPE = 128 + signal.SIGPIPE


class Lazy(Protocol):
    """An object of the SDK, which is not always installed: a query that is not sent yet."""

    def __getattr__(self, name: str) -> Any: ...


class Ending(NamedTuple):
    """How a job ended."""

    code: int
    stdout: str
    stderr: str
    kept: tuple[str, ...] = ()  # what both the tool and the user have changed


class LackError(Exception):
    """Something that a run needs is missing: its part and why."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(reason)
        self.part = part


class Image(NamedTuple):
    """An image, as far as a run has to know it."""

    reference: str  # by digest
    root: Lazy
    variables: Mapping[str, str]
    has_shell: bool
    has_head: bool


class Session:
    """Jobs on one connection; `dagger` is the SDK."""

    def __init__(self, dagger: Any) -> None:
        self._dagger = dagger
        self._dag = dagger.dag
        self._images: dict[str, Image] = {}

    async def image(self, name: str) -> Image:
        """An image by name. Raises `LackError`."""
        if name not in self._images:
            try:
                made = self._dag.container().from_(name)
                reference = await made.image_ref()
                variables = [
                    (await each.name(), await each.value()) for each in await made.env_variables()
                ]
                root = made.rootfs()
                has_shell = await root.exists(_SHELL)
                has_head = any([await root.exists(each) for each in _HEADS])
            except self._dagger.QueryError as error:
                raise LackError(
                    "image", f"the image {name} could not be pulled: {error}"
                ) from error
            self._images[name] = Image(reference, root, dict(variables), has_shell, has_head)
        return self._images[name]

    async def run(self, job: RunRequest) -> Ending:
        """Run a job on copies of its files, and give back what it has changed."""
        image = await self.image(job["image"])
        before = {
            path: await self._copied(path, hidden).sync() for path, _, hidden in job["directories"]
        }
        seen = {path: _stamps(path) for path, writable, _ in job["directories"] if writable}
        build = self._open if job["network"] else self._closed
        done = build(job, image, before)
        try:
            code, out, err = await done.exit_code(), await done.stdout(), await done.stderr()
        except self._dagger.ExecError as error:  # 128 to 191, and every failure of a build
            return Ending(error.exit_code, error.stdout, error.stderr)
        kept: list[str] = []
        for path, writable, hidden in job["directories"]:
            if writable and code == 0:
                after = done.directory(path)
                kept += await self._given_back(path, before[path], after, seen[path], hidden)
        return Ending(code, out, err, tuple(kept))

    async def prune(self) -> None:
        """Forget copies of the user's files."""
        with contextlib.suppress(self._dagger.DaggerError):
            await self._dag.engine().local_cache().prune()

    def _copied(self, path: str, hidden: Sequence[str]) -> Lazy:
        source = self._dag.host().directory(path, exclude=list(hidden), no_cache=True)
        copied: Lazy = self._dag.directory().with_directory("/", source, owner=USER)
        return copied

    async def _given_back(
        self,
        path: str,
        before: Lazy,
        after: Lazy,
        seen: Mapping[str, object],
        hidden: Sequence[str],
    ) -> list[str]:
        """Write what a tool has changed; what the user has changed meanwhile stays."""
        for each in hidden:
            after = after.without_directory(each)
        changes = after.changes(before)
        now = _stamps(path)
        touched = [*await changes.modified_paths(), *await changes.removed_paths()]
        touched += await changes.added_paths()
        kept = [each for each in map(_plain, touched) if now.get(each) != seen.get(each)]
        for each in kept:
            is_old = await before.exists(each)
            after = after.with_file(each, before.file(each)) if is_old else after.without_file(each)
        if set(map(_plain, touched)) - set(kept):
            await after.changes(before).export(path)
        return [str(Path(path, each)) for each in kept]

    def _open(self, job: RunRequest, image: Image, before: Mapping[str, Lazy]) -> Lazy:
        """A container with the engine's whole network."""
        dag = self._dag
        folder = dag.directory().with_directory("/", dag.host().directory(job["folder"]))
        made = (
            dag.container()
            .from_(image.reference)
            .with_user(USER)
            .with_mounted_directory(WORKSPACE, folder, read_only=True)
            .with_workdir(WORKSPACE)
            # Without a new value, the engine would answer from its cache and run nothing.
            .with_env_variable(MARKER, secrets.token_hex(8))
        )
        if not _uses_tmp(job):
            made = made.with_mounted_temp("/tmp", size=job["disk_bytes"])  # noqa: S108
        for name, value in {**job["plain"], **_own_variables()}.items():
            made = made.with_env_variable(name, value)
        for path in job["files"]:
            made = made.with_file(path, dag.host().file(path), owner=USER)
        for path, _, _ in job["directories"]:
            made = made.with_directory(path, before[path], owner=USER)
        for name, value in job["env"].items():
            made = made.with_secret_variable(name, self._secret(name, value))
        done: Lazy = made.with_exec(
            _command(job, image, stdin=""),
            stdin=job["stdin"],
            expect=self._dagger.ReturnType.ANY,
            use_entrypoint=False,
        )
        return done

    def _closed(self, job: RunRequest, image: Image, before: Mapping[str, Lazy]) -> Lazy:
        """The same without a network, for which only a build has a switch.

        Nothing that a publisher or a caller has written is in the build's text but the argument
        list, as JSON: the image is copied, so that none of its own instructions (ONBUILD) run.
        """
        dag = self._dag
        given = dag.directory().with_new_directory("tmp", permissions=0o1777)
        given = given.with_directory(WORKSPACE, dag.host().directory(job["folder"]))
        for path in job["files"]:
            given = given.with_file(path, dag.host().file(path), owner=USER)
        for path, _, _ in job["directories"]:
            given = given.with_directory(path, before[path], owner=USER)
        if job["stdin"]:
            given = given.with_new_file(STDIN, job["stdin"], permissions=0o644)
        context = dag.directory().with_directory("image", image.root).with_directory("given", given)
        names = {name: secrets.token_hex(8) for name in job["env"]}
        text = "\n".join(_dockerfile(job, image, names)) + "\n"
        done: Lazy = context.with_new_file(_DOCKERFILE, text).docker_build(
            dockerfile=_DOCKERFILE,
            build_args=[self._dagger.BuildArg(MARKER, secrets.token_hex(8))],
            secrets=[dag.set_secret(names[name], value) for name, value in job["env"].items()],
        )
        return done

    def _secret(self, name: str, value: str) -> Lazy:
        made: Lazy = self._dag.set_secret(f"{name}-{secrets.token_hex(8)}", value)
        return made


def _dockerfile(job: RunRequest, image: Image, names: Mapping[str, str]) -> Iterator[str]:
    """The build that runs a job; `names` are those of its secrets."""
    yield "FROM scratch"
    yield 'COPY ["image/", "/"]'
    yield 'COPY ["given/", "/"]'
    for name, value in {**image.variables, **job["plain"], **_own_variables()}.items():
        if name.replace("_", "a").isalnum() and not {"\n", "\r"} & set(value):
            yield f"ENV {name}={_quoted(value)}"
    yield f"USER {USER}"
    yield f"WORKDIR {WORKSPACE}"
    yield f"ARG {MARKER}"
    mounts = [f"--mount=type=secret,id={given},env={name}" for name, given in names.items()]
    if not _uses_tmp(job):
        mounts.append(f"--mount=type=tmpfs,target=/tmp,size={job['disk_bytes']}")
    argv = json.dumps(_command(job, image, stdin=STDIN if job["stdin"] else ""))
    words = ["RUN", "--network=none", *mounts, argv.replace("<", "\\u003c")]
    yield " ".join(words)


def _command(job: RunRequest, image: Image, stdin: str) -> list[str]:
    """The command within its limits, and with its input; both need a shell in the image."""
    if not image.has_shell:
        if stdin:
            raise LackError("image", "it has no /bin/sh, which a tool with `x-stdin` needs here")
        return list(job["argv"])
    argv = limited(job["argv"], job["memory_bytes"], job["processes"])
    if image.has_head:
        argv = ["/bin/sh", "-c", _BOUNDED.format(LARGEST_OUTPUT + 1), "sh", *argv]
    return ["/bin/sh", "-c", f'exec "$@" < {stdin}', "sh", *argv] if stdin else argv


def _own_variables() -> dict[str, str]:
    return {"HOME": "/tmp", "TMPDIR": "/tmp"}  # noqa: S108


def _uses_tmp(job: RunRequest) -> bool:
    """Whether an empty /tmp would hide what the tool was given."""
    paths = [*job["files"], *(path for path, _, _ in job["directories"])]
    return any(Path(each).is_relative_to("/tmp") for each in paths)  # noqa: S108


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'


def _plain(path: str) -> str:
    return path.strip("/")


def _stamps(root: str) -> dict[str, object]:
    """What is in a directory, so that a change is noticed."""
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118 - many of them
            with contextlib.suppress(OSError):
                facts = os.lstat(path)
                is_folder = name in folders
                stamp = None if is_folder else (facts.st_mtime_ns, facts.st_size, facts.st_ino)
                found[os.path.relpath(path, root)] = (facts.st_mode, stamp)
    return found


async def answered(session: Session, request: Request) -> Answer:
    """The answer to one request."""
    try:
        if request["kind"] == "image":
            return {"image": (await session.image(request["image"])).reference}
        if request["kind"] == "prune":
            await session.prune()
            return {}
        ending = await _run(session, request)
    except LackError as lack:
        return {"lacks": lack.part, "reason": str(lack)}
    if ending.code == BROKEN_PIPE:
        return {"reason": "output"}
    return {
        "code": ending.code,
        "stdout": base64.b64encode(ending.stdout.encode()).decode(),
        "stderr": base64.b64encode(ending.stderr.encode()).decode(),
        "kept": list(ending.kept),
    }


async def _run(session: Session, request: RunRequest) -> Ending:
    """Run a job and leave none of its copies behind, however it ends."""
    try:
        return await session.run(request)
    finally:
        await session.prune()


async def serve(dagger: Any, lines: Callable[[], Awaitable[str]], log: Any) -> None:
    """Answer requests until there are no more."""
    watch = threading.Timer(CONNECT_S, _give_up, [f"no answer within {CONNECT_S:.0f} s"])
    watch.daemon = True
    watch.start()
    async with dagger.connection(dagger.Config(log_output=log.sink)):
        await dagger.dag.version()
        watch.cancel()
        _say({"ready": True})
        session = Session(dagger)
        while line := await lines():
            log.start()
            try:
                _say(await answered(session, json.loads(line)))
            except dagger.DaggerError as error:
                _say({"lacks": "engine", "reason": f"the engine failed: {error}"[:4000]})


class Log:
    """What the engine prints while a job runs: too much of it is the tool's, and ends the job."""

    def __init__(self, most: int = 2 * LARGEST_OUTPUT + NOISE) -> None:
        reading, writing = os.pipe()
        self.sink = os.fdopen(writing, "w")
        self._most, self._count = most, 0
        threading.Thread(target=self._drain, args=[reading], daemon=True).start()

    def start(self) -> None:
        """Count from here."""
        self._count = 0

    def _drain(self, reading: int) -> None:
        while chunk := os.read(reading, 65536):
            self._count += len(chunk)
            if self._count > self._most:
                _say({"reason": "output"})
                os._exit(1)


async def _next_line() -> str:
    """The next request; empty when there is none for too long."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(sys.stdin, selectors.EVENT_READ)
        ready = await asyncio.to_thread(waiting.select, IDLE_S)
    return sys.stdin.readline() if ready else ""


def _say(answer: Answer) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _give_up(reason: str) -> NoReturn:
    _say({"lacks": "engine", "reason": f"no Dagger engine can be reached: {reason}"})
    os._exit(1)


def main() -> int:
    """Connect and serve."""
    # gql prefers httpx2 where it is installed, and the SDK hands it objects of httpx.
    sys.modules["httpx2"] = None  # type: ignore[assignment]
    dagger = importlib.import_module("dagger")
    try:
        asyncio.run(serve(dagger, _next_line, Log()))
    except (dagger.DaggerError, OSError) as error:
        _give_up(str(error)[-2000:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
