"""Judges the commands of a program that has hooks but no list of allowed commands of its own.

Run as `python gate.py '["git", "pytest -q"]'` with the hook's JSON on standard input; status 2
refuses. It is strict: what it does not understand, it refuses. Only the standard library is used,
and nothing of this package: it runs alone, inside an agent's sandbox.
"""

import json
import re
import sys

# Without these a program cannot even look at its files; none of them can start another command.
READING = ("cat", "cd", "grep", "head", "ls", "nl", "pwd", "tail", "true", "wc")
SHOWN_LINES = re.compile(r"\d+(,\d+)?p")
SEPARATORS = ";&|\n("
REFUSED = 2


class NotUnderstoodError(Exception):
    """A command whose parts cannot be told for sure."""


def parts(command: str) -> list[list[str]]:
    """The simple commands of a shell command, as words without redirections."""
    found: list[list[str]] = [[]]
    word, quote, at, is_target = "", "", 0, False
    started = False

    def end_word() -> None:
        nonlocal word, started, is_target
        if started and not is_target:
            found[-1].append(word)
        is_target = is_target and not started
        word, started = "", False

    while at < len(command):
        here, after = command[at], command[at + 1 : at + 2]
        at += 1
        if quote:
            if here == quote:
                quote = ""
            elif quote == '"' and (here == "`" or (here == "$" and after in ("(", "{"))):
                raise NotUnderstoodError
            else:
                word += here
        elif here in "'\"":
            quote, started = here, True
        elif here == "\\":
            word, started, at = word + after, True, at + 1
        elif here == "`" or (here == "$" and after in ("(", "{", "'", '"')):
            raise NotUnderstoodError
        elif here in "<>":
            if after == "(" or command[at - 1 : at + 1] == "<<":
                raise NotUnderstoodError  # a command as a file, or text that looks like commands
            word = "" if word.isdigit() else word
            started = bool(word)
            end_word()
            is_target = True
            at += 1 if after in (">", "&", "|") else 0
        elif here == "&" and after == ">":
            end_word()
            is_target, at = True, at + 1
        elif here in SEPARATORS:
            end_word()
            found.append([])
        elif here in " \t)":
            end_word()
        else:
            word, started = word + here, True
    if quote:
        raise NotUnderstoodError
    end_word()
    return [words for words in found if words]


def may_run(command: str, allowed: list[str]) -> bool:
    """Whether every part of a command begins with one of the allowed ones."""
    try:
        return all(_is_allowed(words, allowed) for words in parts(command))
    except NotUnderstoodError:
        return False


def _is_allowed(words: list[str], allowed: list[str]) -> bool:
    if words[0] in READING:
        return True
    if words[:2] == ["sed", "-n"] and len(words) > 2 and SHOWN_LINES.fullmatch(words[2]):
        return all(not word.startswith("-") for word in words[3:])
    return any(words[: len(prefix)] == prefix for prefix in (each.split() for each in allowed))


def main() -> int:
    """Judge the command that a hook asks about."""
    allowed = json.loads(sys.argv[1])
    asked = json.load(sys.stdin)
    given = asked.get("tool_input")
    command = given.get("command") if isinstance(given, dict) else None
    if asked.get("tool_name") != "Bash" or not isinstance(command, str):
        return 0  # an edit, which the sandbox judges
    if may_run(command, allowed):
        return 0
    print(f"The role allows only these commands: {', '.join(allowed)}", file=sys.stderr)  # noqa: T201
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
