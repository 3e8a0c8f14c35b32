"""The rows of `doctor --all`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_agentpack.kit.checks import Check, directory, failure, program
from tests.kit.test_actions import RoomError


def test_the_first_program_that_is_installed_is_named_with_its_version(tmp_path: Path) -> None:
    tool = tmp_path / "second"
    tool.write_text("#!/bin/sh\necho second 1.2\necho more\n")
    tool.chmod(0o755)
    found = program("enact", ["first", "second"], str(tmp_path), "it runs tools", "install first")
    assert found == Check("enact", "second", "ok", "second 1.2")


def test_a_missing_program_is_a_note_with_advice(tmp_path: Path) -> None:
    found = program("enact", ["a", "b"], str(tmp_path), "no images", "install a")
    assert found == Check("enact", "a or b", "note", "not installed; no images", "install a")


def test_a_directory_that_can_be_created_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep"
    assert directory("package", "state", path) == Check("package", "state", "ok", str(path))
    assert not path.exists()


def test_a_file_in_the_way_of_a_directory_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = directory("package", "state", tmp_path / "file" / "below")
    assert (found.state, found.advice) == ("problem", f"move {tmp_path / 'file'} away")


@pytest.mark.permissions
def test_a_directory_without_write_permission_is_a_problem(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    found = directory("package", "state", tmp_path / "x")
    tmp_path.chmod(0o755)
    assert found.state == "problem"


def test_a_failure_carries_the_errors_own_advice() -> None:
    error = RoomError("broken", actions=["mend it"])
    assert failure("forge", "files", error, "?") == Check(
        "forge", "files", "problem", "broken", "mend it"
    )
    assert failure("forge", "files", RoomError("broken"), "look", "note").advice == "look"
