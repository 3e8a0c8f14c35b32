"""Semantic versions as semver 2.0 orders them, and version ranges as npm reads them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
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


class RangeError(ValueError):
    """Text that is not an npm version range."""


@dataclass(frozen=True)
class _Comparator:
    """One bound: an operator and the version it compares with."""

    operator: str
    version: Version

    def holds(self, other: Version) -> bool:
        return _OPERATORS[self.operator](other, self.version)


@dataclass(frozen=True)
class Range:
    """An npm version range: alternatives (`||`), each a list of bounds that must all hold."""

    text: str
    _alternatives: tuple[tuple[_Comparator, ...], ...]

    @classmethod
    def parse(cls, text: str) -> Range:
        """Read a range as npm does; empty, `*` and `latest` mean any. Raises `RangeError`."""
        if len(text) > MAX_LENGTH:
            raise RangeError(f"not a version range: {text[:80]!r}")
        wanted = "" if text.strip() == "latest" else text
        return cls(text, tuple(_alternative(part, text) for part in wanted.split("||")))

    def allows(self, version: Version) -> bool:
        """Whether a version is inside; a prerelease only where the range names one of its core."""
        return any(
            all(bound.holds(version) for bound in bounds)
            and (not version.pre or _names_prerelease(bounds, version))
            for bounds in self._alternatives
        )


def best_version(available: Iterable[str], wanted: str = "latest") -> str | None:
    """The highest version that a range allows; text that is no range must match exactly."""
    versions = list(available)
    try:
        allowed = Range.parse(wanted)
    except RangeError:
        return wanted if wanted in versions else None
    parsed = [(version, text) for text in versions if (version := _parsed(text))]
    fitting = [(version, text) for version, text in parsed if allowed.allows(version)]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def is_newer(candidate: str, current: str) -> bool:
    """Whether a version follows another; text that is no version follows nothing."""
    new, old = _parsed(candidate), _parsed(current)
    return bool(new and old and new > old)


_OPERATORS: dict[str, Callable[[Version, Version], bool]] = {
    "": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_PRE = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_NUMBER = r"(?:0|[1-9][0-9]*|[xX*])"
_PARTIAL = (
    rf"[v=]*({_NUMBER})(?:\.({_NUMBER})(?:\.({_NUMBER})"
    rf"(?:-({_PRE}(?:\.{_PRE})*))?(?:\+{_IDENTIFIERS})?)?)?"
)
_BOUND = re.compile(rf"(>=|<=|>|<|=|\^|~>|~|){_PARTIAL}\Z")
_HYPHENATED = re.compile(rf"{_PARTIAL} - {_PARTIAL}\Z")
_SPACED_OPERATOR = re.compile(r"(>=|<=|>|<|=|\^|~>|~) ")
_NOTHING = _Comparator("<", Version(0, 0, 0, ("0",)))


@dataclass(frozen=True)
class _Partial:
    """A version whose tail may be missing: `1`, `1.2`, `1.x`, `1.2.3-beta`."""

    major: int | None
    minor: int | None
    patch: int | None
    pre: tuple[str, ...] = ()

    @classmethod
    def of(cls, major: str, minor: str | None, patch: str | None, pre: str | None) -> _Partial:
        first, second, third = _number(major), _number(minor), _number(patch)
        if (first is None and second is not None) or (second is None and third is not None):
            raise RangeError("a number cannot follow x in a version range")
        return cls(first, second, third, tuple(pre.split(".")) if pre and third is not None else ())

    @property
    def floor(self) -> Version:
        """The lowest version meant."""
        return Version(self.major or 0, self.minor or 0, self.patch or 0, self.pre)

    def ceiling(self, fixed: int) -> Version:
        """Below this, the first `fixed` numbers stay as they are."""
        major, minor, patch = self.floor.core
        if fixed == 1:
            return Version(major + 1, 0, 0, ("0",))
        if fixed == 2:
            return Version(major, minor + 1, 0, ("0",))
        return Version(major, minor, patch + 1, ("0",))

    @property
    def given(self) -> int:
        """How many of the three numbers are there."""
        return sum(number is not None for number in (self.major, self.minor, self.patch))


def _number(text: str | None) -> int | None:
    return None if text is None or text in "xX*" else int(text)


def _alternative(part: str, whole: str) -> tuple[_Comparator, ...]:
    text = " ".join(part.split())
    if match := _HYPHENATED.match(text):
        low, high = _Partial.of(*match.groups()[:4]), _Partial.of(*match.groups()[4:])
        return (*_at_least(low), *_at_most(high))
    bounds: list[_Comparator] = []
    for token in _SPACED_OPERATOR.sub(r"\1", text).split():
        match = _BOUND.match(token)
        if not match:
            raise RangeError(f"not a version range: {whole[:80]!r}")
        bounds += _bounds(match[1], _Partial.of(*match.groups()[1:]))
    return tuple(bounds)


def _bounds(sign: str, partial: _Partial) -> tuple[_Comparator, ...]:
    if partial.given == 0:
        return (_NOTHING,) if sign in ("<", ">") else ()
    if sign == "^":
        return _between(partial, _caret_fixed(partial))
    if sign.startswith("~"):
        return _between(partial, min(partial.given, 2))
    if sign in ("", "="):
        exact = partial.given == 3
        return (_Comparator("", partial.floor),) if exact else _between(partial, partial.given)
    if partial.given == 3:
        return (_Comparator(sign, partial.floor),)
    return (_open_bound(sign, partial),)


def _open_bound(sign: str, partial: _Partial) -> _Comparator:
    above = partial.ceiling(partial.given)
    if sign == ">":
        return _Comparator(">=", Version(*above.core))
    if sign == "<=":
        return _Comparator("<", above)
    if sign == "<":
        return _Comparator("<", Version(*partial.floor.core, pre=("0",)))
    return _Comparator(">=", partial.floor)


def _caret_fixed(partial: _Partial) -> int:
    """How many numbers a caret holds: up to the first that is not zero."""
    if partial.major or partial.given == 1:
        return 1
    return 2 if partial.minor or partial.given == 2 else 3


def _between(partial: _Partial, fixed: int) -> tuple[_Comparator, ...]:
    return _Comparator(">=", partial.floor), _Comparator("<", partial.ceiling(fixed))


def _at_least(partial: _Partial) -> tuple[_Comparator, ...]:
    return (_Comparator(">=", partial.floor),) if partial.given else ()


def _at_most(partial: _Partial) -> tuple[_Comparator, ...]:
    if partial.given == 3:
        return (_Comparator("<=", partial.floor),)
    return (_Comparator("<", partial.ceiling(partial.given)),) if partial.given else ()


def _names_prerelease(bounds: Sequence[_Comparator], version: Version) -> bool:
    return any(bound.version.pre and bound.version.core == version.core for bound in bounds)


def _parsed(text: str) -> Version | None:
    try:
        return Version.parse(text)
    except VersionError:
        return None
