"""Which pack a config repo is: an id inside it, made once and kept wherever the repo goes."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.deploy import reads

ID_FILE = Path(".agentpack", "pack-id")
_ID = re.compile(r"[\w.:-]{1,100}\Z", re.ASCII)


@dataclass(frozen=True)
class Pack:
    """A pack as the record names it."""

    path: str  # where the repo really is
    id: str = ""
    is_default: bool = False  # whether it is the home's own repo

    @property
    def key(self) -> str:
        """The name for what is taken from now on."""
        return f"id:{self.id}" if self.id else f"path:{self.path}"

    def is_called(self, name: str) -> bool:
        """Whether a name in the record means this pack; what agentpack wrote has no name."""
        if name.startswith("path:"):  # a repo that was moved may have left a link
            return os.path.realpath(name.removeprefix("path:")) == self.path
        return name == self.key or (not name and self.is_default)


def is_gone(name: str) -> bool:
    """Whether a pack went by the path of its repo, and the repo was moved away or deleted."""
    return name.startswith("path:") and not os.path.lexists(name.removeprefix("path:"))


def pack_of(repo: Path, default_repo: Path) -> Pack:
    """The pack that a repo is; nothing is written."""
    place = repo / ID_FILE
    reads.at(place)
    try:
        text = place.read_text("ascii").strip()
    except (OSError, ValueError):
        text = ""
    path = os.path.realpath(repo)
    is_default = path == os.path.realpath(default_repo) or not default_repo.is_dir()
    return Pack(path, text if _ID.match(text) else "", is_default)


def new_id() -> str:
    """The text of the file that names a new pack."""
    return f"{secrets.token_hex(16)}\n"
