"""A terminal program that AgentAPI drives in place of Claude Code: no model, no account.

Enter starts the work: `work N …` takes N seconds, `fail …` fails, anything else takes three
seconds. ESC interrupts it. Each change of state goes to the file that AGENT_STATES names, a JSON
object a line, for the lab to report to Coder.
"""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import time
import tty
from pathlib import Path

PASTE = ("\x1b[200~", "\x1b[201~")
TICK_S = 0.1
USUAL_S = 3.0


def tell(state: str, message: str) -> None:
    """Note a change of state."""
    with Path(os.environ["AGENT_STATES"]).open("a") as states:
        states.write(json.dumps({"state": state, "message": message[:150]}) + "\n")


def show(text: str) -> None:
    """Write to the terminal."""
    sys.stdout.write(text)
    sys.stdout.flush()


def interrupted() -> bool:
    """Whether ESC was pressed within a tick."""
    ready, _, _ = select.select([0], [], [], TICK_S)
    return bool(ready) and b"\x1b" in os.read(0, 4096)


def duration(task: str) -> float:
    """How long a task takes."""
    words = task.split()
    return float(words[1]) if words[0] == "work" and len(words) > 1 else USUAL_S


def work(task: str) -> None:
    """Do a task, more or less."""
    tell("working", task)
    end, ticks = time.monotonic() + duration(task), 0
    while time.monotonic() < end:
        if interrupted():
            show("\r\n\r\nInterrupted by user\r\n")
            tell("idle", f"Interrupted: {task}")
            return
        ticks += 1
        show(f"\r\x1b[Kworking {ticks}")
    if task.startswith("fail"):
        show("\r\x1b[KError: the work could not be done\r\n")
        tell("failure", f"Failed: {task}")
    else:
        show(f"\r\x1b[KDone: {task[:60]}\r\n")
        tell("complete", f"Done: {task}")


def listen() -> None:
    """Read lines and do what they say until the input ends."""
    line = ""
    while data := os.read(0, 4096).decode(errors="replace"):
        for mark in (*PASTE, "\x1b"):
            data = data.replace(mark, "")
        for char in data:
            if char in "\r\n":
                show("\r\n")
                if line.strip():
                    work(line.strip())
                line = ""
                show("\r\n> ")
            elif char in "\x7f\b":
                line = line[:-1]
                show("\b \b")
            elif char.isprintable():
                line += char
                show(char)


def main() -> None:
    """Run in raw mode, as programs with a screen of their own do."""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        show("Scripted agent, ready.\r\n\r\n> ")
        tell("idle", "Ready")
        listen()
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


if __name__ == "__main__":
    main()
