"""What deploy promises, said once more and without looking at how it is done.

A `Promise` is the part of a disk that both the user and deploy write to, who wrote each file, and
what stood there before. Its methods say what a command must leave behind. They return a new
`Promise` and touch no disk; a test runs the command and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class File(NamedTuple):
    """A regular file."""

    data: bytes
    mode: int


class Link(NamedTuple):
    """A symbolic link."""

    to: str


Entry = File | Link | None


class Wanted(NamedTuple):
    """A file that a pack wants, and the mode that it gets where nothing stood before."""

    data: bytes
    mode: int


class Claim(NamedTuple):
    """A path that a pack has taken: what stood there before, and what the pack wrote."""

    pack: str
    origin: Entry
    wrote: bytes | None  # None: the user's file had the same bytes, and nothing was written
    mode: int  # what it gets where nothing stood before
    also: tuple[Entry, ...] = ()  # other origins that are as good an answer

    def is_untouched(self, found: Entry) -> bool:
        """Whether what is there is what the pack wrote."""
        return isinstance(found, File) and found.data == self.wrote


class Refused(Exception):
    """The command must refuse, with this code, and write nothing."""

    def __init__(self, code: str, paths: list[str]) -> None:
        super().__init__(code, paths)
        self.code = code
        self.paths = paths


class Applied(NamedTuple):
    """An apply that can be undone or returned to."""

    pack: str
    inside: Callable[[str], bool]
    snapshot_id: str
    undo_id: str
    before: Promise
    after: Promise

    def touched(self) -> list[str]:
        """The paths that it changed, or learnt something about."""
        one, two = self.before, self.after
        return [
            path
            for path in sorted({*one.disk, *two.disk, *one.claims, *two.claims, *one.left})
            if one.found(path) != two.found(path) or one.knows(path) != two.knows(path)
        ]


@dataclass
class Promise:
    """A disk and what is known about it."""

    disk: dict[str, Entry] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    left: dict[str, Claim] = field(default_factory=dict)  # edited, so they stayed; the pack let go
    loose: dict[str, tuple[Entry, ...]] = field(default_factory=dict)  # other good outcomes
    named: set[str] = field(default_factory=set)  # what the command must name as kept
    maybe: dict[str, Claim] = field(default_factory=dict)  # of `loose` ones, if the other came true

    def next(self) -> Promise:
        """A copy for the next command to change."""
        return Promise(dict(self.disk), dict(self.claims), dict(self.left))

    def found(self, path: str) -> Entry:
        """What is at a path."""
        return self.disk.get(path)

    def knows(self, path: str) -> tuple[Claim | None, Claim | None]:
        """What is known of a path."""
        return self.claims.get(path), self.left.get(path)

    def knows_as_much(self, other: Promise) -> bool:
        """Whether the same is known of every path."""
        return (self.claims, self.left) == (other.claims, other.left)

    def is_open(self, pack: str, wanted: Mapping[str, Wanted]) -> bool:
        """Whether nothing is promised: another pack let go of an edited file that is wanted."""
        return any(path in self.left and self.left[path].pack != pack for path in wanted)

    # Commands.

    def deploy(
        self, pack: str, wanted: Mapping[str, Wanted], inside: Callable[[str], bool], *, adopt: bool
    ) -> Promise:
        """All that a pack wants is there; what it no longer wants is given back."""
        taken = [p for p in wanted if (claim := self.claims.get(p)) and claim.pack != pack]
        if taken:
            raise Refused("conflict", taken)
        needs = [path for path, want in wanted.items() if self._needs_adopt(path, want)]
        if needs and not adopt:
            raise Refused("E_ADOPT_CONFIRM_REQUIRED", needs)
        after = self.next()
        for path, want in wanted.items():
            after._take(pack, path, want)
        for path, claim in self.claims.items():
            if claim.pack == pack and inside(path) and path not in wanted:
                after._give_back(path)
        return after

    def _needs_adopt(self, path: str, want: Wanted) -> bool:
        found, claim = self.found(path), self.claims.get(path)
        if found is None or (isinstance(found, File) and found.data == want.data):
            return False
        return claim is None or not claim.is_untouched(found)

    def _take(self, pack: str, path: str, want: Wanted) -> None:
        found, claim = self.found(path), self.claims.get(path)
        if claim is None and path in self.left:  # the edit that stayed may count as the origin
            claim = self.left.pop(path)
            claim = claim._replace(also=(*claim.also, found))
        same = isinstance(found, File) and found.data == want.data
        if same and (claim is None or claim.wrote is None):
            self.claims[path] = Claim(pack, found, None, want.mode)
            return
        mode = found.mode if isinstance(found, File) else want.mode
        self.disk[path] = File(want.data, mode)
        if claim is None or (claim.wrote is None and found is not None):
            self.claims[path] = Claim(pack, found, want.data, want.mode)
        elif claim.wrote is None:  # the user's file, which the user has deleted since
            self.claims[path] = Claim(pack, None, *want, (claim.origin,))
        else:
            self.claims[path] = claim._replace(pack=pack, wrote=want.data, mode=want.mode)

    def _give_back(self, path: str, *, forget: bool = False) -> None:
        claim, found = self.claims.pop(path, None) or self.left.pop(path), self.found(path)
        if claim.wrote is None:
            return
        untouched = found is None or claim.is_untouched(found)
        if _same_bytes(found, claim.origin):
            if untouched and claim.also:
                self.loose[path] = claim.also
            return
        if not untouched:
            if None not in claim.also:  # else it was named before, and may be forgotten
                self.named.add(path)
            also = (*claim.also, None) if forget else claim.also
            self.left[path] = claim._replace(also=also)
            return
        self._put(path, claim.origin)
        if claim.also:
            self.loose[path] = claim.also

    def _put(self, path: str, entry: Entry) -> None:
        if entry is None:
            self.disk.pop(path, None)
        else:
            self.disk[path] = entry

    def uninstall(self, inside: Callable[[str], bool]) -> Promise:
        """Everything as it was before the first deploy; what the user has edited since stays."""
        after = self.next()
        for path in [*self.claims, *self.left]:
            if inside(path):
                after._give_back(path, forget=True)
        return after

    def undo(self, last: Applied) -> Promise:
        """Everything as before that apply; what the user has edited since stays."""
        after = self.next()
        for path in last.touched():
            before, written = last.before.found(path), last.after.found(path)
            found = self.found(path)
            if found is None and written is not None:
                after.loose[path] = (None,)  # the user deleted it since
            elif not any(_same_bytes(found, each) for each in (None, written, before)):
                after.named.add(path)
                continue
            after._put(path, before)
            if found != written:  # the user changed its mode since
                after._allow_mode(path, found)
            after._know(path, last.before)
        return after

    def rollback(self, to: Applied) -> Promise:
        """Everything that this pack managed as it was after that apply."""
        after = self.next()
        mine = {p for p, c in self.claims.items() if c.pack == to.pack and to.inside(p)}
        then = {p: c for p, c in to.after.claims.items() if c.pack == to.pack and to.inside(p)}
        for path in mine - set(then):
            claim, found = self.claims[path], self.found(path)
            after._give_back(path)
            if path in after.named:  # an edit may be saved and replaced, as where it is listed
                after.loose[path] = (claim.origin, *_modes_of(claim.origin, found))
        for path in to.after.left:  # it was there then, edited
            after.loose[path] = (*after.loose.get(path, ()), to.after.found(path))
        for path, claim in then.items():
            after._return(path, claim, to)
        return after

    def _return(self, path: str, claim: Claim, to: Applied) -> None:
        found, now, target = self.found(path), self.claims.get(path), to.after.found(path)
        ours = now is not None and now.pack == to.pack and now.is_untouched(found)
        if claim.wrote is None:
            if _same_bytes(found, target):
                return
            if ours:
                self._give_back(path)
            else:
                self.loose[path] = (target, *_modes_of(target, found, File(b"", claim.mode)))
            return
        if _same_bytes(found, target):
            if now and ours:
                self.claims[path] = claim._replace(origin=now.origin)
            return
        modes = _modes_of(target, found, File(b"", claim.mode))
        if found is None or ours:
            self._put(path, target)
            self.loose[path] = modes
            self.claims[path] = claim._replace(origin=now.origin if now else claim.origin)
        else:
            self.loose[path] = (target, *modes)
            self.maybe[path] = claim
            self.named.add(path)

    def _allow_mode(self, path: str, found: Entry) -> None:
        """It may keep the mode that it has, too."""
        self.loose[path] = _modes_of(self.found(path), found)

    def _know(self, path: str, other: Promise) -> None:
        for mine, theirs in ((self.claims, other.claims), (self.left, other.left)):
            mine.pop(path, None)
            if path in theirs:
                mine[path] = theirs[path]

    # Comparing.

    def differs(self, actual: Mapping[str, Entry]) -> dict[str, tuple[Entry, Entry]]:
        """Where a disk is not as promised: promised and actual."""
        return {
            path: (self.found(path), actual.get(path))
            for path in {*self.disk, *actual}
            if not self._is_good(path, actual.get(path))
        }

    def _is_good(self, path: str, actual: Entry) -> bool:
        return actual == self.found(path) or actual in self.loose.get(path, ())

    def settled(self, actual: Mapping[str, Entry]) -> Promise:
        """This promise, with what was left open as it turned out."""
        claims = dict(self.claims)
        for path, claim in self.maybe.items():
            if actual.get(path) != self.found(path):
                claims[path] = claim
        return Promise(dict(actual), claims, dict(self.left))


def _modes_of(entry: Entry, *others: Entry) -> tuple[Entry, ...]:
    """A file with the modes of others."""
    if not isinstance(entry, File):
        return ()
    return tuple(entry._replace(mode=each.mode) for each in others if isinstance(each, File))


def _same_bytes(one: Entry, other: Entry) -> bool:
    if isinstance(one, File) and isinstance(other, File):
        return one.data == other.data
    return one == other
