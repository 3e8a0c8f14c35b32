"""Turns commands with parameters into argument lists; a value never becomes code or an option."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any

from fleet_agentpack.enact import injection

_BRACES = re.compile(r"\{\{\s*([^{}\s]+)\s*\}\}")
_DOLLAR = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_-]*)(:raw)?\}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*\Z")
_SHELL_SYNTAX = re.compile(r"[|&;<>()$`*?\[\]#~\n\\]")


class TemplateError(ValueError):
    """A command that cannot be used; the message says why."""


class ValueRefused(ValueError):
    """A value that must not be used where the command puts it."""

    def __init__(self, parameter: str, reason: str) -> None:
        super().__init__(f"{parameter}: {reason}")
        self.parameter = parameter
        self.reason = reason


def parameters(command: str) -> list[str]:
    """The parameters that a command takes, in order, each once."""
    braces = list(dict.fromkeys(_BRACES.findall(command)))
    if braces:
        return braces
    found = (match[1] for match in _DOLLAR.finditer(command))
    return list(dict.fromkeys(name for name in found if not _VARIABLE.match(name)))


def check(command: str, known: Collection[str] = ()) -> None:
    """Refuse a command in which a value could become the program or part of its code.

    `known` are the parameters of the tool's schema. Raises `TemplateError`.
    """
    if any(match[2] for match in _DOLLAR.finditer(command)):
        raise TemplateError("${…:raw} would let an argument become code")
    words = _words(command)
    if not words:
        raise TemplateError("the command is empty")
    code = [*injection.in_words(words), *injection.in_shell(_as_shell_text(command, known))]
    for text in code:
        if _has_placeholder(text, known):
            raise TemplateError(
                f"the parameter in {text[:80]!r} would be run as a program or as code; "
                "pass it as a separate argument"
            )


def render(command: str, values: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """The argument list for these values. Raises `ValueRefused`."""
    if _BRACES.search(command) or not _needs_shell(command, schema):
        return _render_words(_words(command), values, schema)
    return _render_shell(command, values, schema)


def text_of(value: Any) -> str:
    """A value as a command sees it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _words(command: str) -> list[str]:
    tight = _BRACES.sub(lambda match: "{{" + match[1] + "}}", command)
    try:
        return shlex.split(tight)
    except ValueError as error:
        raise TemplateError(f"the command {command[:80]!r} has an unclosed quote") from error


def _as_shell_text(command: str, known: Collection[str]) -> str:
    """What a shell would read; nothing where no shell is used."""
    schema = {"properties": dict.fromkeys(known)}
    return "" if _BRACES.search(command) or not _needs_shell(command, schema) else command


def _has_placeholder(text: str, known: Collection[str]) -> bool:
    return bool(_BRACES.search(text)) or any(
        match[1] in known or not _VARIABLE.match(match[1]) for match in _DOLLAR.finditer(text)
    )


def _render_words(
    words: list[str], values: Mapping[str, Any], schema: Mapping[str, Any]
) -> list[str]:
    pattern = _BRACES if any(_BRACES.search(word) for word in words) else _DOLLAR
    rendered: list[str] = []
    options_end = False
    for word in words:
        element = _render_word(word, pattern, values, schema, options_end=options_end)
        if element is not None:
            rendered.append(element)
        options_end = options_end or word == "--"
    return rendered


def _render_word(
    word: str,
    pattern: re.Pattern[str],
    values: Mapping[str, Any],
    schema: Mapping[str, Any],
    *,
    options_end: bool,
) -> str | None:
    """One argument; None when an optional parameter in it has no value."""
    pieces: list[str] = []
    position = 0
    for match in pattern.finditer(word):
        name = match[1]
        if pattern is _DOLLAR and not _is_parameter(name, schema):
            continue
        if name not in values:
            if name in schema.get("required", ()):
                raise ValueRefused(name, "required")
            return None
        pieces += [word[position : match.start()], text_of(values[name])]
        if not options_end and not isinstance(values[name], int | float):
            _refuse_option(name, "".join(pieces), word)
        position = match.end()
    return "".join([*pieces, word[position:]])


def _refuse_option(name: str, value: str, written: str = "") -> None:
    """Refuse a value that would turn a plain argument into an option."""
    if value.startswith("-") and not written.startswith("-"):
        raise ValueRefused(name, "must not begin with '-': the tool could take it for an option")


def _is_parameter(name: str, schema: Mapping[str, Any]) -> bool:
    return name in schema.get("properties", {})


def _needs_shell(command: str, schema: Mapping[str, Any]) -> bool:
    plain = _DOLLAR.sub(lambda match: "x" if _is_parameter(match[1], schema) else match[0], command)
    return bool(_SHELL_SYNTAX.search(plain))


def _render_shell(command: str, values: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """A shell command whose text is the publisher's alone; values are positional parameters."""
    arguments: list[str] = []
    script: list[str] = []
    quote = ""
    position = 0
    while position < len(command):
        match = _DOLLAR.match(command, position)
        if match and _is_parameter(match[1], schema):
            value = values.get(match[1], "")
            if isinstance(value, str):
                _refuse_option(match[1], value)
            arguments.append(text_of(value))
            reference = f"${{{len(arguments)}}}"
            script.append(_QUOTED[quote].format(reference))
            position = match.end()
            continue
        char = command[position]
        if char == "\\" and quote != "'":
            script.append(command[position : position + 2])
            position += 2
            continue
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        script.append(char)
        position += 1
    return ["sh", "-c", "".join(script), "sh", *arguments]


_QUOTED = {"": '"{}"', '"': "{}", "'": "'\"{}\"'"}
