"""How a sandbox without a network reaches the proxy: through a socket that it makes for it.

A launcher inside the sandbox opens a listening socket in the sandbox's own network, hands it to
this process over a pair of sockets, and becomes the tool. Nothing else leads out.

An image may have no program that could do so: a container joins a network that a process of ours
has made, and whose only interface is the loopback with the proxy on it.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.enact.backends.job import interpreter
from fleet_agentpack.enact.network import Reach
from fleet_agentpack.enact.proxy import Proxy
from fleet_agentpack.kit.process import kill_group

PORT = 3128
# The launcher's own sockets are closed when it becomes the tool.
_LAUNCHER = """
import os, socket, sys
way = socket.socket(fileno=int(sys.argv[1]))
way.set_inheritable(False)
with socket.create_server(("127.0.0.1", int(sys.argv[2]))) as made:
    socket.send_fds(way, [b"."], [made.fileno()])
os.execvp(sys.argv[3], sys.argv[3:])
"""


# Ends with its standard input, and the network with it.
_HOLDER = """
import contextlib, fcntl, os, socket, struct, sys
with socket.socket() as any_socket, contextlib.suppress(PermissionError):  # an engine has done it
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))  # up
made = socket.create_server(("127.0.0.1", int(sys.argv[2])))
with socket.socket(socket.AF_UNIX) as way:
    way.connect(sys.argv[1])
    socket.send_fds(way, [str(os.getpid()).encode()], [made.fileno()])
made.close()
sys.stdin.read()
"""
HOLD_S = 30.0


@dataclass(frozen=True)
class Gateway:
    """The proxy of a run, and what the run needs to reach it."""

    proxy: Proxy
    descriptor: int  # the sandbox's end of the pair

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command behind the launcher."""
        numbers = (str(self.descriptor), str(PORT))
        return [interpreter(), "-I", "-S", "-c", _LAUNCHER, *numbers, *argv]


def proxy_variables(address: str) -> dict[str, str]:
    """The variables that tell programs of a proxy."""
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    here = dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
    return {**dict.fromkeys(names, address), **here}


def basic(secret: str) -> str:
    """How a program sends the secret of `http://tool:SECRET@…` to a proxy."""
    return "Basic " + base64.b64encode(f"tool:{secret}".encode()).decode()


class NetworkError(OSError):
    """A network could not be made; the message says why."""


@contextlib.contextmanager
def network(
    granted: Sequence[str],
    making: Callable[[Path], Iterable[str]],
    env: Mapping[str, str] | None = None,
) -> Iterator[tuple[Proxy, Path]]:
    """A network with nothing but the proxy, for a container to join. Raises `NetworkError`.

    `making` is the command in front of what holds it, which finds us in the given directory.
    """
    proxy = Proxy(Reach.of(granted))
    with tempfile.TemporaryDirectory(prefix="enact-") as folder, contextlib.ExitStack() as held:
        path = Path(folder, "way")
        awaited = held.enter_context(socket.socket(socket.AF_UNIX))
        awaited.bind(str(path))
        awaited.listen(1)
        python = [interpreter(), "-I", "-S", "-c", _HOLDER, str(path), str(PORT)]
        holder = held.enter_context(_held([*making(Path(folder)), *python], env))
        pid, listener = _handed_over(awaited, holder)
        serving = threading.Thread(target=proxy.serve, args=[listener], daemon=True)
        serving.start()
        try:
            yield proxy, Path("/proc", str(pid), "ns/net")
        finally:
            proxy.close()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            serving.join(5)


@contextlib.contextmanager
def _held(argv: Sequence[str], env: Mapping[str, str] | None) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    try:
        started = subprocess.Popen(
            [*argv], env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as error:
        raise NetworkError(f"{argv[0]}: {error.strerror}") from error
    with started as holder:
        try:
            yield holder
        finally:
            kill_group(holder.pid)


def _handed_over(
    awaited: socket.socket, holder: subprocess.Popen[bytes]
) -> tuple[int, socket.socket]:
    """The process that holds a network, and its listening socket."""
    awaited.settimeout(0.1)
    for _ in range(round(HOLD_S / 0.1)):
        with contextlib.suppress(TimeoutError):
            way, _ = awaited.accept()
            with way:
                said, found, _, _ = socket.recv_fds(way, 32, 1)
            return int(said), socket.socket(fileno=found[0])
        if holder.poll() is not None:
            assert holder.stderr is not None  # noqa: S101 - it is a pipe
            said = holder.stderr.read(2000)
            raise NetworkError(said.decode("utf-8", "replace").strip() or "unshare failed")
    raise NetworkError("it took too long")


@contextlib.contextmanager
def opened(granted: Sequence[str]) -> Iterator[Gateway]:
    """A gateway for as long as a run takes."""
    proxy = Proxy(Reach.of(granted))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        serving = threading.Thread(target=_serve, args=[ours, proxy], daemon=True)
        serving.start()
        try:
            yield Gateway(proxy, theirs.fileno())
        finally:
            proxy.close()
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
            serving.join(5)


def _serve(ours: socket.socket, proxy: Proxy) -> None:
    with contextlib.suppress(OSError):
        _, found, _, _ = socket.recv_fds(ours, 1, 1)
        if found:
            proxy.serve(socket.socket(fileno=found[0]))
