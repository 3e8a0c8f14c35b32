"""Which parts of a command are run as code, or choose the program to run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_FOLDER = r"(?:.*/)?"
_INTERPRETER = re.compile(
    _FOLDER + r"(?:(?:ba|da|z|k|a)?sh|busybox|env|xargs|su|python[0-9.]*|node|deno|bun|perl|ruby"
    r"|php|lua|Rscript)\Z"
)
_SCRIPTED = re.compile(_FOLDER + r"(?:[gmn]?awk|g?sed)\Z")  # their program is the first plain word
_CODE_FLAG = re.compile(r"-[a-zA-Z]*[ceprE]\Z|--(?:eval|command|print)\Z")
_CODE_WITH_FLAG = re.compile(r"-[a-zA-Z]*[ceprE]|--(?:eval|command|print)=")
_VALUE_FLAGS = ("-v", "-F", "-l")  # of awk and sed: the next word is a value, not the program
_PLAIN_FLAG = re.compile(r"-[uBSsO]+\Z")  # of interpreters: takes no value
_REREADS = ("eval", "source", ".", "trap", "let")
_STARTS = ("env", "xargs", "exec", "command", "nohup", "nice", "time", "sudo", "busybox")

_PROGRAM_PLACE = re.compile(
    r"(?:[;&|(`{!\n]|\b(?:then|do|else|if|while|until)\s)\s*[\"']?(\$\{[^}]*\})"
)
# Bash evaluates these once more, including `$(…)` in subscripts.
_ARITHMETIC = re.compile(r"\(\(.*?(?:\)\)|\Z)|\[\[.*?(?:\]\]|\Z)|[\w$]\[.*?(?:\]|\Z)", re.DOTALL)


def in_words(words: Sequence[str]) -> Iterator[str]:
    """The words of an argument list that name a program or are code for one."""
    yield words[0]
    interpreting = scripted = reread = False
    for place, word in enumerate(words[1:], 1):
        before = words[place - 1]
        if _INTERPRETER.match(before):
            interpreting = True
        elif _SCRIPTED.match(before):
            scripted = True
        elif interpreting and _is_script(words, place - 1):
            interpreting = False  # what follows are the script's own arguments
        reread = reread or before in _REREADS
        if reread or (before in _STARTS and word.startswith(("{{", "${"))):
            yield word
        if interpreting and (_CODE_FLAG.match(before) or _CODE_WITH_FLAG.match(word)):
            yield word
        if scripted:
            if before == "-e" or not (word.startswith("-") or before in (*_VALUE_FLAGS, "-f")):
                yield word
                scripted = word.startswith("-") or before == "-e"
            elif before == "-f":
                scripted = False  # the program is in a file


def in_shell(text: str) -> Iterator[str]:
    """The parts of a shell line that choose a program or are evaluated once more."""
    yield from (match[1] for match in _PROGRAM_PLACE.finditer(text))
    yield from (match[0] for match in _ARITHMETIC.finditer(text))


def _is_script(words: Sequence[str], place: int) -> bool:
    """Whether a word is the file that the interpreter before it runs."""
    word, before = words[place], words[place - 1]
    looks_so = not word.startswith("-") and ("." in word or "/" in word)
    return looks_so and bool(_INTERPRETER.match(before) or _PLAIN_FLAG.match(before))
