"""The table of the documentation is the one that the recorded results make."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from tests.enact.conformance.cases import CASES
from tests.enact.conformance.places import KINDS
from tests.enact.conformance.record import ROOT, recorded, written


@pytest.fixture
def module() -> ModuleType:
    """The program that writes the table."""
    spec = importlib.util.spec_from_file_location("backends", ROOT / "docs" / "enact_backends.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_made_of_the_results(module: ModuleType) -> None:
    page = (ROOT / "docs" / "enact.md").read_text(encoding="utf-8")
    assert module.filled(page, recorded()) == page, "run: python docs/enact_backends.py"
    assert module.table({"podman": {"own": "no longer"}}).count("no longer") == 1


def test_a_cell_that_no_run_has_made_says_so(module: ModuleType) -> None:
    content = written({"podman": {"own": "no", "private": "yes"}})
    assert recorded(content) == {"podman": {"own": "no", "private": "yes"}}
    forged = content.replace('"no"', '"yes"').replace('"private"', '"given"')
    assert recorded(forged) == {"podman": {}}
    expected = len(CASES)
    assert module.table(recorded(forged)).count("not run") == expected


def test_what_is_recorded_is_of_backends_that_there_are() -> None:
    assert set(recorded()) <= set(KINDS)
