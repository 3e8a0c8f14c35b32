"""Tools in a container of Dagger's engine."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fleet_agentpack.enact.backends.child import Command
from fleet_agentpack.enact.backends.job import CLIENT_VARIABLES, DEFAULT_IMAGE, Job, Launch


class Dagger:
    """Dagger's engine, driven through its SDK by a child process of ours.

    The tool works on copies of its mounts; Dagger has no switch that turns the network off.
    """

    name = "dagger"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def unavailable(self) -> str | None:
        """Why nothing can run here."""
        if importlib.util.find_spec("dagger") is None:
            return "the Dagger SDK is not installed (pip install 'fleet-agentpack[dagger]')"
        return None

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Launch]:
        """The command for a job; everything about it goes through standard input."""
        request = {
            "image": job.image or DEFAULT_IMAGE,
            "argv": list(job.argv),
            "env": dict(job.env),
            "folder": str(job.folder),
            "files": [str(each.path) for each in job.mounts if each.path.is_file()],
            "directories": [
                [str(each.path), each.writable] for each in job.mounts if each.path.is_dir()
            ],
            "stdin": job.stdin.decode(),
        }
        # -P: never import from the working directory, which may be anyone's.
        argv = [sys.executable, "-P", "-m", "fleet_agentpack.enact.backends.dagger_child"]
        env = {key: self._environ[key] for key in CLIENT_VARIABLES if key in self._environ}
        yield Launch(Command(argv, env, None, json.dumps(request).encode()))
