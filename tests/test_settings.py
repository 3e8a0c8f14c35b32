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


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A home and a project in it."""
    project = tmp_path / "home" / "project"
    project.mkdir(parents=True)
    return project.parent, project


def test_the_project_is_the_one_named_else_the_working_directory(
    tmp_path: Path, places: tuple[Path, Path]
) -> None:
    home, project = places
    environ = {"HOME": str(home)}
    assert Settings.read(environ, project).project == project
    assert Settings.read(environ, tmp_path, {"project": str(project)}).project == project
    assert Settings.read(environ, home, {"project": "~/project"}).project == project
    assert Settings.read(environ, tmp_path, {"project": "home/project"}).project == project
    variable = {**environ, "FLEET_AGENTPACK_PROJECT": str(project)}
    assert Settings.read(variable, tmp_path).project == project
    assert Settings.read(variable, tmp_path, {"project": str(tmp_path)}).project == tmp_path


def test_root_home_and_what_cannot_be_looked_into_are_no_project(
    tmp_path: Path, places: tuple[Path, Path]
) -> None:
    home, project = places
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "file").touch()
    refused = {
        "/": "/ is the root directory",
        "/..": "/ is the root directory",
        "~": f"{home} is the home directory",
        f"{project}/..": f"{home} is the home directory",
        "link": f"{home} is the home directory",
        "none": f"{tmp_path}/none does not exist",
        "file": f"{tmp_path}/file is not a directory",
        "file/below": f"{tmp_path}/file/below is not a directory",
        "${workspaceFolder}": "${workspaceFolder} does not exist",
    }
    for given, reason in refused.items():
        settings = Settings.read({"HOME": str(home)}, tmp_path, {"project": given})
        assert settings.project is None
        assert settings.no_project == reason
        assert settings.place.sentence == (
            f"There is no project: {reason};"
            " start the server in a project, or name one with --project DIR."
        )


@pytest.mark.permissions
@pytest.mark.parametrize("mode", [0o000, 0o100, 0o400])
def test_a_closed_directory_is_no_project(tmp_path: Path, mode: int) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(mode)
    try:
        settings = Settings.read({"HOME": "/nowhere"}, closed)
    finally:
        closed.chmod(0o700)
    assert settings.project is None
    assert f"{closed} cannot be looked into" in settings.no_project


def test_what_is_served_comes_from_options_before_variables(tmp_path: Path) -> None:
    variables = {
        "FLEET_AGENTPACK_ONLY": "fleet",
        "FLEET_AGENTPACK_TOOLS": "plan, diff",
        "FLEET_AGENTPACK_WITHOUT": "status",
        "FLEET_AGENTPACK_PREFIX": "pack",
        "FLEET_AGENTPACK_NO_EXTRAS": "1",
        "FLEET_AGENTPACK_ASK": "risky",
    }
    settings = Settings.read(variables, tmp_path, {"prefix": "our-", "tools": "plan"})
    assert (settings.only, settings.tools, settings.without) == (("fleet",), ("plan",), ("status",))
    assert (settings.prefix, settings.extras, settings.ask) == ("our-", False, "risky")
    assert Settings.read(variables, tmp_path).prefix == "pack_"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"prefix": "a b"}, "'a b' cannot be a prefix: at most 24 letters, digits, _ and -"),
        ({"prefix": "x" * 25}, "cannot be a prefix"),
        ({"ask": "maybe"}, "choose from never, risky, always, require"),
        ({"no_extras": "maybe"}, "FLEET_AGENTPACK_NO_EXTRAS is 'maybe'; give 1 or 0"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.read({}, tmp_path, options)
    assert problem in str(caught.value)


def test_approval_and_limits_come_from_the_file(tmp_path: Path) -> None:
    settings = configured(tmp_path, '[approval]\nask = "always"\n[limits]\nresult_bytes = 65536\n')
    assert (settings.ask, settings.result_bytes) == ("always", 65536)
    assert (configured(tmp_path, "").ask, configured(tmp_path, "").result_bytes) == (
        "never",
        32768,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[approval]\nask = "no"', 'approval.ask must be "never", "risky", "always" or "require"'),
        (
            "[limits]\nresult_bytes = 10",
            "limits.result_bytes must be a number of bytes from 4,096 to 10,000,000",
        ),
    ],
)
def test_a_bad_bound_stops_the_start_with_file_and_key(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        configured(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'config.toml'}: {problem}")
    path = tmp_path / "config.toml"
    settings = Settings.read({"FLEET_AGENTPACK_CONFIG": str(path)}, tmp_path, lenient=True)
    assert settings.warnings == (str(caught.value),)
