"""Answers as a person reads them: a few lines each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

SHOWN = 6

Readable = Callable[[Any], Iterable[str]]


def listed(key: str, line: str) -> Readable:
    """A line for each item of a list in the answer."""
    return lambda answer: [line.format_map(item) for item in answer[key]]


projects = listed("projects", "{name}: {description}")
agents = listed("agents", "{name:<6} {status}")
tasks = listed("tasks", "{status:<9} {summary}")
tools = listed("results", "{name}@{version}: {description}")
definitions = listed("agents", "{name}@{version}: {description}")
commands = listed("results", "{score:.2f} {c1} {c2} {c3}: {description}")


def changes(envelope: Any) -> Iterable[str]:
    """What a plan would change, counted by target and operation."""
    found = envelope["data"]["changes"]
    counts = Counter((change["target"], change["op"]) for change in found)
    yield f"{len(found)} changes"
    for (target, operation), count in sorted(counts.items()):
        yield f"{target:<12} {operation} {count}"


def diff(envelope: Any) -> Iterable[str]:
    """The first new files of a diff, as additions."""
    for change in envelope["data"]["changes"][:SHOWN]:
        yield f"+ {change['path']}"
    left = len(envelope["data"]["changes"]) - SHOWN
    if left > 0:
        yield f"… and {left} more"


def applied(envelope: Any) -> Iterable[str]:
    """How an apply ended."""
    data = envelope["data"]
    yield f"{len(data['changes'])} files written, snapshot {data['snapshot_id']}"


def drift(envelope: Any) -> Iterable[str]:
    """What differs from what was deployed."""
    found = envelope["data"]["drift"]
    yield "everything is as deployed" if not found else f"{len(found)} drifted"
    for item in found[:SHOWN]:
        yield f"{item['kind']:<9} {item['path']}"


def rolled_back(envelope: Any) -> Iterable[str]:
    """Where a rollback went."""
    yield f"rolled back to {envelope['data']['rolled_back_to']}"


def agent(answer: Any) -> Iterable[str]:
    """One agent in a line."""
    found = answer["agent"]
    yield f"{found['name']} ({found['role']}) is {found['status']}"


def message(answer: Any) -> Iterable[str]:
    """What the tool said."""
    yield answer["message"]


def documentation(answer: Any) -> Iterable[str]:
    """The first lines of a documentation."""
    lines = [line for line in answer["documentation"].splitlines() if line.strip()]
    return [*lines[:3], "…"]


def columns(answer: Any) -> Iterable[str]:
    """The columns of a CSV file."""
    for row in answer["columns"]:
        known = f"mean {row['mean']:g}" if "mean" in row else f"{row['distinct']} values"
        yield f"{row['name']:<8} {row['type']:<7} {known}"


def verdict(answer: Any) -> Iterable[str]:
    """How a validation went."""
    errors, warnings = len(answer["errors"]), len(answer["warnings"])
    yield f"{'valid' if answer['valid'] else 'not valid'}, {errors} errors, {warnings} warnings"
    for row in answer["warnings"]:
        yield f"• {row['message']}"


def prompt(text: Any) -> Iterable[str]:
    """The first lines of a prompt."""
    lines = str(text).splitlines()
    return [*[line for line in lines if line.strip()][:3], f"… {len(lines)} lines"]


def forge_configuration(answer: Any) -> Iterable[str]:
    """Where definitions come from."""
    config = answer["config"]
    yield f"files       {', '.join(map(str, answer['sources'])) or 'none, defaults'}"
    yield f"registries  {len(config['registries'])}"
    yield f"looks in    {', '.join(place for place, used in config['resolution'].items() if used)}"


def usage(answer: Any) -> Iterable[str]:
    """How a prompt command is called."""
    yield answer["description"]
    yield f"usage       {answer['usage']}"
    for name, found in answer["options"].items():
        if isinstance(found, list):
            yield f"{name:<10}  {', '.join(found)}"
