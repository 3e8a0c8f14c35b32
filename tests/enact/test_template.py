"""Commands in which a value would become a program, code or an option are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact import template
from tests.enact.kit import add_tool, make_service, refused, use_directory

NAME = "eve/tool"

RUN_AS_CODE = [
    "eval echo ${x}",
    "trap ${x} EXIT; true",
    "let a=${x}; echo $a",
    ". ${x}; true",
    "echo $((${x} + 1))",
    "[[ ${x} -eq 1 ]] && echo one",
    "echo; a[${x}]=1",
    "sh -c 'echo {{x}}'",
    "sh -c 'echo ${NAME}'",
    "bash -o pipefail -c '{{x}}'",
    "env sh -c 'echo {{x}}'",
    "su -c {{x}}",
    "python3 -c{{x}}",
    "python3 -Ic '{{x}}'",
    "node --eval={{x}}",
    "node -r ./hook.js -e {{x}}",
    "perl -Mx -ne '{{x}}'",
    "awk 'BEGIN { print \"{{x}}\" }'",
    "awk -v a=b '{{x}}' file",
    "sed 's/{{x}}/y/' file",
    "sed -n -e p -e 's/{{x}}/y/' file",
]
CHOOSES_A_PROGRAM = [
    "{{x}} --version",
    "true; ${x}",
    'true && "${x}"',
    "cat f | ${x}",
    "echo $(${x})",
    "echo `${x}`",
    "echo hi\n${x}",
    "if true; then ${x}; fi",
    "env {{x}}",
    "xargs {{x}}",
    "busybox {{x}}",
]
FINE = [
    "python3 main.py -p {{x}}",
    "python3 -u main.py -e {{x}} -c {{x}}",
    "node dist/index.js --eval={{x}}",
    "sh run.sh -c {{x}}",
    "sh -c 'echo \"$1\"' sh {{x}}",
    "env GREETING={{x}} printenv",
    "awk -f program.awk {{x}}",
    "awk -v a={{x}} '{ print a }' {{x}}",
    "sed -n 5p {{x}}",
    "grep -e {{x}} file",
    "cat ${x} > /tmp/a; cat /tmp/a",
    "test ${x} -eq 1 && echo one",
    "echo [${x}]",
]


@pytest.mark.parametrize("command", [*RUN_AS_CODE, *CHOOSES_A_PROGRAM])
def test_a_value_that_would_be_run_is_refused(command: str) -> None:
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
