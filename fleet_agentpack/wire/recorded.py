"""The recorded answers to handshakes and listings: `listing.json`, made by `wire/listing.py`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

PATH = os.path.join(os.path.dirname(__file__), "listing.json")  # noqa: PTH118, PTH120 - no pathlib
LISTINGS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


class Selection(NamedTuple):
    """What is served: some domains or all of them, with or without the tools that write."""

    only: tuple[str, ...] = ()
    read_only: bool = False


class RecordedListing:
    """What the server answers for one selection, before anything of it is imported."""

    def __init__(self, recorded: dict[str, Any], selection: Selection) -> None:
        self._recorded, self._selection = recorded, selection
        only = selection.only
        self._domains = [name for name in recorded["domains"] if not only or name in only]
        first = recorded["domains"][self._domains[0]]
        alone = bool(only) and len(self._domains) == 1
        lines = [recorded["domains"][name]["instructions"] for name in self._domains]
        self._facts = {
            "name": json.dumps(first["server_name"] if alone else recorded["server_name"]),
            "instructions": json.dumps(
                "\n".join([recorded["opening"], *lines]), ensure_ascii=False
            ),
        }

    @classmethod
    def read(cls, selection: Selection) -> RecordedListing | None:
        """The answers for a selection; None when a domain or the whole file is not there."""
        try:
            with open(PATH, encoding="utf-8") as stream:  # noqa: PTH123
                recorded = json.load(stream)
        except (OSError, ValueError):
            return None
        known = all(name in recorded["domains"] for name in selection.only)
        return cls(recorded, selection) if known else None

    @property
    def dynamic(self) -> dict[str, list[str]]:
        """The domains whose tools come and go, and the files below the home that tell of them."""
        found = {name: self._recorded["domains"][name]["sources"] for name in self._domains}
        return {name: sources for name, sources in found.items() if sources}

    @property
    def read_only(self) -> bool:
        """Whether the tools that write are left out."""
        return self._selection.read_only

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
        items = [
            text
            for name in self._domains
            for text, writes in recorded["items"].get(name, ())
            if not (writes and self.read_only)
        ]
        return str(recorded["frame"]) % {**self._facts, "items": ",".join([*items, *more])}
