"""A program that behaves like a coding agent without a person: no model, no account, no network.

Run as `python scripted.py ARGUMENTS…` with the task on standard input. The last line of the task
decides:  `sleep N …`, `fail …` (is_error), `crash N` (exit status), `write FILE TEXT`, `stubborn`
(ignores interrupts), `spawn` (leaves a child behind; `spawn stubborn` one that ignores them),
`sh COMMAND` (its output is the result), `spend A B` (reports these costs, then goes on),
`denied A B` (was not allowed to run them), `ask QUESTION` (as its last words), `choose QUESTION`
(with Claude Code's tool for that, which nobody answers), `report TEXT` (says it and goes on),
`babble N` (says as many things, and as many errors; after each it waits for a file `heard-NUMBER`),
`mute` (ends before it says anything), anything else is simply done. It prints JSON lines as Claude
Code does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CHILD = """
import os, pathlib, time
pathlib.Path("child.part").write_text(str(os.getpid()))
pathlib.Path("child.part").rename("child.pid")
time.sleep(60)
"""
STUBBORN = f"""
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
{CHILD}
"""


def say(**row: object) -> None:
    print(json.dumps(row), flush=True)


def main() -> int:
    arguments, prompt = sys.argv[1:], sys.stdin.read()
    task = prompt.strip().splitlines()[-1] if prompt.strip() else ""
    session = arguments[arguments.index("--session") + 1] if "--session" in arguments else "none"
    resumed = "--resume" in arguments
    session = arguments[arguments.index("--resume") + 1] if resumed else session
    if task == "mute":
        return 1
    say(type="init", session_id=session)
    say(type="heard", prompt=prompt, arguments=arguments, cwd=os.getcwd(), env=sorted(os.environ))
    words = task.split()
    if words[:1] == ["stubborn"]:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say(type="ready")
        time.sleep(60)
    if words[:1] == ["spawn"]:
        subprocess.Popen([sys.executable, "-c", STUBBORN if words[1:] else CHILD])
        time.sleep(60)
    if words[:1] == ["report"]:
        said = {"type": "text", "text": task[7:]}
        say(type="assistant", message={"content": [said]})
        time.sleep(60)
    if words[:1] == ["babble"]:
        for number in range(int(words[1])):
            print(f"error {number}.", file=sys.stderr, flush=True)
            said = {"type": "text", "text": f"I say {number}."}
            say(type="assistant", message={"content": [said]})
            while not Path(f"heard-{number}").exists():
                time.sleep(0.02)
    if words[:1] == ["sleep"]:
        time.sleep(float(words[1]))
    if words[:1] == ["spend"]:
        for cost in words[1:]:
            say(type="progress", total_cost_usd=float(cost))
            Path("spent.txt").write_text(cost)
        time.sleep(60)
    if words[:1] == ["write"]:
        Path(words[1]).write_text(" ".join(words[2:]))
    if words[:1] == ["crash"]:
        print("something broke", file=sys.stderr)
        return int(words[1])
    failed = words[:1] == ["fail"]
    text = "Not logged in · Please run /login" if failed else f"Did: {task}"
    if words[:1] == ["sh"]:
        shell = subprocess.run(task[3:], shell=True, capture_output=True, text=True)
        text = f"{shell.returncode}: {shell.stdout}{shell.stderr}"
    denied = words[1:] if words[:1] == ["denied"] else []
    refused = [{"tool_name": "Bash", "tool_input": {"command": one}} for one in denied]
    if words[:1] == ["choose"]:
        asked = {"questions": [{"question": task[7:], "options": []}]}
        refused = [{"tool_name": "AskUserQuestion", "tool_input": asked}]
    if words[:1] == ["ask"]:
        text = f"I looked at it. {task[4:]}"
    say(
        type="result",
        subtype="success",
        is_error=failed,
        result=text,
        permission_denials=refused,
        session_id=session,
        total_cost_usd=0.25,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
