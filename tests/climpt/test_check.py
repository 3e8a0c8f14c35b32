"""`climpt check` and `climpt add`: prompts, registry and patterns kept in step."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from fleet_agentpack import cli
from fleet_agentpack.climpt import commands
from fleet_agentpack.climpt.scaffold import init
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.settings import Directories
from tests.climpt.project import service, write
from tests.climpt.test_commands import run

REGISTRY = ".agent/climpt/registry.json"
USER = ".agent/climpt/config/git-user.yml"
NEW = ".agent/climpt/prompts/git/tag/release/f_default.md"
HEADER = """---
c1: git
c2: tag
c3: release
title: Tag a release
description: Tag the commit that becomes a release
options: {file: false, stdin: true, destination: false}
uv:
  - version: the version to tag
---
"""


def findings(*options: str) -> list[tuple[str, str]]:
    told = json.loads(run("check", "--json", *options).stdout)
    return [(each["path"], each["problem"]) for each in told["findings"]]


def test_the_example_is_in_order(work: Path) -> None:
    init(work)
    done = run("check")
    assert done.returncode == 0
    assert done.stdout == "7 commands: the prompts, the registry and the patterns agree.\n"


def test_a_new_prompt_is_found_after_one_command(work: Path, home: Path) -> None:
    init(work)
    write(work, NEW, f"{HEADER}Tag {{uv-version}}: {{input_text}}\n")
    comment = (work / USER).read_text().splitlines()[0]
    before = json.loads((work / REGISTRY).read_text())
    assert findings() == [
        (REGISTRY, "git tag release is missing"),
        (
            "git-user.yml",
            "params.two.directiveType.pattern does not allow tag, so git tag release cannot be "
            "rendered",
        ),
        (
            "git-user.yml",
            "params.two.layerType.pattern does not allow release, so git tag release cannot be "
            "rendered",
        ),
    ]
    assert "climpt check --write" in run("check").stdout
    assert json.loads((work / REGISTRY).read_text()) == before  # a check alone writes nothing
    done = run("check", "--write")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[:2] == [f"wrote {REGISTRY}", f"wrote {USER}"]
    assert (work / USER).read_text().splitlines()[0] == comment
    after = json.loads((work / REGISTRY).read_text())
    assert after["tools"]["commands"][:7] == before["tools"]["commands"]
    assert after["tools"]["commands"][7] == {
        "c1": "git",
        "c2": "tag",
        "c3": "release",
        "description": "Tag the commit that becomes a release",
        "options": {
            "edition": ["default"],
            "adaptation": ["default"],
            "file": False,
            "stdin": True,
            "destination": False,
        },
        "uv": [{"version": "the version to tag"}],
        "title": "Tag a release",
    }
    assert run("search", "tagging", "releases").stdout.splitlines()[1].split()[1:4] == [
        *("git", "tag", "release")
    ]
    prompt = run("execute", "git", "tag", "release", "--uv", "version=2", "--stdin", stdin="x")
    assert prompt.stdout == "Tag 2: x\n"
    assert run("check", "--write").stdout.startswith("8 commands:")


def test_a_prompt_of_a_new_domain_is_found_after_one_command(work: Path, home: Path) -> None:
    """It lacks a configuration too, without which nobody ever looks into its folder."""
    header = HEADER.replace("c1: git", "c1: ship")
    write(work, NEW.replace("/git/", "/ship/"), f"{header}Tag {{uv-version}}: {{input_text}}\n")
    write(work, ".agent/climpt/prompts/ship/stop/train/f_default.md", "No header.\n")
    app = ".agent/climpt/config/ship-app.yml"
    lost = "is missing, so nothing finds the prompts in .agent/climpt/prompts/ship"
    assert findings() == [(app, lost)]
    done = json.loads(run("check", "--write", "--json").stdout)
    assert done["written"] == [app, app.replace("-app", "-user"), REGISTRY]
    unnamed = ".agent/climpt/prompts/ship/stop/train/f_default.md"
    assert [each["path"] for each in done["findings"]] == [unnamed]
    assert run("search", "tag a release").stdout.count("ship tag release") == 1
    rendered = run("execute", "ship", "tag", "release", "--uv", "version=2")
    assert rendered.returncode == 0 and "Tag 2: " in rendered.stdout


def test_a_folder_that_another_profile_uses_lacks_none(work: Path) -> None:
    init(work)
    (work / ".agent/climpt/prompts/git").rename(work / ".agent/climpt/prompts/gitwork")
    app = work / ".agent/climpt/config/git-app.yml"
    app.write_text(app.read_text().replace("prompts/git", "prompts/gitwork"))
    assert findings() == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no header", "has no header; describe the command between two --- lines"),
        ("---\na: [\n---\nx", "the header is not valid YAML"),
        ("---\n- a\n---\nx", "the header must be a mapping"),
        (HEADER, "the prompt below the header is empty"),
        (HEADER.replace("c2: tag", "c2: label") + "x", "c2 is 'label', but its folder says 'tag'"),
        (HEADER.replace("title: Tag a release\n", "") + "x", "the header has no title"),
        (f"{HEADER}{{uv-other}}", "uses {uv-other}, which `uv` in the header does not declare"),
        (f"{HEADER}x", "declares uv-version, which the prompt does not use"),
        (f"{HEADER}{{input_text_file}}", "uses {input_text_file}; say so with options.file: true"),
        (
            HEADER.replace("{file", "{edition: [default, json], adaptation: [short], file") + "x",
            "declares the edition json; f_json.md is missing",
        ),
        (HEADER.replace("{file", "{adaptation: [short], file") + "x", "the adaptation short"),
    ],
)
def test_what_is_wrong_with_a_prompt_is_named(work: Path, text: str, problem: str) -> None:
    init(work)
    write(work, NEW, text)
    assert any(path == NEW and problem in told for path, told in findings())
    assert run("check").returncode == 1


def test_a_changed_header_and_a_lost_prompt_are_named(work: Path) -> None:
    init(work)
    prompt = work / ".agent/climpt/prompts/git/merge-up/base-branch/f_default.md"
    prompt.write_text(prompt.read_text().replace("description: Merge", "description: Bring"))
    lost = work / ".agent/climpt/prompts/git/list-select/pr-branch/f_default.md"
    lost.unlink()
    assert findings() == [
        (REGISTRY, "git merge-up base-branch differs from its prompt in description"),
        (REGISTRY, "git list-select pr-branch has no prompt with a header"),
    ]
    run("check", "--write")
    assert findings() == [(REGISTRY, "git list-select pr-branch has no prompt with a header")]


def test_a_pattern_that_is_no_list_is_left_alone(work: Path) -> None:
    init(work)
    text = "params: {two: {directiveType: {pattern: '^[m].*$'}}}\n"
    write(work, USER, text)
    run("check", "--write")
    assert (work / USER).read_text() == text
    assert any("does not allow" in told for _, told in findings())


def test_a_broken_registry_is_never_replaced(work: Path) -> None:
    init(work)
    write(work, REGISTRY, "{")
    done = run("check", "--write")
    assert done.returncode == 1
    assert "not valid JSON" in done.stderr
    assert (work / REGISTRY).read_text() == "{"


def test_a_command_is_added_to_an_empty_project(work: Path, home: Path) -> None:
    names = ("code", "review", "pull-request")
    inputs = ("--takes", "stdin", "--uv", "level=how strict")
    done = run("add", *names, "--description", "Review a pull request", *inputs)
    assert done.returncode == 0, done.stderr
    prompt = ".agent/climpt/prompts/code/review/pull-request/f_default.md"
    assert done.stdout.splitlines()[0] == f"wrote {prompt}"
    assert run("check").returncode == 0
    climpt = service(work, home)
    assert climpt.search("reviews of a PR").results[0].key == names
    assert climpt.describe(*names).usage == (
        "climpt-code review pull-request --uv-level=<level>\nuv-level: how strict"
    )
    rendered = run("execute", *names, "--uv", "level=high", "--stdin", stdin="the diff")
    assert "how strict: high" in rendered.stdout and "Input: the diff" in rendered.stdout
    before = (work / prompt).read_text()
    again = run("add", *names)
    assert again.returncode == 1
    assert f"{prompt} exists already" in again.stderr
    assert (work / prompt).read_text() == before


def test_a_command_is_added_to_another_agent(work: Path, home: Path) -> None:
    init(work)
    assert run("add", "dev", "start", "issue", "--agent", "iterator").returncode == 0
    assert (work / ".agent/iterator/registry.json").is_file()
    assert (work / ".agent/climpt/config/iterator-dev-app.yml").is_file()
    assert service(work, home).describe("dev", "start", "issue", "iterator").options is not UNKNOWN
    assert run("check").returncode == run("check", "--agent", "iterator").returncode == 0


@pytest.mark.parametrize("name", ["..", "a/b", "--help", "a b", ""])
def test_a_name_that_is_none_adds_nothing(work: Path, name: str) -> None:
    done = run("add", "--", "git", name, "x")
    assert done.returncode != 0
    assert not (work / ".agent").exists()


PROMPTS = ".agent/climpt/prompts/git"


def test_what_cannot_be_a_prompt_is_named_and_never_registered(work: Path, home: Path) -> None:
    init(work)
    outside = write(home, "elsewhere/f_default.md", f"{HEADER}Out of reach\n")
    odd = {
        "tag/grüße": f"{PROMPTS}/tag/grüße/f_default.md",
        "tag/v1": f"{PROMPTS}/tag/v1/f_1.2.md",
        "deep": f"{PROMPTS}/tag/deep/er/f_default.md",
        "shallow": f"{PROMPTS}/f_default.md",
    }
    for path in odd.values():
        write(work, path, f"{HEADER}Text\n")
    (work / PROMPTS / "tag/linked").symlink_to(outside.parent)
    (work / PROMPTS / "tag/round").symlink_to(work / PROMPTS / "tag")
    (work / PROMPTS / "tag/folder/f_default.md").mkdir(parents=True)
    loop = work / PROMPTS / "tag/loop/f_default.md"
    loop.parent.mkdir()
    loop.symlink_to(loop.name)
    before = (work / REGISTRY).read_bytes()
    rule = "use letters, digits, '-' and '_' only, at most 100"
    place = "is not in a folder <action>/<target>, so it is no command's prompt"
    called = "must be called f_<edition>.md or f_<edition>_<adaptation>.md"
    assert sorted(findings("--write")) == sorted(
        [
            (odd["tag/grüße"], f"'grüße' cannot be a name; {rule}"),
            (odd["tag/v1"], called),
            (odd["deep"], place),
            (odd["shallow"], place),
            (f"{PROMPTS}/tag/linked/f_default.md", "leads out of the folder it belongs to"),
            (f"{PROMPTS}/tag/folder/f_default.md", "is not a file that can be read"),
            (f"{PROMPTS}/tag/loop/f_default.md", "is not a file that can be read"),
        ]
    )
    assert (work / REGISTRY).read_bytes() == before


def test_header_fields_of_the_wrong_kind_are_named(work: Path) -> None:
    init(work)
    header = (
        "---\ntitle: 5\ndescription: Tag it\nusage: [x]\naliases: {a: b}\n"
        "options: {edition: {a: 1}, adaptation: 7, file: 'yes'}\nuv: [name, {b: {c: d}}]\n---\n"
    )
    write(work, NEW, f"{header}Tag it\n")
    told = [problem for path, problem in findings() if path == NEW]
    assert told[:6] == [
        "title must be text",
        "usage must be text",
        "aliases must be a list of strings",
        "options.edition must be a list of strings",
        "options.adaptation must be a list of strings",
        "options.file must be true or false",
    ]
    assert "uv must be a list of names, each with what it is for" in told


def test_one_command_at_a_time_changes_a_registry(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    init(work)
    impatient = functools.partial(file_lock, timeout_s=0)
    monkeypatch.setattr(commands, "file_lock", impatient)
    with file_lock(Directories.of_user().state / "climpt.lock"):
        for words in (["add", "git", "sign", "release"], ["check", "--write"]):
            assert cli.run(["climpt", *words]) == 1
            assert "another climpt command is writing" in capsys.readouterr().err
        assert cli.run(["climpt", "check"]) == 0
    assert cli.run(["climpt", "add", "git", "sign", "release"]) == 0
    assert cli.run(["climpt", "check"]) == 0


def test_a_place_that_cannot_be_written_is_an_error_in_words(work: Path) -> None:
    init(work)
    write(work, NEW, f"{HEADER}Tag {{uv-version}}: {{input_text}}\n")
    (work / USER).unlink()
    (work / USER).mkdir()
    done = run("check", "--write")
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_a_name_that_no_command_can_have_says_what_a_name_is(work: Path) -> None:
    done = run("add", "../up", "b", "c")
    assert done.returncode == 1 and not (work / ".agent").exists()
    assert done.stderr.splitlines()[1] == "  use letters, digits, '-' and '_' only, at most 100"
