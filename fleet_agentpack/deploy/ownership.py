"""The record of ownership and origin: who took each path, when, and what stood there before.

Everything that decides whether a file is ours to change or delete asks this record. It belongs to
one agentpack home, lies in its `state/ownership`, and changes together with the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.kit.disk import State
from fleet_agentpack.kit.parsed import Parsed

VERSION = 1
FILE_NAME = "record.json"


class Origin(NamedTuple):
    """What stood at a path before it was taken."""

    kind: Literal["file", "link"]
    sha256: str  # of the file's bytes, or of what the link led to
    mode: int
    link: str | None = None

    @classmethod
    def of(cls, found: State | None) -> Origin | None:
        """The origin that a state on the disk is; None for nothing."""
        if found is None:
            return None
        kind: Literal["file", "link"] = "link" if found.link is not None else "file"
        return cls(kind, found.sha256, found.mode, found.link)

    @property
    def state(self) -> State:
        """What it takes to bring it back."""
        return State(self.kind, self.sha256, self.mode, self.link)


class Entry(NamedTuple):
    """One path that was taken."""

    sha256: str  # as it was last written
    since: str  # the snapshot that took it
    origin: Origin | None = None  # None: there was nothing

    @property
    def is_shared(self) -> bool:
        """Whether it was there with the very bytes, so that nothing was written."""
        return self.origin is not None and self.origin.sha256 == self.sha256


class Holder(NamedTuple):
    """Whose files these are: a pack's, for one root of a target."""

    pack: str  # empty where agentpack deployed them, which does not say
    target: str
    root: str
    scope: str  # `user`, `project`, or empty where that is not known

    def path(self, relative: str) -> str:
        """A path below the root."""
        return f"{self.root}/{relative}" if self.root != "/" else f"/{relative}"

    def relative(self, path: str) -> str:
        """A path as seen from the root."""
        return path[len(self.root.rstrip("/")) + 1 :]


class Held(NamedTuple):
    """A path's place in the record."""

    holder: Holder
    entry: Entry


@dataclass(frozen=True)
class Holding:
    """The files of one holder, by their path below the root, and the root's manifest."""

    pack: str
    target: str
    root: str
    scope: str
    files: Mapping[str, Entry]
    manifest: Entry | None = None

    @property
    def holder(self) -> Holder:
        """Whose files these are."""
        return Holder(self.pack, self.target, self.root, self.scope)

    @cached_property
    def by_path(self) -> dict[str, Entry]:
        """The files by their whole path."""
        prefix = self.holder.path("")
        return {prefix + name: entry for name, entry in self.files.items()}


@dataclass(frozen=True)
class Record:
    """Everything that this home has taken."""

    version: int = VERSION
    through: str = ""  # the newest snapshot that is accounted for
    packs: Mapping[str, str] = field(default_factory=dict)  # where each was deployed from last
    holdings: tuple[Holding, ...] = ()
    directories: tuple[str, ...] = ()  # made by a deploy, and still there

    @cached_property
    def by_holder(self) -> dict[Holder, Holding]:
        """The holdings by their holder."""
        return {holding.holder: holding for holding in self.holdings}

    def find(self, path: str) -> Held | None:
        """Who holds a path."""
        for holding in self.holdings:
            entry = holding.by_path.get(path) if path.startswith(holding.holder.path("")) else None
            if entry is not None:
                return Held(holding.holder, entry)
        return None

    def of_root(self, target: str, root: str) -> Iterator[Holding]:
        """The holdings of one root of a target."""
        return (each for each in self.holdings if (each.target, each.root) == (target, root))

    @property
    def contents(self) -> Iterator[str]:
        """The hashes of all contents that the record may need."""
        for holding in self.holdings:
            for entry in (*holding.files.values(), *filter(None, [holding.manifest])):
                yield entry.sha256
                if entry.origin is not None and entry.origin.kind == "file":
                    yield entry.origin.sha256

    def encode(self) -> bytes:
        """The record as it is stored."""
        return msgspec.json.encode(self)


class Draft:
    """A record in the making: entries come and go, then it is done."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._files: dict[Holder, dict[str, Entry]] = {}
        self._manifests: dict[Holder, Entry | None] = {}

    def put(self, holder: Holder, path: str, entry: Entry | None) -> None:
        """Give a path an entry, or none."""
        files = self._changed(holder)
        if entry is None:
            files.pop(holder.relative(path), None)
        else:
            files[holder.relative(path)] = entry

    def entry(self, holder: Holder, path: str) -> Entry | None:
        """The entry of a path as it is by now."""
        if holder in self._files:
            return self._files[holder].get(holder.relative(path))
        known = self._record.by_holder.get(holder)
        return known.files.get(holder.relative(path)) if known else None

    def put_manifest(self, holder: Holder, entry: Entry | None) -> None:
        """Say what the root's manifest is."""
        self._manifests[holder] = entry

    def done(
        self,
        through: str,
        *,
        made: Iterable[str] = (),
        emptied: Iterable[str] = (),
        packs: Mapping[str, str] | None = None,
    ) -> Record:
        """The new record."""
        before, gone = self._record, set(emptied)
        holders = dict.fromkeys([*before.by_holder, *self._files, *self._manifests])
        holdings = [self._holding(holder) for holder in holders]
        directories = dict.fromkeys([*before.directories, *made])
        return replace(
            before,
            through=through,
            packs={**before.packs, **(packs or {})},
            holdings=tuple(each for each in holdings if each.files or each.manifest),
            directories=tuple(each for each in directories if each not in gone),
        )

    def _changed(self, holder: Holder) -> dict[str, Entry]:
        if holder not in self._files:
            known = self._record.by_holder.get(holder)
            self._files[holder] = dict(known.files) if known else {}
        return self._files[holder]

    def _holding(self, holder: Holder) -> Holding:
        known = self._record.by_holder.get(holder)
        files = self._files.get(holder, known.files if known else {})
        manifest = self._manifests.get(holder, known.manifest if known else None)
        return Holding(*holder, files, manifest)


@dataclass
class RecordFile:
    """The stored record, read again only when it has changed."""

    path: Path
    last: Parsed[Record] = field(default_factory=Parsed)

    def load(self) -> Record:
        """The record; an empty one where there is none yet. Raises `DeployError`."""
        reads.at(self.path)
        try:
            return self.last.get(self.path, self._parse)
        except FileNotFoundError:
            return Record()
        except OSError as error:
            raise DeployError.io(self.path, error, "read") from error

    def _parse(self, data: bytes) -> Record:
        try:
            found = msgspec.json.decode(data, type=Record)
        except (ValueError, RecursionError) as error:
            raise _unusable(self.path, "cannot be understood") from error
        if found.version != VERSION:
            raise _unusable(self.path, f"has version {found.version}, which is not known here")
        return found


def _unusable(path: Path, problem: str) -> DeployError:
    return DeployError.because(
        "ownership_unreadable",
        f"the record of what was deployed {problem}: {path}; nothing is changed without it: restore"
        " it, or move it away, and then the snapshots tell what was deployed, and over what",
        path=str(path),
    )


Claim = Callable[[Mapping[str, State | None]], Record]  # from what is replaced to the new record
