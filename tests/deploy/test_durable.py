"""AGENTPACK_FSYNC: whether writes are made to survive a power cut."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fleet_agentpack.deploy.service import DeployService
from fleet_agentpack.deploy.workspace import Request
from tests.deploy.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.furnish()
    return lab


@pytest.mark.parametrize(("setting", "durable"), [("1", True), ("0", False), ("", False)])
def test_files_and_their_names_are_synced_when_asked_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, setting: str, durable: bool
) -> None:
    synced: set[str] = set()

    def fsync(descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        synced.add("directory" if stat.S_ISDIR(mode) else "file")

    monkeypatch.setattr(os, "fsync", fsync)
    service = DeployService(lab.home(AGENTPACK_FSYNC=setting))
    assert service.deploy(Request()).data.applied
    assert synced == ({"directory", "file"} if durable else set())
