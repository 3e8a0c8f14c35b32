"""The results of the suite as they are documented: `docs/enact-backends.json`."""

from __future__ import annotations

import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "docs" / "enact-backends.json"
# Names a directory into which each backend's results are written instead of being compared.
RECORDING = "PYTEST_ENACT_CONFORMANCE"

Results = dict[str, dict[str, str]]


def recorded() -> Results:
    """What the documentation says: for each backend, each case and what came of it."""
    found: Results = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def keep(backend: str, case: str, result: str) -> bool:
    """Keep a result where results are recorded; False where they are not."""
    folder = os.environ.get(RECORDING)
    if not folder:
        return False
    Path(folder, f"{backend}.{case}").write_text(result, encoding="utf-8")
    return True
