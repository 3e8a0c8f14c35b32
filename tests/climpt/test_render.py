"""Prompts are rendered from the files that the original uses, by its rules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.climpt import patterns
from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.render import fill
from tests.climpt.project import ECHO, ECHO_NAMES, service, write, write_echo, write_registry

PROMPTS = ".agent/climpt/prompts/test/echo/input"
COMMAND = "climpt-test echo input"


async def render(work: Path, home: Path, **options: Any) -> str:
    return (await service(work, home).execute(*ECHO_NAMES, options)).text


async def refusal(work: Path, home: Path, **options: Any) -> dict[str, Any]:
    with pytest.raises(ClimptError) as caught:
        await render(work, home, **options)
    payload = caught.value.payload()
    assert payload["error"] == "Execution failed"
    assert payload["command"] == COMMAND
    return payload


# The template


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{a} {{a}} ${a}", "1 1 1\n"),
        ("{ a } {{\ta }} ${ a }", "1 1 1\n"),
        ("{{{a}}} ${{a}} {{a}", "{1} $1 {1\n"),
        ("{unknown} {{unknown}} ${unknown} {}", "{unknown} {{unknown}} ${unknown} {}\n"),
        ("{uv-b_c} {b_c} {uv-}", "2 {b_c} {uv-}\n"),
        ('{"a": 1} {a b} {a.b}', '{"a": 1} {a b} {a.b}\n'),
        ("---\nc1: {a}\n---\n\n# {a}\n", "# 1\n"),
        ("no header\n---\nkept\n---\n", "no header\n---\nkept\n---\n"),
        ("\n\n  body", "body\n"),
        ("", "\n"),
    ],
)
def test_variables_are_filled_in_and_the_header_is_removed(template: str, prompt: str) -> None:
    assert fill(template, {"a": "1", "uv-b_c": "2"}).text == prompt


def test_a_value_is_never_a_template_or_a_header() -> None:
    hostile = {"a": "{b} ${b} {{b}}", "b": "secret", "c": "---\nx: 1\n---\n"}
    assert fill("{{a}} ${a} {a}", hostile).text == " ".join([hostile["a"]] * 3) + "\n"
    assert fill("{c}rest", hostile).text == "---\nx: 1\n---\nrest\n"


@given(st.text(max_size=60), st.dictionaries(st.sampled_from(["a", "uv-b"]), st.text(max_size=9)))
def test_any_template_can_be_filled(template: str, variables: dict[str, str]) -> None:
    prompt = fill(template, variables).text
    assert prompt.endswith("\n")
    if "{" not in template and "---" not in template:
        assert prompt.rstrip("\n") == template.lstrip().rstrip("\n")


def test_variables_without_a_value_are_named_once() -> None:
    template = "{uv-a} {{uv-a}} ${uv-b} {input_text} {other} {uv-c}"
    assert fill(template, {"uv-c": "{uv-d}"}).unfilled == ("uv-a", "uv-b", "input_text")


async def test_an_empty_template_is_an_error(work: Path, home: Path) -> None:
    for empty in ("", " \n", "---\ntitle: x\n---\n\n"):
        write_echo(work, empty)
        error = await refusal(work, home)
        assert error["stderr"] == f"Template is empty: {PROMPTS}/f_default.md"
        assert error["hint"] == "write the prompt below its header"


# Which file


async def test_edition_and_adaptation_choose_the_file(work: Path, home: Path) -> None:
    for name in ("default", "default_short", "json", "json_short"):
        write_echo(work, name, name=f"f_{name}.md")
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "default"),
        ({"edition": "default"}, "default"),
        ({"adaptation": "short"}, "default_short"),
        ({"edition": "json"}, "json"),
        ({"edition": "json", "adaptation": "short"}, "json_short"),
        ({"edition": "json", "adaptation": "long"}, "json"),
        ({"adaptation": "default"}, "default"),
    ]
    for options, expected in cases:
        assert await render(work, home, **options) == f"{expected}\n"


async def test_an_unknown_edition_does_not_fall_back_and_names_what_is_there(
    work: Path, home: Path
) -> None:
    write_echo(work, "x")
    error = await refusal(work, home, edition="yaml", adaptation="short")
    assert error["stderr"] == f"Template not found: tried f_yaml_short.md, f_yaml.md in {PROMPTS}"
    assert error["hint"] == "available: f_default.md"


async def test_missing_folders_are_named_from_the_top(work: Path, home: Path) -> None:
    write_echo(work, "x")
    (work / PROMPTS / "f_default.md").unlink()
    assert (await refusal(work, home))["hint"] == "the folder has no template"
    for gone in (PROMPTS, os.path.dirname(PROMPTS), os.path.dirname(os.path.dirname(PROMPTS))):
        (work / gone).rmdir()
        error = await refusal(work, home)
        assert error["stderr"] == f"Prompt directory not found: {gone}"
        assert error["hint"] == f"create {PROMPTS}/f_default.md"


async def test_another_agent_has_its_own_profile(work: Path, home: Path) -> None:
    write_registry(work, [{"c1": "dev", "c2": "start", "c3": "issue"}], "iterator")
    write(
        work,
        ".agent/climpt/config/iterator-dev-app.yml",
        "working_dir: .agent/iterator\napp_prompt:\n  base_dir: prompts/dev\n",
    )
    write(work, ".agent/iterator/prompts/dev/start/issue/f_default.md", "Start {uv-number}")
    prompt = await service(work, home).execute(
        "iterator", "dev", "start", "issue", {"uv": {"number": 7}}
    )
    assert prompt.text == "Start 7\n"


async def test_a_tree_in_the_home_serves_every_project(work: Path, home: Path) -> None:
    write_echo(home, "from {base_prompt_dir}")
    assert await render(work, home) == f"from {(home / PROMPTS).resolve()}\n"


# Variables


async def test_the_originals_variables_are_there(work: Path, home: Path) -> None:
    template = "{input_text}|{input_text_file}|{destination_path}|{uv-x}|{schema_file}"
    write_echo(work, template)
    named = template.replace("{schema_file}", "schema/test/echo/input/f_input.json")
    assert await render(work, home) == f"{named}\n"
    schema = write(work, ".agent/climpt/schema/test/echo/input/base.schema.md", "x")
    prompt = await render(
        work,
        home,
        stdin="  two\nlines \n",
        file="docs/in.md",
        destination="out/a.md",
        **{"uv-x": "y"},
    )
    out = (work / ".agent/climpt/out/a.md").resolve()
    assert prompt == f"two\nlines|{work.resolve() / 'docs/in.md'}|{out}|y|{schema.resolve()}\n"
    assert not out.parent.exists()


async def test_a_dash_is_no_file(work: Path, home: Path) -> None:
    write_echo(work, "{input_text_file}")
    assert await render(work, home, file="-") == "{input_text_file}\n"


async def test_the_destinations_prefix_is_put_before_it_as_it_stands(
    work: Path, home: Path
) -> None:
    base = (work / ".agent/climpt").resolve()
    for prefix, path in (("output/git/", "output/git/a.md"), ("draft-", "draft-a.md")):
        write_echo(
            work, "{destination_path}", user=f"options: {{destination: {{prefix: {prefix}}}}}"
        )
        assert await render(work, home, destination="a.md") == f"{base / path}\n"
        assert await render(work, home) == f"{base / prefix}\n"


# The profile


async def test_without_a_profile_the_missing_file_is_named(work: Path, home: Path) -> None:
    write_registry(work, [ECHO])
    error = await refusal(work, home)
    assert error["stderr"] == "Configuration not found: .agent/climpt/config/test-app.yml"
    assert "working_dir" in error["hint"]


async def test_patterns_are_checked_each_on_its_own(work: Path, home: Path) -> None:
    user = "params: {two: {directiveType: {pattern: '^(echo|run)$'}, layerType: {pattern: '%s'}}}"
    write_echo(work, "x", user=user % "^(input)$")
    assert await render(work, home) == "x\n"
    write_echo(work, "x", user=user % "^(other)$")
    error = await refusal(work, home)
    assert error["stderr"] == "Invalid layer type. Must match pattern: ^(other)$"
    assert error["hint"].startswith("add input to params.two.layerType.pattern")
    write_echo(work, "x", user=user.replace("echo", "no") % "^(input)$")
    assert (await refusal(work, home))["stderr"].startswith("Invalid directive type.")
    write_echo(work, "x", user=user % "(")
    assert "is not a regular expression" in (await refusal(work, home))["stderr"]
    for pattern in ("^[a-z]+(-[a-z0-9]+)*$", "^(?<layer>input)$", r"^(?<n>[in])\w+(?!\k<n>).$"):
        write_echo(work, "x", user=user % pattern)
        assert await render(work, home) == "x\n"


async def test_a_pattern_that_would_take_for_ever_is_stopped(
    work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "TIMEOUT_S", 0.5)
    name = "a" * 60
    user = "params: {two: {directiveType: {pattern: '%s'}}}"
    for pattern in ("(a|a)*b", "(a|a)(a|a)" * 20 + "b", "a*" * 20 + "b", "(a+)+$b"):
        write_echo(work, "x", user=user % pattern)
        write_registry(work, [{**ECHO, "c2": name}])
        request = service(work, home).execute("climpt", "test", name, "input")
        with pytest.raises(ClimptError, match="takes too long"):
            await request


async def test_the_users_values_lie_over_the_apps(work: Path, home: Path) -> None:
    write_echo(work, "app", user="app_prompt: {base_dir: mine}\n")
    write(work, ".agent/climpt/mine/echo/input/f_default.md", "mine")
    assert await render(work, home) == "mine\n"


@pytest.mark.parametrize(
    ("app", "complaint"),
    [
        ("working_dir: [", "test-app.yml: "),
        ("a: 1\na: 2", "duplicate key 'a' (line 2)"),
        ("- x", "must be a mapping"),
        ("", "working_dir in "),
        ("working_dir: 5\napp_prompt: {base_dir: p}", "must be text"),
        ("working_dir: .\napp_prompt: p", "app_prompt.base_dir in "),
        ("working_dir: .\napp_prompt: {base_dir: /etc}", "must be a relative path"),
        ("working_dir: .\napp_prompt: {base_dir: ../..}", "leads out"),
        ("working_dir: ../..\napp_prompt: {base_dir: p}", "leads out"),
        ("working_dir: 'a\\0'\napp_prompt: {base_dir: p}", "not found"),
        ('working_dir: "a\\0"\napp_prompt: {base_dir: p}', "not a usable path"),
    ],
)
async def test_a_broken_profile_is_named(work: Path, home: Path, app: str, complaint: str) -> None:
    write_echo(work, "x")
    write(work, ".agent/climpt/config/test-app.yml", app)
    assert complaint in (await refusal(work, home))["stderr"]


# Safety


@pytest.mark.parametrize(
    ("options", "category", "option"),
    [
        ({"uv-a": "x; rm -rf"}, "shellInjection", "uv-a"),
        ({"uv-a": "a|b"}, "shellInjection", "uv-a"),
        ({"uv-a": "a&b"}, "shellInjection", "uv-a"),
        ({"uv-a": "<b"}, "shellInjection", "uv-a"),
        ({"edition": "a>b"}, "shellInjection", "edition"),
        ({"file": "a;b"}, "shellInjection", "from"),
        ({"file": "/etc/passwd"}, "absolutePath", "from"),
        ({"destination": "//x"}, "absolutePath", "destination"),
        ({"destination": "C:\\x"}, "absolutePath", "destination"),
        ({"file": "~"}, "homeExpansion", "from"),
        ({"file": "~/x"}, "homeExpansion", "from"),
        ({"file": "a/../b"}, "parentTraversal", "from"),
        ({"file": "a/.."}, "parentTraversal", "from"),
        ({"destination": "..\\b"}, "parentTraversal", "destination"),
        ({"file": "a\x00b"}, "specialChars", "from"),
        ({"file": "a\nb"}, "specialChars", "from"),
        ({"edition": "../../x"}, "fileName", "edition"),
        ({"edition": "a/b"}, "fileName", "edition"),
        ({"adaptation": "a\x00"}, "fileName", "adaptation"),
        ({"adaptation": "x" * 200}, "fileName", "adaptation"),
    ],
)
async def test_unsafe_values_are_refused(
    work: Path, home: Path, options: dict[str, str], category: str, option: str
) -> None:
    write_echo(work, "x")
    error = await refusal(work, home, **options)
    assert error["stderr"] == f"Security error: {category} violation in option {option}"
    assert error["hint"]


async def test_harmless_values_are_not(work: Path, home: Path) -> None:
    write_echo(work, "{uv-a} {input_text_file} {input_text}")
    prompt = await render(
        work, home, file="~x/a..b/c.md", stdin="a; b | c <d>", **{"uv-a": "../x /y ~ $(z)"}
    )
    assert prompt == f"../x /y ~ $(z) {work.resolve()}/~x/a..b/c.md a; b | c <d>\n"


@pytest.mark.skipif(os.name == "nt", reason="links of POSIX")
async def test_links_do_not_lead_out_of_the_prompts(work: Path, home: Path) -> None:
    secret = write(home, "secret.md", "secret")
    write_echo(work, "x")
    template = work / PROMPTS / "f_default.md"
    template.unlink()
    template.symlink_to(secret)
    assert "leads out" in (await refusal(work, home))["stderr"]
    template.unlink()
    (work / PROMPTS).rmdir()
    outside = home / "outside"
    outside.mkdir()
    write(outside, "f_default.md", "secret")
    (work / PROMPTS).symlink_to(outside)
    assert "leads out" in (await refusal(work, home))["stderr"]


async def test_names_of_a_registry_that_are_no_names_are_refused(work: Path, home: Path) -> None:
    write_echo(work, "x")
    for c1, c2, c3 in (("test", "..", "input"), ("test", "--help", "input"), ("../x", "echo", "y")):
        write_registry(work, [{"c1": c1, "c2": c2, "c3": c3}])
        with pytest.raises(ClimptError) as caught:
            await service(work, home).execute("climpt", c1, c2, c3)
        assert caught.value.payload()["error"] == "Execution failed"
        assert "Invalid" in caught.value.payload()["stderr"]


async def test_a_template_that_is_no_text_is_an_error(work: Path, home: Path) -> None:
    write_echo(work, "x")
    (work / PROMPTS / "f_default.md").write_bytes(b"\xff\xfe")
    assert "not UTF-8 text" in (await refusal(work, home))["stderr"]
