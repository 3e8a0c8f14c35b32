"""Paths from outside stay where they belong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.kit.paths import (
    EscapeError,
    NoBaseError,
    PathArguments,
    check_relative,
    confined,
    expand_home,
    is_inside,
)

needs_posix = pytest.mark.skipif(os.name == "nt", reason="links of POSIX")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("~", "/home/ada"),
        ("~/", "/home/ada"),
        ("~/notes/a.md", "/home/ada/notes/a.md"),
        ("~//etc/passwd", "/home/ada/etc/passwd"),
        ("~bob/notes", "~bob/notes"),
        ("notes/~/a", "notes/~/a"),
        ("/abs", "/abs"),
        ("", "."),
    ],
)
def test_only_a_leading_tilde_of_ones_own_is_the_home(text: str, expanded: str) -> None:
    assert expand_home(text, Path("/home/ada")) == Path(expanded)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/", "/etc/passwd", "a/../b", "a//b", "a/", "./a", "a\\b", "a\x00b", "../a"],
)
def test_other_than_plain_relative_paths_are_refused(name: str) -> None:
    with pytest.raises(EscapeError):
        check_relative(name)


@given(st.text(st.sampled_from("ab./\\~ \x00:ü"), max_size=12))
def test_an_accepted_path_stays_below_its_root(name: str) -> None:
    root = Path("/somewhere/deep")
    try:
        path = Path(os.path.normpath(root / check_relative(name)))
    except EscapeError:
        return
    assert path != root and path.is_relative_to(root)


@needs_posix
def test_links_do_not_lead_out_of_the_root(work: Path) -> None:
    root = work / "root"
    (root / "inner").mkdir(parents=True)
    (work / "outside").mkdir()
    (root / "out").symlink_to(work / "outside")
    (root / "in").symlink_to("inner")
    (root / "circle").symlink_to("circle")
    assert confined(root, "in/file") == root / "in/file"
    assert confined(root, "not/there/yet") == root / "not/there/yet"
    for name in ("out", "out/file", "circle/file"):
        with pytest.raises(EscapeError):
            confined(root, name)


@needs_posix
def test_a_root_that_is_a_link_itself_is_fine(work: Path) -> None:
    (work / "real").mkdir()
    (work / "link").symlink_to("real")
    assert confined(work / "link", "a") == work / "link/a"


@needs_posix
def test_a_path_is_inside_when_what_it_leads_to_is(work: Path) -> None:
    (work / "a/deep").mkdir(parents=True)
    (work / "ab").mkdir()
    (work / "a/out").symlink_to(work / "ab")
    (work / "into").symlink_to(work / "a/deep")
    assert is_inside(work / "a", work / "a")
    assert is_inside(work / "into/new", work / "a")
    assert is_inside(f"{work}/ab", work / "a", work / "ab")
    assert not is_inside(work / "ab", work / "a")
    assert not is_inside(work / "a/out", work / "a")
    assert not is_inside(work / "a/../ab", work / "a")


def test_paths_begin_with_the_home_or_a_known_variable_and_nothing_else(tmp_path: Path) -> None:
    environ = {"CODEX_HOME": "~/codex", "FOO": "/foo", "XDG_CACHE_HOME": "/cache"}
    paths = PathArguments(tmp_path, Path("/home/me"), environ)
    for text, expected in {
        "~": "/home/me",
        "~/a b": "/home/me/a b",
        "$HOME": "/home/me",
        "${HOME}/x": "/home/me/x",
        "$CODEX_HOME/x": "/home/me/codex/x",
        "$AGENTPACK_HOME/repo": "/home/me/.agentpack/repo",
        "${XDG_CACHE_HOME}//x": "/cache/x",
        "/a/$HOME": "/a/$HOME",
        "x": f"{tmp_path}/x",
        "$FOO/x": f"{tmp_path}/$FOO/x",
        "$HOMES/x": f"{tmp_path}/$HOMES/x",
        "${HOME/x": f"{tmp_path}/${{HOME/x",
        "~you/x": f"{tmp_path}/~you/x",
    }.items():
        assert str(paths.resolve(text)) == expected, text
    assert paths.hint("$FOO/x").startswith("; only ~ and $HOME, $AGENTPACK_HOME")
    assert paths.hint("/a/$HOME").endswith("are replaced, and only at the start")
    assert paths.hint("$HOME/x") == paths.hint("/a/b") == ""


def test_a_relative_path_needs_somewhere_to_start() -> None:
    paths = PathArguments(None, Path("/home/me"), {}, "There is no project.")
    assert str(paths.resolve("~/x")) == "/home/me/x"
    with pytest.raises(NoBaseError) as caught:
        paths.resolve("x")
    assert str(caught.value).startswith("'x' is a relative path. There is no project. Or give")
