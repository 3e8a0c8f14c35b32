"""A small proxy, one for each run: a tool reaches the hosts that were granted and no others.

It serves CONNECT and plain HTTP on a socket that the sandbox has made for it. A name is resolved
here, once, and what is connected to is the address that was checked.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from fleet_agentpack.enact.network import HostError, Reach

LARGEST_HEAD = 65_536
HEAD_S = 20.0
CONNECT_S = 15.0
MOST_CONNECTIONS = 64
MOST_TOLD = 5  # hosts that were refused
LONGEST_NAME = 253  # of a host
_CHUNK = 65_536
_LINE = re.compile(rb"([A-Z]{1,16}) (\S{1,8192}) HTTP/1\.[01]\Z")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*\Z")  # one line, read in one way
_DROPPED = (b"proxy-", b"connection:", b"keep-alive:", b"host:")
LARGEST_PORT = 65_535


class Proxy:
    """Connections of one run. `used` and `refused` say what it tried."""

    def __init__(self, reach: Reach, secret: str = "") -> None:
        self.used = False
        self.refused: dict[str, str] = {}  # host:port → why
        self._reach = reach
        self._secret = secret  # of the tool, where others could connect too
        self._open: set[socket.socket] = set()
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._closed = False

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until `close` is called."""
        with contextlib.suppress(OSError), self._kept(listener):
            while True:
                client, _ = listener.accept()
                self.used = True
                self._places.acquire()
                threading.Thread(target=self._handle, args=[client], daemon=True).start()

    def close(self) -> None:
        """End every connection."""
        with self._turn:
            self._closed = True
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _kept(self, each: socket.socket) -> Iterator[socket.socket]:
        """Close a socket at the end, or when `close` is called."""
        with each:
            with self._turn:
                if self._closed:
                    raise OSError("the run has ended")
                self._open.add(each)
            try:
                yield each
            finally:
                with self._turn:
                    self._open.discard(each)

    def _handle(self, client: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError), self._kept(client):
                self._answer(client)
        finally:
            self._places.release()

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(HEAD_S)
        head, rest = _read_head(client)
        line, _, fields = head.partition(b"\r\n")
        match = _LINE.match(line)
        if not match or not all(map(_FIELD.match, filter(None, fields.split(b"\r\n")))):
            _say(client, 400, "this is not a request that a proxy understands")
        elif not self._is_known(fields):
            _say(client, 407, "this proxy belongs to another program")
        elif match[1] == b"CONNECT":
            self._tunnel(client, match[2].decode("latin-1"), rest)
        else:
            self._forward(client, match, fields, rest)

    def _is_known(self, fields: bytes) -> bool:
        return not self._secret or self._secret.encode() in fields

    def _tunnel(self, client: socket.socket, target: str, rest: bytes) -> None:
        host, _, text = target.rpartition(":")
        port = int(text) if text.isdecimal() and len(text) <= 5 else 0
        if not host or not 0 < port <= LARGEST_PORT:
            _say(client, 400, f"{target[:80]!r} is not host:port")
            return
        with self._connected(client, host.strip("[]"), port) as server:
            if server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                server.sendall(rest)
                _relay(client, server)

    def _forward(
        self, client: socket.socket, line: re.Match[bytes], fields: bytes, rest: bytes
    ) -> None:
        try:
            parts = urlsplit(line[2].decode("latin-1"))
            host, port = parts.hostname or "", 80 if parts.port is None else parts.port
        except ValueError:
            host, port = "", 0
        if not host or not port or parts.scheme != "http":
            _say(client, 400, "a proxy needs a whole address, such as http://example.com/")
            return
        lines = filter(None, fields.split(b"\r\n"))
        kept = [each for each in lines if not each.lower().startswith(_DROPPED)]
        path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        first = b"%s %s HTTP/1.1" % (line[1], path.encode("latin-1"))
        with self._connected(client, host, port) as server:
            if server:
                # One request a connection: a second one could be for another host.
                shown = f"[{host}]" if ":" in host else host
                named = f"Host: {shown}{'' if port == 80 else f':{port}'}".encode("latin-1")
                head = b"\r\n".join([first, named, *kept, b"Connection: close"])
                server.sendall(head + b"\r\n\r\n" + rest)
                _relay(client, server)

    @contextlib.contextmanager
    def _connected(
        self, client: socket.socket, host: str, port: int
    ) -> Iterator[socket.socket | None]:
        """A connection to a host, if it may be reached; otherwise the client is told why."""
        try:
            addresses = self._reach.addresses(host, port)
        except HostError as error:
            with self._turn:
                if len(self.refused) < MOST_TOLD and len(host) <= LONGEST_NAME:
                    self.refused[f"{host}:{port}"] = str(error)
            _say(client, 403, f"this tool may not reach {host}:{port}: {error}")
            yield None
            return
        server = _connect(addresses, port)
        if server is None:
            _say(client, 502, f"{host}:{port} does not answer")
            yield None
            return
        with self._kept(server):
            yield server


def _connect(addresses: Iterable[str], port: int) -> socket.socket | None:
    for address in addresses:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, port), CONNECT_S)
    return None


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """A request's head and what came after it. Raises `OSError` for one that is too long."""
    read = b""
    while b"\r\n\r\n" not in read:
        more = client.recv(_CHUNK)
        if not more or len(read) > LARGEST_HEAD:
            raise OSError("no request")
        read += more
    head, _, rest = read.partition(b"\r\n\r\n")
    return head, rest


def _say(client: socket.socket, status: int, text: str) -> None:
    body = f"fleet-agentpack: {text}\n".encode("utf-8", "replace")
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\n"
    client.sendall(
        f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    )


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes on in both directions, each in its own thread, until both have ended."""
    for each in (one, other):
        each.settimeout(None)
    back = threading.Thread(target=_pass_on, args=[other, one], daemon=True)
    back.start()
    _pass_on(one, other)
    back.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
        return
    for each in (source, sink):  # one side broke off, so the other cannot go on
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
