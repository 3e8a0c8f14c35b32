"""Commands on a real terminal: pager, progress, interrupts, and tables that fit."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from tests.console.pseudo import CTRL_C, OnTerminal
from tests.deploy.lab import Lab
from tests.fleet.local_fleet import CONFIG, repository
from tests.rig import SERVE, child_environment

LISTINGS = [
    "tools",
    "tools --tokens",
    "snapshots",
    "doctor",
    "doctor --all",
    "fleet projects",
    "fleet roles demo",
    "fleet list",
    "fleet history papi-with-a-long-nam",
    "tool search file csv json markdown text",
    "tool list",
    "mcp toolsets",
    "forge agent-list",
    "forge tool-list",
    "forge list",
    "forge registry list",
    "forge fork list",
    "climpt search group changes and commit",
]
SETUP = [
    "fleet create papi-with-a-long-nam --project demo --spec 'Keep the build green'",
    "tool install agentpack/csv/stats",
    "tool install agentpack/markdown/outline",
    "mcp toolset create every-tool-that-was-ever-installed-here",
    "climpt init",
    "forge agent-create a-reviewer-of-every-change --description 'Reads every change, word for"
    " word, and says what it would do differently and why that would be better' --tag a",
    "forge fork create a-reviewer-of-every-change my-own-reviewer-of-every-single-change",
    "forge registry add acme https://acme.example/a/very/long/path/to/the/registry/of/plugins.json",
]
UNBROKEN = ("  mkdir -p ", "Warning: ")  # no tables: a command to copy, a sentence
RUN_ALL = """
import shlex, sys
from fleet_agentpack import cli
for line in sys.argv[1:]:
    print(f"$ {line}", flush=True)
    cli.run(shlex.split(line))
"""


@pytest.fixture
def lab(home: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    lab = Lab(home / "lab")
    lab.furnish()
    for name, value in lab.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(lab.project)
    return lab


def width(line: str) -> int:
    """The columns that a line takes."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in line)


