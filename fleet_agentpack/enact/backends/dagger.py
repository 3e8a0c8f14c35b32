"""Tools in a container of Dagger's engine."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.backends.child import LARGEST_OUTPUT, Command, Ended
from fleet_agentpack.enact.backends.dagger_connection import Connections, LostError
from fleet_agentpack.enact.backends.dagger_messages import RUNNER, Answer, Request, Task
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

PROGRAM = "_EXPERIMENTAL_DAGGER_CLI_BIN"
_VARIABLES = (*CLIENT_VARIABLES, PROGRAM, RUNNER, "XDG_CACHE_HOME")
_QUIET = {"DAGGER_NO_NAG": "1", "DAGGER_NO_UPDATE_CHECK": "1", "DO_NOT_TRACK": "1"}
# Nowhere to keep an identity: under one, the engine would keep the user's files for the next time.
_UNKNOWN = {"XDG_STATE_HOME": "/dev/null/none"}
_APART = "/enact-tool"
ARCHIVE = "image.tar"
LOST = 256  # no program's exit code: the engine failed, not the tool


class Dagger:
    """Dagger's engine, driven through its SDK by a process that keeps its connection open.

    The tool works on copies; what it has changed is given back after a successful run.
    """

    name = "dagger"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._program = environ.get(PROGRAM) or shutil.which("dagger", path=environ.get("PATH"))
        env = {key: environ[key] for key in _VARIABLES if key in environ}
        self._connections = Connections({**env, **_QUIET, **_UNKNOWN, PROGRAM: self._program or ""})
        self._images: dict[str, str] = {}

    def unavailable(self, image: str | None = None) -> str | None:
        """Which part is missing: the SDK, the CLI, the engine or an image."""
        if importlib.util.find_spec("dagger") is None:
            return "the Dagger SDK is not installed (pip install 'fleet-agentpack[dagger]')"
        if not self._program or not Path(self._program).is_file():
            return f"the Dagger CLI is missing: put `dagger` on the PATH, or name it in {PROGRAM}"
        try:
            if image:
                self._resolved(image)
            else:
                self._connections.probe()
        except LostError as lost:
            return str(lost)
        return None

    def pinned(self, image: str) -> str:
        """An image by digest. Raises `EnactError`."""
        try:
            return self._resolved(image)
        except LostError as lost:
            raise EnactError.backend_unavailable(image, str(lost), ask_user("check it")) from lost

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Launch]:
        """A request to the process that is connected; what a job says never becomes an argument."""
        command = Command(list(job.argv), {}, None, json.dumps(_request(job)).encode())
        yield Launch(command, failed_status=LOST, carry_out=self._carry_out)

    def close(self) -> None:
        """End every connection."""
        self._connections.close()

    def _resolved(self, image: str) -> str:
        if image not in self._images:
            answer = self._connections.ask({"kind": "image", "image": image})
            self._images[image] = str(answer["image"])
        return self._images[image]

    def _carry_out(
        self,
        command: Command,
        *,
        timeout_s: float,
        tick: Callable[[float], None] = lambda _: None,
        on_kill: Callable[[], None] = lambda: None,
        largest_output: int = LARGEST_OUTPUT,
    ) -> Ended:
        """Like `child.execute`, on a connection."""
        del on_kill  # a connection that ends stops its task and prunes
        started = time.monotonic()
        try:
            answer = self._connections.ask(json.loads(command.stdin), timeout_s, tick)
        except TimeoutError:
            return Ended(-9, b"", b"", timeout_s, "timeout")
        except LostError as lost:
            self._prune()
            return Ended(LOST, b"", str(lost).encode(), time.monotonic() - started)
        return _ended(answer, time.monotonic() - started, largest_output)

    def _prune(self) -> None:
        """Have the copies of a task forgotten whose own process could not do it any more."""
        with contextlib.suppress(LostError, TimeoutError):
            self._connections.ask({"kind": "prune"})


def _request(job: Job) -> Request:
    task: Task = {
        "image": job.bounds.image or DEFAULT_IMAGE,
        "argv": list(job.argv),
        "folder": str(job.folder / ARCHIVE if job.in_image else job.folder),
        "network": whole_network(job, "Dagger"),
        "memory_bytes": job.bounds.memory_bytes,
        "processes": job.bounds.processes,
        "disk_bytes": job.bounds.disk_bytes,
    }
    if job.into:
        archive, limit = str(job.into / ARCHIVE), job.limit_bytes
        return {**task, "kind": "build", "archive": archive, "limit_bytes": limit}
    # What has several lines cannot be written into a build.
    plain = {each: job.env[each] for each in job.plain if not {"\n", "\r"} & set(job.env[each])}
    return {
        **task,
        "kind": "run",
        "in_image": job.in_image,
        "places": _places(job),
        "env": {name: value for name, value in job.env.items() if name not in plain},
        "plain": plain,
        "files": [str(each.path) for each in job.mounts if each.path.is_file()],
        "directories": [
            (str(each.path), each.writable, _hidden(each))
            for each in job.mounts
            if each.path.is_dir()
        ],
        "stdin": job.stdin.decode(),
    }


def _places(job: Job) -> list[str]:
    """Where the tool's own files have to be put. Raises `EnactError`."""
    free = [*map(str, workspaces(job))]
    if not job.in_image:
        return free or [_APART]
    if str(WORKSPACE) in free:
        return []
    reason = f"it was built at {WORKSPACE}, where what it is given is too"
    step = ask_user("choose podman or docker as execution.default, or another directory")
    raise EnactError.backend_unavailable(job.tool, reason, step)


def _hidden(mount: Mount) -> list[str]:
    return [each.relative_to(mount.path).as_posix() for each in mount.hidden]


def _ended(answer: Answer, duration_s: float, largest: int) -> Ended:
    if answer["reason"] != "exit":
        return Ended(-9, b"", b"", duration_s, answer["reason"])
    stdout, stderr = (base64.b64decode(answer[key]) for key in ("stdout", "stderr"))
    notes = (
        f"{path} was changed by you and by the tool; yours was kept" for path in answer["kept"]
    )
    return Ended(
        answer["code"], stdout[:largest], stderr[:largest], duration_s, "exit", tuple(notes)
    )
