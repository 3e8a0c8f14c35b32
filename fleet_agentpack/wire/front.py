"""Takes the wire, answers handshakes and listings, and hands over at the first other message.

Every client starts the server, most never call it. So nothing but the standard library is imported
here. The front answers only what it knows exactly, with the recorded answers of the server behind
it. When it hands over, the server gets the handshake again (the answer to that one is not sent) and
then everything that the client has sent since.
"""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING

from fleet_agentpack.kit.project import up_to_repository
from fleet_agentpack.kit.watch import POLL_INTERVAL_S, Watch, open_watch
from fleet_agentpack.wire.descriptors import ClaimedStdio, Handover, read_some, write_some
from fleet_agentpack.wire.installed_state import (
    InstalledTools,
    prompts_state_path,
    stamps_of,
    state_path,
)
from fleet_agentpack.wire.known_shapes import LONGEST_LINE, Known, known_message
from fleet_agentpack.wire.recorded import LISTINGS, RecordedListing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet_agentpack.kit.stamps import Stamp

CHUNK = 1 << 16
PIECE = select.PIPE_BUF if hasattr(select, "PIPE_BUF") else 512  # fits where anything fits
FULL_PIPE_S = 0.2  # how long a client may leave a full pipe unread before the server takes over
QUIET_S = 0.05  # an install changes several files; it is told once
MOST_SELECTABLE = 1024

_LISTINGS = frozenset(LISTINGS)
_CHANGED = '{"jsonrpc":"2.0","method":"notifications/%s_changed"}\n'


def serve_known(
    wire: ClaimedStdio, listing: RecordedListing, home: str, cache: str, project: str
) -> Handover | None:
    """Answer what is known, until something else arrives; None when the client has gone."""
    if max(wire) >= MOST_SELECTABLE:
        return Handover()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os._exit(128 + number))
    installed = [
        InstalledTools([os.path.join(home, each) for each in sources], state_path(cache, domain))  # noqa: PTH118
        for domain, sources in listing.dynamic.items()
    ]
    for domain, folder in listing.prompt_folders.items() if project else ():
        places = dict.fromkeys([*up_to_repository(project), os.path.realpath(home)])
        roots = [os.path.join(place, folder) for place in places]  # noqa: PTH118
        kept = prompts_state_path(cache, domain, project)
        installed.append(InstalledTools(roots, kept, "prompts/list"))
    try:
        return _Front(wire, listing, installed).run()
    except BrokenPipeError:
        return None


