"""Matches names against the regular expressions of a project, which may be a stranger's."""

from __future__ import annotations

import json
import re
import sys

from fleet_agentpack.kit import process

TIMEOUT_S = 2.0
# A list of names, as nearly every profile has it: nothing to repeat, so it cannot take long.
_NAMES = re.compile(r"\^?(?:\((?:\?:)?)?[\w|-]*\)?\$?")
_NAMED_GROUP = re.compile(r"\(\?<(?![=!])")
_NAMED_REFERENCE = re.compile(r"\\k<(\w+)>")
_SEARCH = """
import json, re, sys
pattern, name = json.load(sys.stdin)
print("yes" if re.search(pattern, name) else "no")
"""


class PatternError(ValueError):
    """A pattern that cannot be used; the message says why."""


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern is found in a name. Raises `PatternError`.

    Named groups may be written as in JavaScript, which the original's patterns are.
    A pattern that may never finish runs in a process of its own: in this one it would block every
    other call.
    """
    pattern = _NAMED_GROUP.sub("(?P<", _NAMED_REFERENCE.sub(r"(?P=\1)", pattern))
    if _NAMES.fullmatch(pattern):
        try:
            return re.search(pattern, name) is not None
        except re.error as error:
            raise PatternError("is not a regular expression") from error
    argv = [sys.executable, "-I", "-S", "-W", "ignore", "-c", _SEARCH]
    try:
        done = process.run(argv, stdin=json.dumps([pattern, name]).encode(), timeout_s=TIMEOUT_S)
    except process.ProcessTimeoutError as error:
        raise PatternError("takes too long to match; a list of names does not") from error
    except OSError as error:
        raise PatternError("could not be tried; a list of names needs no other process") from error
    answer = done.text.strip()
    if answer not in ("yes", "no"):
        raise PatternError("is not a regular expression")
    return answer == "yes"
