"""Every command: its help, its example, its mistakes, and the scripts that complete it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet_agentpack import cli
from fleet_agentpack.commands import COMMANDS, completion_of, parser_of
from fleet_agentpack.console.parser import Parser
from tests.console.pseudo import OnTerminal
from tests.rig import SERVE, child_environment, eventually


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


def test_every_help_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for parser in (cli.main_parser(), *every_parser()):
        *lines, _example = parser.format_help().rstrip().splitlines()
        assert [line for line in lines if len(line) > 80] == [], parser.prog


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
        ("connect cluade", "argument CLIENT: invalid choice: 'cluade'; did you mean claude?"),
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
    assert told.err.splitlines()[-1].endswith(" --help shows how to use it")


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
    "--only fleet pla": "plan",  # the value of an option is no command
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


def needed(shell: str) -> str:
    return shutil.which(shell) or pytest.skip(f"{shell} is not installed")


def test_fish_completes(tmp_path: Path) -> None:
    script = tmp_path / "complete.fish"
    script.write_text(completion_of("fish", cli.main_parser()))
    asked = "".join(f"echo =; complete -C 'fleet-agentpack {line}'\n" for line in CASES)
    done = subprocess.run(
        [needed("fish"), "--no-config", "-c", f"source {shlex.quote(str(script))}\n{asked}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=child_environment(),
    )
    assert done.stderr == ""
    offered = [
        {line.split("\t")[0] for line in answer.splitlines()}
        for answer in done.stdout.split("=\n")[1:]
    ]
    wanted = {line: set(words.split()) - {"-h", "--help"} for line, words in CASES.items()}
    wanted["deploy --repo "] = {script.name, "home/"}
    assert dict(zip(CASES, offered, strict=True)) == wanted


def test_zsh_completes(tmp_path: Path) -> None:
    """Typed on a terminal: what can only be one thing is written out, else all are listed."""
    script = tmp_path / "complete.zsh"
    script.write_text(completion_of("zsh", cli.main_parser()))
    alone = {line: words for line, words in CASES.items() if words and " " not in words}
    lists = {line: words.split() for line, words in CASES.items() if " " in words}
    start = f"cd {shlex.quote(str(tmp_path))}; autoload -U compinit && compinit -u -D; "
    start += "setopt no_beep no_list_ambiguous; source ./complete.zsh; echo rea''dy\n"
    with OnTerminal("-f", "-i", command=[needed("zsh")], columns=150) as shell:
        shell.press(start.encode())
        shell.wait_for("ready\n")

        def typed(line: str) -> None:
            shell.press(b"\x15" + f"fleet-agentpack {line}\t".encode())

        for line, word in alone.items():
            typed(line)
            before = line.rpartition(" ")[0]
            shell.wait_for(f"fleet-agentpack {before} {word}".replace("  ", " ") + " ")
        for line, words in lists.items():
            seen = len(shell.text)
            typed(line)
            eventually(lambda: all(word in shell.text[seen:] for word in words))  # noqa: B023
        typed("deploy --repo ")
        shell.wait_for(f"{script.name}  home/")
        shell.press(b"\x15exit\n")
        assert shell.end() == 0
    assert "command not found" not in shell.text and "parse error" not in shell.text


def test_completion_is_printed() -> None:
    done = subprocess.run(
        [*SERVE, "completion", "bash"], capture_output=True, text=True, env=child_environment()
    )
    assert done.returncode == 0 and done.stdout.endswith("fleet-agentpack\n")
