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
from fleet_agentpack.enact.backends.dagger_messages import Answer, RunRequest
from fleet_agentpack.enact.backends.job import (
    CLIENT_VARIABLES,
    DEFAULT_IMAGE,
    Job,
    Launch,
    whole_network,
)
from fleet_agentpack.enact.errors import EnactError, ask_user

PROGRAM = "_EXPERIMENTAL_DAGGER_CLI_BIN"
_VARIABLES = (*CLIENT_VARIABLES, PROGRAM, "_EXPERIMENTAL_DAGGER_RUNNER_HOST", "XDG_CACHE_HOME")
_QUIET = {"DAGGER_NO_NAG": "1", "DAGGER_NO_UPDATE_CHECK": "1", "DO_NOT_TRACK": "1"}
LOST = 125  # as podman and docker say it: the engine failed, not the tool


class Dagger:
    """Dagger's engine, driven through its SDK by a process that keeps its connection open.

    The tool works on copies; what it has changed is given back after a successful run.
    """

    name = "dagger"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._program = environ.get(PROGRAM) or shutil.which("dagger", path=environ.get("PATH"))
        env = {key: environ[key] for key in _VARIABLES if key in environ}
        self._connections = Connections({**env, **_QUIET, PROGRAM: self._program or ""})
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
    ) -> Ended:
        """Like `child.execute`, on a connection."""
        del on_kill  # a connection that is dropped ends its run
        started = time.monotonic()
        try:
            answer = self._connections.ask(json.loads(command.stdin), timeout_s, tick)
        except TimeoutError:
            ended = Ended(-9, b"", b"", time.monotonic() - started, "timeout")
        except LostError as lost:
            ended = Ended(LOST, b"", str(lost).encode(), time.monotonic() - started)
        except BaseException:
            self._prune()
            raise
        else:
            ended = _ended(answer, time.monotonic() - started)
        if ended.reason != "exit" or ended.exit_code == LOST:
            self._prune()
        return ended

    def _prune(self) -> None:
        """Have the copies of a run forgotten whose own process could not do it any more."""
        for _ in range(2):  # the first connection may be one that is just ending
            with contextlib.suppress(LostError, TimeoutError):
                self._connections.ask({"kind": "prune"})
                return


def _request(job: Job) -> RunRequest:
    # What has several lines cannot be written into a build.
    plain = {name: job.env[name] for name in job.plain if "\n" not in job.env[name]}
    return {
        "kind": "run",
        "image": job.bounds.image or DEFAULT_IMAGE,
        "argv": list(job.argv),
        "env": {name: value for name, value in job.env.items() if name not in plain},
        "plain": plain,
        "folder": str(job.folder),
        "files": [str(each.path) for each in job.mounts if each.path.is_file()],
        "directories": [
            (str(each.path), each.writable, _hidden(each))
            for each in job.mounts
            if each.path.is_dir()
        ],
        "stdin": job.stdin.decode(),
        "network": whole_network(job, "Dagger"),
        "memory_bytes": job.bounds.memory_bytes,
        "processes": job.bounds.processes,
        "disk_bytes": job.bounds.disk_bytes,
    }


def _hidden(mount: Mount) -> list[str]:
    return [each.relative_to(mount.path).as_posix() for each in mount.hidden]


def _ended(answer: Answer, duration_s: float) -> Ended:
    if answer.get("reason") == "output":
        return Ended(-9, b"", b"", duration_s, "output")
    stdout, stderr = (base64.b64decode(answer[key]) for key in ("stdout", "stderr"))
    is_long = max(len(stdout), len(stderr)) > LARGEST_OUTPUT
    return Ended(
        answer["code"],
        stdout[:LARGEST_OUTPUT],
        stderr[:LARGEST_OUTPUT],
        duration_s,
        "output" if is_long else "exit",
        tuple(
            f"{path} was changed by you and by the tool; yours was kept" for path in answer["kept"]
        ),
    )
