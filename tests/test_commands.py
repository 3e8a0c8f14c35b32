"""Every command: its help, its example, its mistakes, and the scripts that complete it."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet_agentpack import cli
from fleet_agentpack.commands import COMMANDS, completion_of, parser_of
from fleet_agentpack.console.parser import Parser
from tests.rig import SERVE, child_environment


def every_parser() -> Iterator[Parser]:
    def below(parser: Parser) -> Iterator[Parser]:
        yield parser
        for _, each in parser.subcommands():
            yield from below(each)

    for command in COMMANDS:
        yield from below(parser_of(command))


def test_every_help_ends_with_an_example_that_is_right() -> None:
    seen = 0
    for parser in every_parser():
        seen += 1
        *_, title, example = parser.format_help().rstrip().splitlines()
        assert title == "example:", parser.prog
        words = shlex.split(example)
        command = " ".join(words[:2])
        assert example.strip().startswith(parser.prog)
        parsed = parser_of(words[1]).parse_args(words[2:])
        assert command.startswith("fleet-agentpack ") and parsed
    assert seen > 60


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("pln", "fleet-agentpack: unknown command 'pln'; did you mean plan?"),
        ("fleet lst", "fleet-agentpack fleet: unknown command 'lst'; did you mean list?"),
        ("forge fork dif x", "fleet-agentpack forge fork: unknown command 'dif'; did you mean"),
        ("help fleet crate", "unknown command 'crate'; did you mean create?"),
        ("--onyl fleet", "fleet-agentpack: unrecognized arguments: --onyl; did you mean --only?"),
        ("plan --taget=codex", "unrecognized arguments: --taget=codex; did you mean --target?"),
        ("rollback --too 5", "unrecognized arguments: --too; did you mean --to?"),
        ("fleet create a --projct p --spec s", "did you mean --project?"),
        ("connect cluade", "argument client: invalid choice: 'cluade'; did you mean claude?"),
        ("connect zzz", "invalid choice: 'zzz'; choose from claude, codex, gemini"),
        ("completion basch", "did you mean bash?"),
        ("fleet", "fleet-agentpack fleet: needs a command: list, show, create"),
        ("plan --zzz", "unrecognized arguments: --zzz\n"),
        ("zzzz", "unknown command 'zzzz'\n"),
    ],
)
def test_a_mistyped_word_gets_the_nearest_right_one(
    line: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(shlex.split(line))
    told = capsys.readouterr()
    assert ended.value.code == 2 and told.out == ""
    assert says in told.err
    assert told.err.splitlines()[-1].endswith(" --help shows how it is called")


def test_help_is_the_help_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.run(words)
        assert ended.value.code == 0
        return capsys.readouterr().out

    assert shown("help", "fleet", "create") == shown("fleet", "create", "--help")
    assert shown("help") == shown("--help")
    assert all(f"  {name} " in shown("help") for name in COMMANDS)


CASES = {
    "p": "plan",
    "fleet c": "create",
    "connect cl": "claude claude-desktop",
    "connect claude --ask r": "risky require",
    "forge fork c": "check create",
    "help fl": "fleet",
    "completion ": "bash zsh fish -h --help",
    "--log-level e": "error",
    "tool run agentpack/csv/stats --in": "--input",
    "deploy --ap": "--apply",
    "deploy --repo ": "",  # a file, as the shell itself completes it
}


def test_bash_completes(tmp_path: Path) -> None:
    script = tmp_path / "complete.bash"
    script.write_text(completion_of("bash", cli.main_parser()))
    lines = ["set -eu", f"source {shlex.quote(str(script))}", "complete -p fleet-agentpack"]
    for line in CASES:
        words = ["fleet-agentpack", *line.split(" ")]
        lines += [
            f"COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1} COMPREPLY=()",
            "_fleet_agentpack || true",
            'echo "${COMPREPLY[@]:-}"',
        ]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.stderr == ""
    registered, *offered = done.stdout.splitlines()
    assert registered == "complete -o default -F _fleet_agentpack fleet-agentpack"
    assert dict(zip(CASES, offered, strict=True)) == CASES


def test_zsh_and_fish_scripts_name_every_command() -> None:
    zsh = completion_of("zsh", cli.main_parser())
    assert zsh.startswith("#compdef fleet-agentpack\n")
    assert "(' fleet') found=('list:list all agents with status and task'" in zsh
    assert "(' connect|--ask') compadd -- never risky always require; return ;;" in zsh
    assert not re.search(r"\bpath=", zsh)  # in zsh that is the PATH
    fish = completion_of("fish", cli.main_parser())
    at = """complete -c fleet-agentpack -n '__fleet_agentpack_at '"'"' fleet'"'"''"""
    assert f"{at} -f -a list -d 'list all agents with status and task'" in fish
    for name in COMMANDS:
        assert f"' {name}'" in zsh and f" {name}'" in fish


def test_completion_is_printed() -> None:
    done = subprocess.run(
        [*SERVE, "completion", "bash"], capture_output=True, text=True, env=child_environment()
    )
    assert done.returncode == 0 and done.stdout.endswith("fleet-agentpack\n")
