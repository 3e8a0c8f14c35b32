"""What a session sees: the user's store, and its own store where installs are per session."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from fleet_agentpack.enact.errors import EnactError, ask_to_run
from fleet_agentpack.enact.projection import Projector
from fleet_agentpack.enact.store import Store
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.stamps import Stamp


class Sessions:
    """The stores and projections of the sessions that have installed something."""

    def __init__(self, shared: Store, folder: Path, *, own: bool = False) -> None:
        self._shared = shared
        self._per_session = own  # whether every install belongs to the session that made it
        self._folder = folder
        self._everybody = Projector([shared])
        self._own: dict[str, tuple[Store, Projector]] = {}
        self._ended = 0  # the revisions of sessions that have ended
        self._lock = threading.Lock()

    def projector(self, session: str | None) -> Projector:
        """The projection of a session."""
        own = self._own.get(session) if session is not None else None
        return own[1] if own else self._everybody

    def store(self, session: str) -> Store:
        """The session's own store, created on first use."""
        with self._lock:
            if session not in self._own:
                if not self._own:
                    self._sweep()
                own = Store(self._root() / hashlib.sha256(session.encode()).hexdigest()[:32])
                seen = Projector([self._shared, own])
                seen.read()  # so that its revision counts from what it saw until now
                self._own[session] = (own, seen)
            return self._own[session][0]

    def writable(self, session: str | None) -> Store:
        """Where an install goes. Raises `EnactError` without a session where it needs one."""
        if not self._per_session:
            return self._shared
        if session is None:
            message = "this server installs tools per session, and this call has no session"
            run = Action("enact__run", text="or run it without installing it: {}")
            step = "connect with a session or a token"
            raise EnactError("SESSION_REQUIRED", message, step, run)
        return self.store(session)

    def not_ours(self, name: str, store: Store) -> EnactError:
        """Why a tool cannot be removed from a store that does not have it."""
        if store is not self._shared and name in self._shared.tools().tools:
            remove = ask_to_run("tool", "uninstall", name)
            reason = "was installed for all sessions; a session can remove only its own tools"
            return EnactError("NOT_ALLOWED", f"{name} {reason}", remove, tool=name)
        return EnactError.not_installed(name)

    def revision(self) -> int:
        """A number that grows when some session's list of tools has changed."""
        seen = [projector.revision() for _, projector in list(self._own.values())]
        return self._everybody.revision() + sum(seen) + self._ended

    def sources(self) -> Mapping[str, Stamp | None]:
        """The files whose change may change some session's list of tools, as last read."""
        found: dict[str, Stamp | None] = {}
        for projector in (each for _, each in list(self._own.values())):
            found |= projector.sources()
        return {**found, **self._everybody.sources()}

    def end(self, session: str) -> None:
        """Remove what belonged to a session."""
        with self._lock:
            found = self._own.pop(session, None)
            self._ended += found[1].revision() if found else 0
        if found:
            shutil.rmtree(found[0].root, ignore_errors=True)

    def end_all(self) -> None:
        """Remove what belonged to any session of this process."""
        for session in list(self._own):
            self.end(session)
        if self._root().exists():
            shutil.rmtree(self._root(), ignore_errors=True)

    def _root(self) -> Path:
        return self._folder / str(os.getpid())

    def _sweep(self) -> None:
        """Remove what processes that no longer run have left behind."""
        for folder in self._folder.glob("[0-9]*"):
            if not _alive(int(folder.name)) or folder == self._root():
                shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
