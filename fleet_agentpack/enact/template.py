"""Turns commands with parameters into argument lists.

A value is always one argument, or a positional parameter of a script; it is never a script's text.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any

_BRACES = re.compile(r"\{\{\s*([^{}\s]+)\s*\}\}")
_DOLLAR = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_-]*)(:raw)?\}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*\Z")
_SHELL_SYNTAX = re.compile(r"[|&;<>()$`*?\[\]#~\n\\]")
_PLAIN = re.compile(r"[\w./:=@,+%-]*\Z")  # what may stand beside a parameter in one argument
_OPTION = re.compile(r"--?[A-Za-z]")
_CODE_FOLLOWS = re.compile(r"-\w*[ce]\Z")
_AT_WORD_START = re.compile(r"(?:^|\s)[\"']?\Z")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
# Where a script has a parameter; single quotes around nothing else are left out, as Enact does.
_PLACE = re.compile(
    r"\\.|(?<![^\s=|&;(])'\$\{(?P<quoted>[A-Za-z_][A-Za-z0-9_-]*)\}'(?![^\s|&;)])"
    r"|\$\{(?P<bare>[A-Za-z_][A-Za-z0-9_-]*)\}",
    re.DOTALL,
)
# The same one word wherever it stands: bare, in double quotes, in `"$(… "…")"`, in a here-document.
_ONE_WORD = '${{{0}+"${{{0}}}"}}'


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
    """Refuse a command that puts a value into a text, or in the program's own place.

    `known` are the parameters of the tool's schema. Raises `TemplateError`.
    """
    if any(match[2] for match in _DOLLAR.finditer(command)):
        raise TemplateError("${…:raw} would let an argument become code")
    words = _split(command)
    if not words:
        raise TemplateError("the command is empty")
    script = _uses_shell(command, {"properties": dict.fromkeys(known)})
    pattern = _BRACES if _BRACES.search(command) else _DOLLAR
    for before, word in itertools.pairwise(["", *words]):
        if not any(pattern is _BRACES or m[1] in known for m in pattern.finditer(word)):
            continue
        if not before and not (script and _ASSIGNED.match(word)):
            raise TemplateError(f"the program itself cannot be a parameter: {word[:80]!r}")
        # A script may quote a value among other text, but not hand that text to a program to run.
        is_text = not _PLAIN.match(pattern.sub("", word))
        if is_text and (not script or _CODE_FOLLOWS.match(before) or f"'{word}'" in command):
            raise TemplateError(
                f"a parameter must be an argument of its own, not part of the text {word[:80]!r}"
            )


def render(command: str, values: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """The argument list for these values. Raises `ValueRefused`."""
    if _uses_shell(command, schema):
        return _render_shell(command, values, schema)
    return _render_words(_split(command), values, schema)


def text_of(value: Any) -> str:
    """A value as a command sees it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _split(command: str) -> list[str]:
    tight = _BRACES.sub(lambda match: "{{" + match[1] + "}}", command)
    try:
        return shlex.split(tight)
    except ValueError as error:
        raise TemplateError(f"the command {command[:80]!r} has an unclosed quote") from error


def _uses_shell(command: str, schema: Mapping[str, Any]) -> bool:
    """Whether a command without braces is a script, in which values are positional parameters."""
    if _BRACES.search(command):
        return False
    plain = _DOLLAR.sub(lambda match: "x" if _is_parameter(match[1], schema) else match[0], command)
    return bool(_SHELL_SYNTAX.search(plain))


def _render_words(
    words: list[str], values: Mapping[str, Any], schema: Mapping[str, Any]
) -> list[str]:
    pattern = _BRACES if any(_BRACES.search(word) for word in words) else _DOLLAR
    rendered: list[str] = []
    options_end = False
    for word in words:
        element = _render_word(word, pattern, values, schema)
        if element is not None:
            named = [match[1] for match in pattern.finditer(word) if match[1] in values]
            if named and not (options_end or word.startswith("-")):
                _refuse_option(named[-1], element)
            rendered.append(element)
        options_end = options_end or word == "--"
    return rendered


def _render_word(
    word: str, pattern: re.Pattern[str], values: Mapping[str, Any], schema: Mapping[str, Any]
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
        position = match.end()
    return "".join([*pieces, word[position:]])


def _refuse_option(name: str, element: str) -> None:
    """Refuse values that would turn a plain argument into an option; `- text` and `-5` are none."""
    if _OPTION.match(element):
        reason = "must not begin like an option, such as -o: the tool could take it for one"
        raise ValueRefused(name, reason)


def _is_parameter(name: str, schema: Mapping[str, Any]) -> bool:
    return name in schema.get("properties", {})


def _render_shell(command: str, values: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """A script whose text is the publisher's alone; values are positional parameters."""
    arguments: list[str] = []

    def placed(match: re.Match[str]) -> str:
        name = match["quoted"] or match["bare"]
        if not name or not _is_parameter(name, schema):
            return match[0]
        arguments.append(text_of(values.get(name, "")))
        if _AT_WORD_START.search(command, 0, match.start()):
            _refuse_option(name, arguments[-1])
        return _ONE_WORD.format(len(arguments))

    return ["sh", "-c", _PLACE.sub(placed, command), "sh", *arguments]
