"""Runs one task detached from the server. A script of its own: standard library only.

It is started as `python -I -S runner.py FOLDER`, leaves its parent, runs the program and records
how it ended. It holds a lock on FOLDER/lock, and so does the program: when the lock is free, both
are gone, whatever happened to the server.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    """Start the task, report that on standard output, and wait for its end."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    launch = json.loads((folder / "launch.json").read_bytes())
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        child = start(folder, launch, lock)
    except OSError as error:
        write(folder / "outcome.json", {"status": None, "error": str(error), "at": time.time()})
        os.write(1, str(error).encode())
        return
    write(folder / "process.json", {"pid": child.pid, "at": time.time()})
    os.write(1, b"started")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    status = child.wait()
    write(folder / "outcome.json", {"status": status, "at": time.time()})


def start(folder: Path, launch: dict[str, Any], lock: int) -> "subprocess.Popen[bytes]":
    """Start the program in its own process group, with its output in files."""
    with (
        (folder / "prompt").open("rb") as prompt,
        (folder / "output").open("ab") as output,
        (folder / "errors").open("ab") as errors,
    ):
        return subprocess.Popen(
            launch["command"],
            cwd=launch["directory"],
            stdin=prompt,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            pass_fds=(lock,),
        )


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a file atomically."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
