"""Tools on this machine itself, unprotected."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from fleet_agentpack.enact.backends.child import MARKER, Command
from fleet_agentpack.enact.backends.job import Job, Launch


class Host:
    """This machine itself, without isolation; only where the user's configuration allows it."""

    def __init__(self, path: str, name: str = "local") -> None:
        self.name = name
        self._path = path

    def unavailable(self, image: str | None = None) -> str | None:  # noqa: ARG002
        """Why nothing can run here."""
        return "tools cannot run on Windows" if os.name == "nt" else None

    @contextmanager
    def prepared(self, job: Job) -> Iterator[Launch]:
        """The command for a job, in an environment of its own."""
        with tempfile.TemporaryDirectory(prefix="enact-", ignore_cleanup_errors=True) as scratch:
            env = {
                **job.env,
                "PATH": self._path,
                "HOME": scratch,
                "TMPDIR": scratch,
                "LANG": "C.UTF-8",
                "PYTHONDONTWRITEBYTECODE": "1",
                MARKER: secrets.token_hex(16),
            }
            yield Launch(Command(job.argv, env, job.folder, job.stdin))
