"""Commands in which a value would become a program, code or an option are refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact import template
from tests.enact.kit import add_tool, make_service, refused, use_directory

NAME = "eve/tool"

PART_OF_A_TEXT = [
    "sh -c 'echo {{x}}'",
    "sh -c 'echo ${NAME}'",
    "sh -c 'echo ${NAME} | wc'",
    'sh -c "echo ${NAME} | wc"',
    "bash -o pipefail -c 'echo {{x}}'",
    "env sh -c 'echo {{x}}'",
    "python3 -Ic 'print({{x}})'",
    "awk 'BEGIN { print \"{{x}}\" }'",
    "awk '{ print ${NAME} }' file | sort",
    "awk -v a=b '{ {{x}} }' file",
    "sed 's/{{x}} /y/' file",
]
THE_PROGRAM = ["{{x}} --version", "${NAME} | cat", "./{{x}}"]
FINE = [
    "python3 main.py -p {{x}}",
    "python3 -m mymod -p {{x}}",
    "python3 -u main.py -e {{x}} -c {{x}}",
    "node dist/index.js --eval={{x}}",
    "sh run.sh -c {{x}}",
    "sh -c 'echo \"$1\"' sh {{x}}",
    "sh -c 'cat \"$1\" | wc' sh ${x}",
    "env GREETING={{x}} printenv",
    "awk -f program.awk {{x}}",
    "awk -v a={{x}} '{ print a }' {{x}}",
    "sed -n 5p {{x}}",
    "grep -e {{x}} file",
    "cat ${x} > /tmp/a; cat /tmp/a",
    "test ${x} -eq 1 && echo one",
    "echo [${x}]",
    'echo "Hello, ${x}!" | tr a-z A-Z',
]


@pytest.mark.parametrize("command", [*PART_OF_A_TEXT, *THE_PROGRAM])
def test_a_value_is_never_part_of_a_text_nor_the_program(command: str) -> None:
    with pytest.raises(template.TemplateError):
        template.check(command, {"NAME"})


@pytest.mark.parametrize("command", FINE)
def test_a_value_that_is_only_an_argument_is_fine(command: str) -> None:
    template.check(command, {"x"})


def run(home: Path, schema: Any, args: dict[str, Any], **fields: Any) -> Any:
    add_tool(home / "registry", NAME, inputSchema=schema, **fields)
    use_directory(home, home / "registry", execution={"default": "local"})
    return make_service(home).run(NAME, args).output


def test_a_parameter_in_capitals_is_a_parameter_and_no_variable_of_the_shell(home: Path) -> None:
    schema = {"type": "object", "properties": {"NAME": {"type": "string"}}}
    with refused("MANIFEST_INVALID"):
        run(home, schema, {"NAME": "$(echo code)"}, command='sh -c "echo ${NAME}"')


def test_two_values_together_cannot_make_an_option(home: Path) -> None:
    texts = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    with refused("INVALID_ARGUMENTS"):
        run(home, texts, {"a": "", "b": "--help"}, command="cat {{a}}{{b}}")


@pytest.mark.parametrize("command", ["printf %s {{text}}", "printf %s ${text} | cat"])
@pytest.mark.parametrize("text", ["- bullet", "-- note", "---\ntitle: x", "-5", "-"])
def test_a_text_that_begins_with_a_dash_is_no_option(home: Path, command: str, text: str) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    assert run(home, schema, {"text": text}, command=command) == text


@pytest.mark.parametrize("text", ["$(echo code)", "`echo code`", "'; echo code; '", '"; echo'])
def test_a_value_in_a_script_is_a_positional_parameter(home: Path, text: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    assert run(home, schema, {"x": text}, command='printf %s "<${x}>" | cat') == f"<{text}>"


def test_a_negative_number_is_no_option(home: Path) -> None:
    number = {"type": "object", "properties": {"n": {"type": "number"}}}
    assert run(home, number, {"n": -5}, command="printf %s {{n}}") == "-5"


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "string", "format": "path"},
        {"type": "string", "format": "directory-path", "x-access": "write"},
        {"type": "array", "items": {"type": "string", "format": "file-path"}},
    ],
)
def test_a_publisher_cannot_choose_which_file_of_the_user_is_shown(
    home: Path, rule: dict[str, Any]
) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("s3cret")
    default = [str(home / ".ssh" / "id")] if "items" in rule else "~/.ssh"
    schema = {"type": "object", "properties": {"file": {**rule, "default": default}}}
    with refused("MANIFEST_INVALID"):
        run(home, schema, {}, command="ls {{file}}")


VALUE = "a  $(id) * \\b '\"q"
ONE_WORD = [
    ("show ${x} | cat", f"[{VALUE}]"),
    ('show "${x}" | cat', f"[{VALUE}]"),
    ("show '${x}' | cat", f"[{VALUE}]"),
    ("show --text=${x} | cat", f"[--text={VALUE}]"),
    ('show "it is ${x}!" | cat', f"[it is {VALUE}!]"),
    ("show \"it is '${x}'!\" | cat", f"[it is '{VALUE}'!]"),
    ('show "$(show "${x}")" | cat', f"[[{VALUE}]]"),
    ('show "$(show ${x} "a b")" | cat', f"[[{VALUE}][a b]]"),
    ('y=${x}; show $y; show "$y"', None),
    ('for each in ${x}; do show "$each"; done', f"[{VALUE}]"),
    ("cat <<END\n${x}\nEND", f"{VALUE}\n"),
    ('case ${x} in a*) show "${x}";; esac', f"[{VALUE}]"),
    ("show \\${x} | cat", "[${x}]"),
]
SHELLS = [each for each in ("sh", "bash", "dash", "busybox") if shutil.which(each)]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("command", "printed"), ONE_WORD, ids=[each for each, _ in ONE_WORD])
def test_a_value_in_a_script_is_one_word_whatever_is_around_it(
    command: str, printed: str | None, shell: str, tmp_path: Path
) -> None:
    template.check(command, {"x"})
    schema = {"properties": {"x": {"type": "string"}}}
    argv = template.render(command, {"x": VALUE}, schema)
    assert VALUE not in argv[2]
    argv[:1] = [shell, "sh"] if shell == "busybox" else [shell]
    argv[argv.index("-c") + 1] = f"show() {{ printf '[%s]' \"$@\"; }}; {argv[argv.index('-c') + 1]}"
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
    assert not done.stderr
    if printed is not None:
        assert done.stdout == printed
    else:
        assert done.stdout.endswith(f"[{VALUE}]")
