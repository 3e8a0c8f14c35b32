"""A client's configuration file: read, edited by one entry, saved with a backup next to it."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fleet_agentpack.connect.client import Format
from fleet_agentpack.connect.errors import ConnectError
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.keyed_edit import FormatError

BOM = "\ufeff"


@dataclass(frozen=True)
class ConfigFile:
    """The file as it was read; `content` is None when it does not exist."""

    path: Path
    format: Format
    content: bytes | None

    @classmethod
    def read(cls, path: Path, format: Format) -> ConfigFile:
        """Read and parse a file. Raises `ConnectError` and leaves it alone if that fails."""
        try:
            file = cls(path, format, path.read_bytes() if path.exists() else None)
            format.parse(file.text)
        except (OSError, UnicodeDecodeError, FormatError) as error:
            raise ConnectError(
                f"{path} cannot be used: {error}",
                "It was left as it is. Correct it, or add the entry by hand (--print shows it).",
            ) from error
        return file

    @property
    def text(self) -> str:
        """The content without a byte order mark."""
        return (self.content or b"").decode("utf-8").removeprefix(BOM)

    def find(self, keys: Sequence[str]) -> object:
        """What stands at that path, or None."""
        found: object = self.format.parse(self.text)
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def with_entry(self, keys: Sequence[str], value: Mapping[str, object] | None) -> str:
        """The text with the entry set, or without it if the value is None.

        Raises `ConnectError` if anything else would change.
        """
        edit, text = self.format, self.text
        try:
            edited = edit.drop(text, keys) if value is None else edit.put(text, keys, value)
            before, after = (_without(edit.parse(each), keys) for each in (text, edited))
            # As text, since a TOML nan does not equal itself; this compares order and types too.
            if repr(before) != repr(after):
                raise FormatError("other settings would change with it")
        except FormatError as error:
            raise ConnectError(
                f"{self.path} cannot be edited safely: {error}",
                "It was left as it is. Edit it by hand (--print shows the entry).",
            ) from error
        return edited

    def save(self, text: str, *, over: ConfigFile | None = None) -> Path | None:
        """Replace the file in one step; returns the backup of what was read.

        Raises `ConnectError` when the file is no longer as read (or as it is in `over`).
        """
        target = self.path.resolve()  # a link, as dotfile managers make them, stays a link
        try:
            if ConfigFile.read(self.path, self.format).content != (over or self).content:
                raise ConnectError(f"{self.path} was changed by another program; try again")
            backup = None if self.content is None else self._back_up(target, self.content)
            mark = BOM if (self.content or b"").startswith(BOM.encode()) else ""
            write_atomic(target, mark + text, durable=True)
        except OSError as error:
            raise ConnectError(f"{self.path} cannot be written: {error}") from error
        return backup

    def keeps(self, earlier: ConfigFile, keys: Sequence[str]) -> bool:
        """Whether every setting but the entry is still as it was; new ones may have come."""
        parse = self.format.parse
        return _contains(parse(self.text), _without(parse(earlier.text), keys))

    @staticmethod
    def _back_up(target: Path, content: bytes) -> Path:
        stamp = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
        backup = target.with_name(f"{target.name}.{stamp}.bak")
        number = 1
        while backup.exists():
            number += 1
            backup = target.with_name(f"{target.name}.{stamp}-{number}.bak")
        write_atomic(backup, content, mode=stat.S_IMODE(target.stat().st_mode), durable=True)
        return backup


def _contains(now: object, earlier: object) -> bool:
    if isinstance(now, dict) and isinstance(earlier, dict):
        return all(key in now and _contains(now[key], earlier[key]) for key in earlier)
    return repr(now) == repr(earlier)


def _without(values: Mapping[str, object], keys: Sequence[str]) -> Mapping[str, object]:
    """All but the entry, and but the objects that hold nothing else."""
    first, *rest = keys
    kept = dict(values)
    below = kept.get(first)
    if rest and isinstance(below, dict):
        kept[first] = _without(below, rest)
    if not rest or kept.get(first) == {}:
        kept.pop(first, None)
    return kept