class _Front:
    """One client's connection, as long as nothing but the known is asked."""

    def __init__(
        self, wire: ClaimedStdio, listing: RecordedListing, installed: Sequence[InstalledTools]
    ) -> None:
        self._wire, self._listing, self._installed = wire, listing, installed
        self._replay: list[bytes] = []  # what the server has to see of what was answered here
        self._legacy = self._modern = False  # which protocol era the client speaks, once known
        self._greeted = False  # a handshake was answered, its confirmation has not arrived
        self._unwritten = b""
        self._told: dict[str, Stamp | None] | None = None  # the files as the client knows of them
        self._current: dict[str, Stamp | None] | None = None  # the files behind the list it has
        self._watch: Watch | None = None

    def run(self) -> Handover | None:
        """Answer until a message is not known; None at the end of input."""
        rest, ended = b"", False
        while not ended:
            self._wait_for_input()
            if self._unwritten or len(rest) > LONGEST_LINE:
                return self._hand_over([], rest)
            chunk = self._read()
            ended = not chunk
            *lines, rest = (rest + chunk).split(b"\n")
            if ended and rest:
                lines, rest = [rest], b""
            for number, line in enumerate(lines):
                answer = self._answer(line.strip())
                if answer is None:
                    return self._hand_over(lines[number:], rest)
                self._write(answer)
                if self._unwritten:
                    return self._hand_over(lines[number + 1 :], rest)
        return None

    def _hand_over(self, lines: Sequence[bytes], rest: bytes) -> Handover:
        if self._watch is not None:
            self._watch.close()
        unread = b"\n".join([*self._replay, *lines, rest])
        return Handover(unread, self._unwritten, self._current or self._current_now())

    # Answers

    def _answer(self, line: bytes) -> bytes | None:
        """The answer to a line, empty if it wants none; None for what is not known."""
        if not line:
            return b""
        known = known_message(line, _LISTINGS)
        if known is None:
            return None
        result = self._modern_result(known) if known.modern else self._legacy_result(known)
        if not result:
            return None if result is None else b""
        return f'{{"jsonrpc":"2.0","id":{known.number},"result":{result}}}\n'.encode()

    def _modern_result(self, known: Known) -> str | None:
        if self._replay and not self._modern:
            return None  # the connection was opened in the other era
        result = (
            self._listing.discover()
            if known.method == "server/discover"
            else self._listed(known.method, modern=True)
        )
        if result is not None and not self._modern:
            self._modern = True
            self._replay.append(known.replay)
        return result

    def _legacy_result(self, known: Known) -> str | None:
        if self._modern:
            return None
        if known.method == "ping":
            if not self._replay:
                self._replay.append(known.replay)  # it opens the connection as one of this era
            return "{}"
        if known.method == "notifications/initialized":
            return self._confirm(known)
        if known.method != "initialize":
            result = self._listed(known.method, modern=False)
        elif self._legacy:
            return None  # a second handshake
        else:
            result = self._listing.initialize(known.version)
            self._greeted = result is not None
        if result is not None and not self._legacy:
            self._legacy = True
            self._replay.append(known.replay)
            self._told = self._told or self._known()
        return result

    def _confirm(self, known: Known) -> str | None:
        if not self._greeted:
            return None
        self._greeted = False
        self._replay.append(known.replay)
        return ""

    def _listed(self, method: str, *, modern: bool) -> str | None:
        more: list[str] = []
        coming_and_going = [each for each in self._installed if each.method == method]
        for each in coming_and_going:
            items = each.listed(modern=modern, show=self._listing.installed)
            if items is None:
                self._current = None
                return None
            more += items
        if coming_and_going and not modern:
            self._told = self._current = self._known()
        return self._listing.listing(method, modern=modern, more=more)

    def _current_now(self) -> dict[str, Stamp | None] | None:
        """The files behind the lists as they are now, if the server need not be asked for them.

        A client that has no list, or an outdated one that it was told of, knows no other.
        """
        if not self._legacy or any(
            each.listed(modern=False, show=self._listing.installed) is None
            for each in self._installed
        ):
            return None
        return self._known()

    # The wire

    def _read(self) -> bytes:
        try:
            return read_some(self._wire.reading, CHUNK)
        except OSError:
            return b""

    def _write(self, message: bytes) -> None:
        """Write as much as the client takes; the server will write the rest."""
        message, self._unwritten = self._unwritten + message, b""
        while message:
            if not select.select([], [self._wire.writing], [], FULL_PIPE_S)[1]:
                self._unwritten = message
                return
            try:
                message = message[write_some(self._wire.writing, message[:PIECE]) :]
            except BrokenPipeError:
                raise
            except OSError as error:
                raise BrokenPipeError from error

    # Changes of the installed tools

    def _wait_for_input(self) -> None:
        """Wait until there is something to read; meanwhile tell the client of changed tools."""
        reading = self._wire.reading
        if not self._installed or self._told is None or _readable([reading], 0):
            return
        if self._watch is None:
            self._watch = open_watch()
        while True:
            armed = self._watch is not None and self._watch.arm(self._told)
            self._tell_of_changes()  # after arming: what happened before is seen now
            if self._unwritten:
                return  # the server waits for the client to read
            watched = [reading] if self._watch is None else [reading, self._watch.fileno()]
            if reading in _readable(watched, None if armed else POLL_INTERVAL_S):
                return
            self._let_it_settle()

    def _let_it_settle(self) -> None:
        """Wait until a change is complete, or the client has something to say."""
        for _ in range(10):
            if self._watch is None:
                return
            self._watch.drain()
            if stamps_of(self._told or ()) == self._told:
                return  # something else near these files
            ready = _readable([self._wire.reading, self._watch.fileno()], QUIET_S)
            if ready != [self._watch.fileno()]:
                return

    def _tell_of_changes(self) -> None:
        told, now = self._told or {}, stamps_of(self._told or ())
        if now != told:
            self._told, self._current = now, None
            changed = {path for path, stamp in now.items() if stamp != told[path]}
            for method in ("tools/list", "prompts/list"):
                behind = (each.known for each in self._installed if each.method == method)
                if any(changed & known.keys() for known in behind):
                    self._write((_CHANGED % method).encode())

    def _known(self) -> dict[str, Stamp | None]:
        return {path: stamp for each in self._installed for path, stamp in each.known.items()}


def _readable(descriptors: Sequence[int], timeout_s: float | None) -> list[int]:
    return select.select(descriptors, [], [], timeout_s)[0]
