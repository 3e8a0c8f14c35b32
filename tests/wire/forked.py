"""Runs servers as forks of a process that has imported everything: hundreds of starts in a minute.

`python -m tests.wire.forked` reads a `Run` a line and writes its `Outcome`, both as JSON.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.rig import ROOT, child_environment

PAUSE_S = 0.03
TIMEOUT_S = 60


class Forks:
    """A process that runs servers."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.wire.forked"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(HOME=str(home)),
            cwd=home,
        )

    def run(
        self,
        chunks: Sequence[bytes],
        argv: Sequence[str] = (),
        *,
        front: bool,
        closed: Sequence[int] = (),
        deaf: bool = False,
    ) -> dict[str, Any]:
        """What a server says to these chunks: its lines in order of their text, and its status."""
        sent = [base64.b64encode(chunk).decode() for chunk in chunks]
        run = {"chunks": sent, "argv": [*argv], "front": front, "closed": [*closed], "deaf": deaf}
        self._process.stdin.write(json.dumps(run).encode() + b"\n")
        self._process.stdin.flush()
        outcome: dict[str, Any] = json.loads(self._process.stdout.readline())
        return outcome

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)
        self._process.stdout.close()


def _outcome(run: dict[str, Any]) -> dict[str, Any]:
    (their_in, our_out), (our_in, their_out), (errors_in, errors_out) = (
        os.pipe(),
        os.pipe(),
        os.pipe(),
    )
    child = os.fork()
    if not child:
        for ours in (our_out, our_in, errors_in):
            os.close(ours)
        _serve(run, their_in, their_out, errors_out)
    for theirs in (their_in, their_out, errors_out):
        os.close(theirs)
    if run["deaf"]:
        os.close(our_in)
    found: dict[str, bytes] = {"out": b"", "err": b""}
    threads = [
        threading.Thread(target=_collect, args=(descriptor, found, name))
        for descriptor, name in ((our_in, "out"), (errors_in, "err"))
        if not (run["deaf"] and name == "out")
    ]
    for thread in threads:
        thread.start()
    _feed(our_out, run)
    for thread in threads:
        thread.join()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lines = sorted(line.decode() for line in found["out"].split(b"\n"))
    return {"status": status, "lines": lines, "errors": found["err"].decode()}


def _feed(descriptor: int, run: dict[str, Any]) -> None:
    try:
        for number, chunk in enumerate(run["chunks"]):
            if number:
                time.sleep(PAUSE_S)
            os.write(descriptor, base64.b64decode(chunk))
    except BrokenPipeError:
        pass
    finally:
        os.close(descriptor)


def _collect(descriptor: int, found: dict[str, bytes], name: str) -> None:
    with open(descriptor, "rb") as stream:
        found[name] = stream.read()


def _serve(run: dict[str, Any], reading: int, writing: int, errors: int) -> None:
    """Become a server, with all that its start does but the imports."""
    from fleet_agentpack import __main__
    from fleet_agentpack.wire import stdio

    stdio.DRAIN_TIMEOUT_S = TIMEOUT_S  # how busy the machine is must make no difference
    for descriptor, number in ((reading, 0), (writing, 1), (errors, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for number in run["closed"]:
        os.close(number)
    sys.argv = ["fleet-agentpack", *run["argv"]]
    os.environ["FLEET_AGENTPACK_FRONT"] = "on" if run["front"] else "off"
    status = 1
    try:
        __main__.main()
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        os._exit(status)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from fleet_agentpack import cli, domains
    from fleet_agentpack.wire import front, http, server, stdio

    assert cli and front and http and server and stdio
    domains.select()
    # What is compared is what is said, not how much of it a busy machine manages in time.
    stdio.DRAIN_TIMEOUT_S = stdio.EXIT_GRACE_S = TIMEOUT_S
    for line in sys.stdin:
        print(json.dumps(_outcome(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
