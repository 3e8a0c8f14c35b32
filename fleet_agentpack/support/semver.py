"""Semantic versions: parsing and precedence as semver 2.0 defines them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

_VERSION = re.compile(
    r"(?P<major>0|[1-9][0-9]*)\.(?P<minor>0|[1-9][0-9]*)\.(?P<patch>0|[1-9][0-9]*)"
    r"(?:-(?P<pre>(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+(?P<build>[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?\Z"
)
MAX_LENGTH = 256


class VersionError(ValueError):
    """Text that is not a semantic version."""


@total_ordering
@dataclass(frozen=True, eq=False)
class Version:
    """A version, ordered by precedence; build metadata is kept but does not count."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()
    build: str = ""

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read a version. Raises `VersionError`."""
        match = _VERSION.match(text) if len(text) <= MAX_LENGTH else None
        if not match:
            raise VersionError(f"not a semantic version: {text[:80]!r}")
        return cls(
            int(match["major"]),
            int(match["minor"]),
            int(match["patch"]),
            tuple(match["pre"].split(".")) if match["pre"] else (),
            match["build"] or "",
        )

    @property
    def core(self) -> tuple[int, int, int]:
        """Major, minor and patch."""
        return self.major, self.minor, self.patch

    def __str__(self) -> str:
        pre = f"-{'.'.join(self.pre)}" if self.pre else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}" + (
            f"+{self.build}" if self.build else ""
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key() == other._key()

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
        parts = tuple(
            (False, int(part), "") if part.isdigit() else (True, 0, part) for part in self.pre
        )
        return self.core, not self.pre, parts
