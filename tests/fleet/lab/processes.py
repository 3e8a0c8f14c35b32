"""Ports and child processes of the lab."""

from __future__ import annotations

import os
import signal
import socket
import subprocess


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end(child: subprocess.Popen[bytes], wait_s: float = 5) -> None:
    """End a child and its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        try:
            child.wait(wait_s)
            break
        except subprocess.TimeoutExpired:
            continue
    child.wait()
