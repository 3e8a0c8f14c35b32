"""The table of the documentation is the one that the recorded results make."""

from __future__ import annotations

import importlib.util

from tests.enact.conformance.cases import CASES
from tests.enact.conformance.places import KINDS
from tests.enact.conformance.record import ROOT, recorded


def test_the_table_is_made_of_the_results() -> None:
    spec = importlib.util.spec_from_file_location("backends", ROOT / "docs" / "enact_backends.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "enact.md").read_text(encoding="utf-8")
    assert module.filled(page, recorded()) == page, "run: python docs/enact_backends.py"
    assert module.table({"podman": {"own": "no longer"}}).count("no longer") == 1


def test_every_promise_was_tried_on_every_backend_that_has_run() -> None:
    for backend, results in recorded().items():
        images = KINDS[backend].has_images
        expected = {name for name, case in CASES.items() if images or not case.needs_image}
        assert set(results) == expected, f"{backend}: run: python docs/enact_backends.py"
