"""Which directory is the project: the one place that decides it, for the front and for the server.

The front imports this module, so it uses the standard library's smallest parts.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_HOW = "start the server in a project, or name one with --project DIR"


class FoundProject(NamedTuple):
    """A project's directory with every link followed, or why there is none."""

    path: str = ""
    reason: str = ""  # a clause, such as "/ is no project"

    @property
    def sentence(self) -> str:
        """What a client is told of it."""
        return f"The project is {self.path}." if self.path else self.advice

    @property
    def advice(self) -> str:
        """The reason and what to do about it, as one sentence; empty where there is a project."""
        return f"There is no project: {self.reason}; {_HOW}." if self.reason else ""


def find_project(given: str, home: str, cwd: str = "") -> FoundProject:
    """The project that was named, else the working directory, where it can be one.

    The root directory, the home and what cannot be looked into are no project.
    """
    try:
        start = cwd or os.getcwd()  # noqa: PTH109
    except OSError:
        start = ""
    named = _without_tilde(given, home)
    if not start and not os.path.isabs(named):  # noqa: PTH117
        return FoundProject(reason="the working directory no longer exists")
    path = os.path.realpath(os.path.join(start, named))  # noqa: PTH118
    if reason := why_no_project(path, home) or _why_closed(path):
        shown = given if "$" in given else path
        return FoundProject(reason=f"{shown} {reason}")
    return FoundProject(path)


def why_no_project(path: str, home: str) -> str:
    """Why a directory can never be a project; empty if it can."""
    real = os.path.realpath(path)
    if os.path.dirname(real) == real:  # noqa: PTH120
        return "is the root directory"
    return "is the home directory" if home and real == os.path.realpath(home) else ""


def _why_closed(path: str) -> str:
    try:
        os.scandir(path).close()
        os.stat(os.path.join(path, "."))  # noqa: PTH116, PTH118 - to look into it takes both
    except FileNotFoundError:
        return "does not exist"
    except NotADirectoryError:
        return "is not a directory"
    except (OSError, ValueError):
        return "cannot be looked into"
    return ""


def _without_tilde(given: str, home: str) -> str:
    if home and (given == "~" or given.startswith("~/")):
        return os.path.join(home, given[2:])  # noqa: PTH118
    return given


def up_to_repository(path: str) -> list[str]:
    """A directory and those above it, up to its repository's root; outside of one, it alone."""
    lineage = [path]
    while os.path.dirname(lineage[-1]) != lineage[-1]:  # noqa: PTH120
        lineage.append(os.path.dirname(lineage[-1]))  # noqa: PTH120
    for count, place in enumerate(lineage, 1):
        if os.path.lexists(os.path.join(place, ".git")):  # noqa: PTH118
            return lineage[:count]
    return lineage[:1]
