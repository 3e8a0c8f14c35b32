"""Makes the output of agents' programs readable: what was said, run and edited, time and cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fleet_agentpack.fleet.models import Message, shorten

Json = Mapping[str, Any]

RUNS = ("Bash", "run_shell_command", "shell")
EDITS = ("Edit", "MultiEdit", "Write", "NotebookEdit", "replace", "write_file")
PATHS = ("file_path", "path", "notebook_path", "pattern", "url", "query", "command", "description")
LONGEST_LINE = 300
REPORTS = ("assistant", "item.started", "item.completed")
QUIET = ("thread.started", "turn.started", "item.started", "item.updated", "system", "init")


class Event(NamedTuple):
    """One thing that happened: `said`, `ran`, `edited`, `used`, `failed` or `ended`."""

    kind: str
    text: str


class OutputReader:
    """Reads a program's output line by line; what is said again as the result is told once."""

    def __init__(self) -> None:
        self._said: Event | None = None

    def events(self, line: str) -> list[Event]:
        """What a line tells; a line that is no JSON is what was said."""
        told = _parsed(line)
        if told is None:
            return [Event("said", line)] if line.strip() else []
        found = [event for event in told if event != self._said]
        said = [event for event in found if event.kind == "said"]
        self._said = said[-1] if said else self._said
        return found


def readable(said: Iterable[Message]) -> Iterator[Message]:
    """What was said, with a program's output told as what happened."""
    reader = OutputReader()
    for message in said:
        if message.who in ("output", "errors"):
            yield from (Message(*event) for event in reader.events(message.text))
        else:
            yield message


def newest(told: Json | str) -> str | None:
    """What somebody who watches wants to know of a line of output: what was last said or done."""
    if isinstance(told, str):
        return told.strip() or None
    if told.get("type") not in REPORTS:
        return None
    item = told.get("item")
    begins = isinstance(item, dict) and told["type"] == "item.started"
    row = {**told, "type": "item.completed"} if begins else told
    for kind, text in reversed(list(_known(row))):
        if text.strip() and kind in ("said", "ran", "edited", "used"):
            return text if kind == "said" else f"{kind} {text}"
    return None


def _parsed(line: str) -> list[Event] | None:
    """What a line of JSON tells; None for any other line."""
    if not line.startswith("{"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return list(_known(row))


def _known(row: Json) -> Iterator[Event]:
    kind = row.get("type")
    if kind in ("assistant", "user"):
        yield from _claude_message(row)
    elif kind == "result":
        yield from _ended(row)
    elif kind == "item.completed" and isinstance(row.get("item"), dict):
        yield from _codex_item(row["item"])
    elif kind in ("turn.failed", "error"):
        error = row.get("error")
        told = error.get("message") if isinstance(error, dict) else row.get("message")
        yield Event("failed", str(told or error or "unknown"))
    elif kind == "turn.completed":
        yield Event("ended", _tokens(row.get("usage")))
    elif isinstance(row.get("response"), str):
        yield Event("said", row["response"])
    elif kind not in QUIET:
        yield Event("used", shorten(json.dumps(row, ensure_ascii=False), LONGEST_LINE))


def _claude_message(row: Json) -> Iterator[Event]:
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks: Iterable[Any] = content if isinstance(content, list) else ()
    for block in blocks:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and block.get("text"):
            yield Event("said", str(block["text"]))
        elif block.get("type") == "tool_use":
            yield _tool_use(str(block.get("name")), block.get("input"))
        elif block.get("type") == "tool_result" and block.get("is_error"):
            yield Event("failed", shorten(_text_of(block.get("content")), LONGEST_LINE))


def _tool_use(name: str, given: object) -> Event:
    values = given if isinstance(given, dict) else {}
    about = next((str(values[key]) for key in PATHS if values.get(key)), "")
    if name in RUNS:
        return Event("ran", str(values.get("command") or about))
    if name in EDITS:
        return Event("edited", about)
    return Event("used", f"{name} {shorten(about)}".rstrip())


def _codex_item(item: Json) -> Iterator[Event]:
    kind = item.get("type")
    if kind in ("agent_message", "assistant_message"):
        yield Event("said", str(item.get("text", "")))
    elif kind == "command_execution":
        yield Event("ran", str(item.get("command", "")))
        if item.get("exit_code"):
            output = shorten(str(item.get("aggregated_output", "")), LONGEST_LINE)
            yield Event("failed", f"status {item['exit_code']}: {output}")
    elif kind == "file_change":
        changes = item.get("changes")
        for change in changes if isinstance(changes, list) else ():
            if isinstance(change, dict):
                yield Event("edited", str(change.get("path", "")))
    elif kind == "error":
        yield Event("failed", str(item.get("message", "")))
    elif kind != "reasoning":
        about = next((str(item[key]) for key in ("tool", *PATHS) if item.get(key)), "")
        yield Event("used", f"{kind} {shorten(about)}".rstrip())


def _ended(row: Json) -> Iterator[Event]:
    if row.get("is_error"):
        yield Event("failed", str(row.get("result") or row.get("subtype") or "unknown"))
    elif isinstance(row.get("result"), str):
        yield Event("said", row["result"])
    facts = []
    if isinstance(row.get("duration_ms"), int | float):
        facts.append(f"{row['duration_ms'] / 1000:.0f} s")
    if isinstance(row.get("num_turns"), int):
        facts.append(f"{row['num_turns']} turns")
    if isinstance(row.get("total_cost_usd"), int | float):
        facts.append(f"${row['total_cost_usd']:.4f}")
    if facts:
        yield Event("ended", ", ".join(facts))


def _tokens(usage: object) -> str:
    if not isinstance(usage, dict):
        return ""
    counts = {name: usage.get(f"{name}_tokens") for name in ("input", "output")}
    return ", ".join(f"{count} {name} tokens" for name, count in counts.items() if count)


def _text_of(content: object) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
