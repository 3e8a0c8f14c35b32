"""The recorded answers to handshakes and listings: `listing.json`, made by `wire/listing.py`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypedDict

from fleet_agentpack.wire.selection import Choice, Facts, Selection
from fleet_agentpack.wire.wording import worded_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

PATH = os.path.join(os.path.dirname(__file__), "listing.json")  # noqa: PTH118, PTH120 - no pathlib
LISTINGS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


class Note(TypedDict, total=False):
    """What decides whether and how an item is listed, besides the item itself."""

    tool: str
    writes: bool
    extra: bool
    description: str  # with the tools that it names marked
    arguments: dict[str, str]  # their descriptions, likewise
    needs: list[str]  # the tools without which a prompt is not listed


def facts_of(domain: str, note: Note) -> Facts:
    """What the choice of a tool depends on."""
    return Facts(domain, note.get("writes", False), note.get("extra", False))


class RecordedListing:
    """What the server answers for one selection, before anything of it is imported."""

    def __init__(self, recorded: dict[str, Any], choice: Choice, project: str) -> None:
        self._recorded, self._choice, self._domains = recorded, choice, choice.domains
        domains = {name: recorded["domains"][name] for name in self._domains}
        only = choice.selection.only
        alone = bool(only) and len(domains) == 1
        texts = {name: each["instructions"] for name, each in domains.items()}
        self._facts = {
            "name": json.dumps(
                domains[self._domains[0]]["server_name"] if alone else recorded["server_name"]
            ),
            "instructions": json.dumps(choice.instructions(texts, project), ensure_ascii=False),
        }

    @classmethod
    def read(cls, selection: Selection, project: str) -> RecordedListing | None:
        """The answers for a selection; None when something named, or the file, is not there.

        `project` is what a client is told of the project.
        """
        try:
            with open(PATH, encoding="utf-8") as stream:  # noqa: PTH123
                recorded = json.load(stream)
        except (OSError, ValueError):
            return None
        known = recorded["domains"]
        if not all(name in known for name in selection.only):
            return None
        chosen = [name for name in known if not selection.only or name in selection.only]
        tools = {tool: facts for tool, facts in _tools(recorded).items() if facts.domain in chosen}
        installed = next((name for name in chosen if known[name]["sources"]), "")
        choice = Choice(selection, tools, installed)
        return None if choice.unknown or not choice.domains else cls(recorded, choice, project)

    @property
    def dynamic(self) -> dict[str, list[str]]:
        """The domains whose tools come and go, and the files below the home that tell of them."""
        found = {name: self._recorded["domains"][name]["sources"] for name in self._domains}
        return {name: sources for name, sources in found.items() if sources}

    @property
    def prompt_folders(self) -> dict[str, str]:
        """The domains whose prompts are found in the project, and the folder that they are in."""
        found = {name: self._recorded["domains"][name]["prompt_folder"] for name in self._domains}
        return {name: folder for name, folder in found.items() if folder}

    def initialize(self, version: str) -> str | None:
        """The result of the handshake; None for a version that the server may know better."""
        if version not in self._recorded["versions"]:
            return None
        facts = {**self._facts, "version": json.dumps(version)}
        return str(self._recorded["legacy"]["initialize"]) % facts

    def discover(self) -> str:
        """The result of `server/discover`."""
        return str(self._recorded["modern"]["server/discover"]) % self._facts

    def listing(self, method: str, *, modern: bool, more: Sequence[str] = ()) -> str:
        """The result of one of the listings, with `more` items behind the recorded ones."""
        recorded = self._recorded["modern" if modern else "legacy"][method]
        notes = self._recorded["notes"][method]
        items = [
            shown
            for name in self._domains
            for text, note in zip(recorded["items"].get(name, ()), notes.get(name, ()), strict=True)
            if (shown := self._shown(text, note))
        ]
        return str(recorded["frame"]) % {**self._facts, "items": ",".join([*items, *more])}

    def installed(self, text: str, *, writes: bool, method: str = "tools/list") -> str:
        """An installed tool or prompt as it is listed here; empty if it is left out."""
        if self._choice.is_everything or method != "tools/list":
            return text
        tool = json.loads(text)
        left_out = self._choice.why_left_out(tool["name"], writes=writes)
        tool["name"] = self._choice.selection.renamed(tool["name"])
        return "" if left_out else _text(tool)

    def _shown(self, text: str, note: Note) -> str:
        """A recorded item as it is listed here; empty if it is left out."""
        if self._choice.is_everything:
            return text
        tool, needed = note.get("tool"), note.get("needs", ())
        if (tool and not self._choice.name(tool)) or not self._choice.names.keys() >= set(needed):
            return ""
        item = json.loads(text)
        if "description" in note:
            item["description"] = self._choice.worded(note["description"])
        if "arguments" in note:
            schema = item["inputSchema"]
            known, texts = schema["properties"], note["arguments"]
            schema["properties"] = worded_arguments(known, texts, self._choice.name)
        if tool:
            item["name"] = self._choice.name(tool)
        return _text(item)


def known_tools() -> dict[str, Facts]:
    """Every tool that there is in any domain, chosen or not."""
    with open(PATH, encoding="utf-8") as stream:  # noqa: PTH123
        return _tools(json.load(stream))


def _tools(recorded: dict[str, Any]) -> dict[str, Facts]:
    return {
        note["tool"]: facts_of(domain, note)
        for domain, notes in recorded["notes"]["tools/list"].items()
        for note in notes
    }


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
