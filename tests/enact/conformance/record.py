"""The results of the suite as they are documented: `docs/enact-backends.json`.

Each has a seal of what was tried and what came of it: one that was written by hand, or whose case
is another one now, has none that fits, and counts as not run.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from pathlib import Path

from tests.enact.conformance.cases import CASES

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "docs" / "enact-backends.json"
# Names a directory into which each backend's results are written instead of being compared.
RECORDING = "PYTEST_ENACT_CONFORMANCE"

Results = dict[str, dict[str, str]]


def recorded(content: str | None = None) -> Results:
    """What the documentation says: for each backend, each case and what came of it."""
    text = RECORD.read_text(encoding="utf-8") if content is None else content
    return {
        backend: {
            case: cell[0]
            for case, cell in cells.items()
            if isinstance(cell, list) and cell[1:] == [sealed(backend, case, cell[0])]
        }
        for backend, cells in json.loads(text).items()
    }


def written(results: Results) -> str:
    """The content of the record."""
    cells = {
        backend: {case: [result, sealed(backend, case, result)] for case, result in each.items()}
        for backend, each in results.items()
    }
    return json.dumps(cells, indent=1, sort_keys=True) + "\n"


def sealed(backend: str, case: str, result: str) -> str:
    """The seal of a result; empty where there is no such case."""
    if case not in CASES:
        return ""
    text = "\0".join((backend, case, result, inspect.getsource(CASES[case].check)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keep(backend: str, case: str, result: str) -> bool:
    """Keep a result where results are recorded; False where they are not."""
    folder = os.environ.get(RECORDING)
    if not folder:
        return False
    Path(folder, f"{backend}.{case}").write_text(result, encoding="utf-8")
    return True
