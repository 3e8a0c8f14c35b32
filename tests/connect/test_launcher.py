"""The registered command works from anywhere, and tomorrow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet_agentpack.connect.launcher import Running, fitting, launch_words

UVX = "/usr/local/bin/uvx"


def place(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def running(tmp_path: Path, **fields: object) -> Running:
    site = tmp_path / "venv/lib/site-packages"
    values = {"argv0": "-c", "executable": str(tmp_path / "venv/bin/python"), "package": site}
    return Running(**{**values, **fields})  # type: ignore[arg-type]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return place(tmp_path / "clone/pyproject.toml", 'name = "fleet-agentpack"\n').parent


def test_an_installed_script_goes_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = place(tmp_path / "bin/fleet-agentpack")
    monkeypatch.chdir(tmp_path / "bin")
    assert launch_words(running(tmp_path, argv0="./fleet-agentpack", uvx=UVX)) == [str(script)]


def test_a_module_run_goes_by_the_script_beside_the_interpreter(tmp_path: Path) -> None:
    script = place(tmp_path / "venv/bin/fleet-agentpack")
    argv0 = str(tmp_path / "venv/lib/site-packages/fleet_agentpack/__main__.py")
    assert launch_words(running(tmp_path, argv0=argv0)) == [str(script)]


def test_without_any_script_the_interpreter_is_named(tmp_path: Path) -> None:
    words = [str(tmp_path / "venv/bin/python"), "-P", "-m", "fleet_agentpack"]
    assert launch_words(running(tmp_path)) == words


def test_a_checkout_without_a_script_goes_by_uvx(tmp_path: Path, checkout: Path) -> None:
    words = [UVX, "--from", str(checkout), "fleet-agentpack"]
    assert launch_words(running(tmp_path, package=checkout, uvx=UVX)) == words


def test_a_checkout_goes_by_its_script_which_needs_no_network(
    tmp_path: Path, checkout: Path
) -> None:
    script = place(tmp_path / "venv/bin/fleet-agentpack")
    for uvx in (None, UVX):
        assert launch_words(running(tmp_path, package=checkout, uvx=uvx)) == [str(script)]


def test_a_script_that_uvx_made_for_one_run_is_not_registered(
    tmp_path: Path, checkout: Path
) -> None:
    script = place(tmp_path / "cache/uv/archive-v0/x1/bin/fleet-agentpack")
    once = running(tmp_path, argv0=str(script), uvx=UVX)
    assert launch_words(once) == [UVX, "fleet-agentpack"]
    origin = json.dumps({"url": checkout.as_uri(), "dir_info": {}})
    from_clone = running(tmp_path, argv0=str(script), uvx=UVX, direct_url=origin)
    assert launch_words(from_clone) == [UVX, "--from", str(checkout), "fleet-agentpack"]


@pytest.mark.parametrize("origin", ["", "[]", "{", '{"url": "https://example.test/x"}'])
def test_an_odd_note_of_the_installer_is_no_checkout(tmp_path: Path, origin: str) -> None:
    script = place(tmp_path / "cache/uv/archive-v0/x1/bin/fleet-agentpack")
    words = launch_words(running(tmp_path, argv0=str(script), uvx=UVX, direct_url=origin))
    assert words == [UVX, "fleet-agentpack"]


def test_a_limit_leaves_the_largest_domain_out() -> None:
    counts = {"agentpack": 6, "fleet": 9, "enact": 6, "forge": 18, "climpt": 4}
    assert fitting(counts, 40) == ("agentpack", "fleet", "enact", "climpt")
    assert fitting(counts, 43) == fitting(counts, None) == ()
    assert fitting(counts, 20) == ("agentpack", "enact", "climpt")
