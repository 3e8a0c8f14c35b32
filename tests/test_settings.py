"""Settings: tables of the configuration file, and the file that holds a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_agentpack.config import ConfigFile, FleetTable, ProjectTable
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.kit.shapes import misfits
from fleet_agentpack.settings import Settings, SettingsError, read_token_file


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o644, 0o666])
def test_a_token_file_that_group_or_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    path.chmod(mode)
    with pytest.raises(SettingsError, match="chmod 600") as caught:
        read_token_file(path)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_token_file_of_its_owner_alone_is_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text(" s3cret \n")
    path.chmod(mode)
    assert read_token_file(path) == Secret("s3cret")


@pytest.mark.parametrize(("content", "reason"), [(b"", "is empty"), (b"\xff", "cannot read")])
def test_a_token_file_without_a_token_is_refused(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=reason):
        read_token_file(path)
    with pytest.raises(SettingsError, match="cannot read"):
        read_token_file(tmp_path / "none")


def configured(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return Settings.read({"FLEET_AGENTPACK_CONFIG": str(path)}, tmp_path)


def test_a_table_is_read_in_its_shape(tmp_path: Path) -> None:
    settings = configured(tmp_path, '[fleet.projects.web]\npath = "/srv/web"\n')
    table = settings.read_table(FleetTable, "fleet")
    assert table == FleetTable(projects={"web": ProjectTable("/srv/web")})
    assert settings.warnings == ()


def test_a_table_that_is_not_there_has_its_defaults(tmp_path: Path) -> None:
    assert configured(tmp_path, "").read_table(FleetTable, "fleet") == FleetTable()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fleet = 3", "[fleet] must be a table"),
        ("[fleet.coder.projects]\nweb = 5", "fleet.coder.projects.web must be text"),
        ("[fleet]\ncreate_timeout_s = 0", "fleet.create_timeout_s must be a number of seconds"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_file_and_key(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        configured(tmp_path, text).read_table(FleetTable, "fleet")
    assert str(caught.value).startswith(f"{tmp_path / 'config.toml'}: {problem}")


def test_an_empty_file_fits_the_shape_of_the_whole() -> None:
    assert misfits(ConfigFile, {}) == []
