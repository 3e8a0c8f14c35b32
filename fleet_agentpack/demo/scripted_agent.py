"""A coding agent that needs no account: it does what a line of its task says, and tells so in JSON.

`write FILE: TEXT` writes a file in its directory; anything else it only thinks about.
"""

import json
import re
import sys
import time
from pathlib import Path


def main() -> int:
    """Read a task from standard input, do it, print the result as one JSON object."""
    task = sys.stdin.read()
    found = re.search(r"^write ([\w.-]+): (.+)$", task, re.MULTILINE)
    time.sleep(0.3)
    if found:
        Path(found[1]).write_text(found[2] + "\n", encoding="utf-8")
        said = f"Wrote {found[1]}."
    else:
        said = "Thought about it."
    told = {"type": "result", "result": said, "is_error": False, "session_id": "demo"}
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
