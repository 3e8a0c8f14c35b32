"""Runs the conformance suite against every backend that works here, and writes its table.

python docs/enact_backends.py

What a backend did when it last ran stays in `enact-backends.json`, and so in the table; a case that
has changed since, or was not tried there, is `not run`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.enact.conformance.cases import CASES  # noqa: E402
from tests.enact.conformance.places import KINDS  # noqa: E402
from tests.enact.conformance.record import (  # noqa: E402
    RECORD,
    RECORDING,
    Results,
    recorded,
    written,
)

PAGE = HERE / "enact.md"
NOT_RUN = "not run"


def table(results: Results) -> str:
    """A row for each promise, a column for each backend that has run."""
    names = [name for name in KINDS if name in results]
    rows = [f"| | | {' | '.join(f'`{name}`' for name in names)} |", "|---" * (len(names) + 2) + "|"]
    area = ""
    for case in CASES.values():
        cells = [
            results[name].get(case.name, NOT_RUN)
            if KINDS[name].has_images or not case.needs_image
            else ""
            for name in names
        ]
        first = case.area if case.area != area else ""
        rows.append(f"| {first} | {case.promise} | {' | '.join(cells)} |")
        area = case.area
    return "\n".join(rows)


def filled(text: str, results: Results) -> str:
    """The page with its table made anew."""
    block = f"<!-- backends -->\n{table(results)}\n<!-- /backends -->"
    return re.sub(r"<!-- backends -->.*?<!-- /backends -->", lambda _: block, text, flags=re.DOTALL)


def run() -> Results:
    """The results of every backend that works here."""
    suite = HERE.parent / "tests" / "enact" / "conformance" / "test_conformance.py"
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "pytest", "-q", "-m", "", str(suite)]
        done = subprocess.run(argv, env={**os.environ, RECORDING: folder}, cwd=HERE.parent)
        if done.returncode:
            sys.exit("the suite failed; nothing was written")
        results: Results = {}
        for file in sorted(Path(folder).iterdir()):
            backend, _, case = file.name.partition(".")
            results.setdefault(backend, {})[case] = file.read_text(encoding="utf-8")
    return results


if __name__ == "__main__":
    found = recorded() if RECORD.exists() else {}
    for backend, cells in run().items():
        found[backend] = {**found.get(backend, {}), **cells}
    RECORD.write_text(written(found), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