def test_every_table_fits_the_terminal(
    lab: Lab, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.deploy()
    project = repository(home / "demo")
    config = home / ".config/fleet-agentpack/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG)
    monkeypatch.chdir(project)
    words = [sys.executable, "-c", RUN_ALL]
    made = subprocess.run(
        [*words, *SETUP], env=child_environment(), capture_output=True, text=True, timeout=120
    )
    assert made.returncode == 0, made.stderr
    subprocess.run([*words, "fleet start papi-with-a-long-nam " + "word " * 40], check=True)
    for columns in (80, 200):
        with OnTerminal(*LISTINGS, command=words, columns=columns) as shown:
            assert shown.end(120) == 0, shown.text
        assert "Traceback" not in shown.text and "error" not in shown.text.lower(), shown.text
        lines = [line for line in shown.text.splitlines() if not line.startswith(UNBROKEN)]
        assert [line for line in lines if width(line) > columns] == []
        answers = shown.text.split("$ ")[1:]
        assert [answer.splitlines()[0] for answer in answers] == LISTINGS
        assert all(len(answer.splitlines()) > 1 for answer in answers)
    subprocess.run([*words, "fleet delete papi-with-a-long-nam --yes"], check=True)


DEEP = "/".join(f"a-directory-with-a-long-name-{n}" for n in range(6)) + "/notes.md"


@pytest.mark.parametrize("columns", [80, 200])
def test_long_paths_go_on_under_themselves(lab: Lab, columns: int) -> None:
    """In the lists of `plan`, `status` and `rollback --dry-run`, and nothing of them is lost."""

    def lines_of(command: str, path: Path) -> list[str]:
        with OnTerminal(*command.split(), columns=columns) as shown:
            assert shown.end() == 0, shown.text
        lines = shown.text.split("Next actions:")[0].splitlines()  # those are to be copied
        assert [line for line in lines if width(line) > columns] == []
        assert str(path).replace(" ", "") in "".join("".join(lines).split())
        return lines

    written = lab.user / ".codex/skills/deep" / DEEP
    lab.skill("deep", {"SKILL.md": "---\nname: deep\ndescription: x\n---\n", DEEP: "Long.\n"})
    planned = lines_of("plan --target codex", written)
    at = planned[1].index("/")
    more = [line for line in planned[1:] if not line.startswith("Create codex")]
    assert more and all(line[:at].isspace() and line[at] != " " for line in more)
    first = str(lab.deploy().data.snapshot_id)
    written.write_text("Edited.\n")
    lines_of("status --target codex", Path("deep") / DEEP)
    lab.skill("other", {"SKILL.md": "---\nname: other\ndescription: x\n---\n", DEEP: "Long.\n"})
    lab.deploy(adopt=True)
    lines_of(f"rollback --to {first} --dry-run", lab.user / ".codex/skills/other" / DEEP)


def long_diff(lab: Lab) -> None:
    lab.source("modules/prompts/hello.md", "".join(f"line {n}\n" for n in range(200)))


def test_a_long_diff_goes_through_less_until_it_is_quit(lab: Lab) -> None:
    long_diff(lab)
    with OnTerminal("diff", "--target", "codex") as shown:
        shown.wait_for("\n:")  # less waits for a key
        assert "line 190" not in shown.text
        shown.press(b"q")
        assert shown.end() == 0
    assert "Traceback" not in shown.text


def test_a_short_diff_is_simply_printed(lab: Lab) -> None:
    lab.modules.clear()
    lab.prompt("short", "One line.\n")
    with OnTerminal("diff", "--target", "codex") as shown:
        assert shown.end() == 0
    assert "+One line." in shown.text and "(END)" not in shown.text


def test_the_persons_own_pager_is_used_and_only_on_a_terminal(lab: Lab, home: Path) -> None:
    long_diff(lab)
    pager = home / "my pager"
    pager.write_text(f'#!/bin/sh\necho "paged $1 $LESS"\ncat > "{home}/paged"\n')
    pager.chmod(0o755)
    chosen = {"PAGER": f"'{pager}' nicely"}
    with OnTerminal("diff", "--target", "codex", **chosen) as shown:
        assert shown.end() == 0
    assert shown.text == "paged nicely FRX\n"
    assert "line 199" in (home / "paged").read_text()
    (home / "paged").unlink()
    piped = subprocess.run(
        [*SERVE, "diff"], env=child_environment(**chosen), capture_output=True, text=True
    )
    assert "line 199" in piped.stdout and "paged" not in piped.stdout
    assert not (home / "paged").exists()


@pytest.mark.parametrize("pager", ["", "no-such-program", "'unclosed"])
def test_without_a_pager_everything_is_printed(lab: Lab, pager: str) -> None:
    long_diff(lab)
    with OnTerminal("diff", "--target", "codex", PAGER=pager) as shown:
        assert shown.end() == 0
    assert "line 199" in shown.text


def test_a_deploy_shows_the_plan_asks_and_then_how_far_it_is(lab: Lab) -> None:
    with OnTerminal("deploy", "--apply", PAGER="cat") as shown:
        shown.wait_for("Apply changes? [y/N]")
        assert "━" not in shown.text
        shown.press(b"y\n")
        assert shown.end() == 0
    assert "━" in shown.text.split("Apply changes?")[1]
    assert "Applied. Snapshot:" in shown.text.splitlines()[-1]
    assert (lab.user / ".codex/AGENTS.md").exists()


def test_progress_is_for_terminals_alone(lab: Lab) -> None:
    done = subprocess.run(
        [*SERVE, "deploy", "--apply", "--yes"], env=child_environment(), capture_output=True
    )
    assert done.returncode == 0 and done.stderr == b""
    with OnTerminal("tool", "install", "agentpack/csv/stats") as shown:
        assert shown.end() == 0
    assert "installing agentpack/csv/stats" in shown.text
    assert shown.text.splitlines()[-1].startswith("✓ Installed agentpack/csv/stats@")


def test_fetching_git_modules_names_the_module(lab: Lab) -> None:
    upstream = repository(lab.root / "upstream")
    (upstream / "AGENTS.md").write_text("# Upstream\n")
    lab.git("add", "--all", cwd=upstream)
    lab.git("commit", "--quiet", "-m", "More", cwd=upstream)
    git = {"git": {"url": str(upstream), "ref": "main", "subdir": ""}}
    lab.module("instructions", "far", "", source=git)
    with OnTerminal("update") as shown:
        assert shown.end() == 0, shown.text
    assert "fetching instructions:far" in shown.text


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["deploy", "--apply"], "Apply changes? [y/N]"),
        (["fleet", "list", "--watch"], "No agents."),
        (["connect", "codex"], "Go ahead? [y/N]"),
        (["forge", "login"], "Token for stockyard:"),
    ],
)
def test_ctrl_c_is_one_line_and_a_status(lab: Lab, words: list[str], seen: str) -> None:
    with OnTerminal(*words, PAGER="cat") as shown:
        shown.wait_for(seen)
        before = len(shown.text)
        shown.press(CTRL_C)
        assert shown.end() == 130
    said = shown.text[before:].replace("^C", "").strip().splitlines()
    assert said == [
        f"fleet-agentpack{' ' if words else ''}{words[0] if words else ''}: interrupted"
    ]
    assert not (lab.user / ".codex").exists()
