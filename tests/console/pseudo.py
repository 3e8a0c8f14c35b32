"""A program on a terminal of our own: so wide, so high, with keys that we press."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Sequence

from tests.rig import SERVE, child_environment, eventually

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])")
CTRL_C = b"\x03"


class OnTerminal:
    """A process whose input, output and errors are a terminal."""

    def __init__(
        self, *words: str, command: Sequence[str] = SERVE, columns: int = 80, **env: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            [*command, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=child_environment(TERM="xterm", **env),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._written = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is closed with its last user
            while chunk := os.read(self._ours, 1 << 16):
                self._written += chunk

    @property
    def raw(self) -> str:
        """All that was written, colours and moves included."""
        return self._written.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        """What was written, without colours and moves."""
        return _ESCAPES.sub("", self.raw)

    def wait_for(self, text: str, timeout_s: float = 30) -> None:
        try:
            eventually(lambda: text in self.text, timeout_s)
        except AssertionError:
            raise AssertionError(f"{text!r} is not in {self.text!r}") from None

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self, timeout_s: float = 60) -> int:
        """Wait for its end; returns the status."""
        status = self.process.wait(timeout_s)
        self._thread.join(5)
        return status

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._thread.join(5)
        os.close(self._ours)
