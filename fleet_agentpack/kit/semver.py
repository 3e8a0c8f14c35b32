"""Semantic versions as semver 2.0 orders them, and version ranges as npm reads them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import total_ordering

MAX_LENGTH = 256

_NUMBER = r"(?:0|[1-9][0-9]*)"
_PRE = rf"(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_TAIL = rf"(?:-({_PRE}(?:\.{_PRE})*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
_VERSION = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER}){_TAIL}\Z")


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
        major, minor, patch, pre, build = match.groups()
        return cls(int(major), int(minor), int(patch), _identifiers(pre), build or "")

    @property
    def core(self) -> tuple[int, int, int]:
        """Major, minor and patch."""
        return self.major, self.minor, self.patch

    def __str__(self) -> str:
        pre = f"-{'.'.join(self.pre)}" if self.pre else ""
        build = f"+{self.build}" if self.build else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}{build}"

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
    parsed = {text: version for text in versions if (version := _parsed(text))}
    fitting = (text for text, version in parsed.items() if allowed.allows(version))
    return max(fitting, key=parsed.__getitem__, default=None)


def is_newer(candidate: str, current: str) -> bool:
    """Whether a version follows another; text that is no version follows nothing."""
    new, old = _parsed(candidate), _parsed(current)
    return bool(new and old and new > old)


_OPERATORS: dict[str, Callable[[Version, Version], bool]] = {
    "": operator.eq,
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_OPEN = r"(?:0|[1-9][0-9]*|[xX*])"
_PARTIAL = rf"[v=]*({_OPEN})(?:\.({_OPEN})(?:\.({_OPEN}){_TAIL})?)?"
_SIGN = r"(>=|<=|>|<|=|\^|~>|~)"
_BOUND = re.compile(rf"{_SIGN}?{_PARTIAL}\Z")
_HYPHENATED = re.compile(rf"{_PARTIAL} - {_PARTIAL}\Z")
_SPACED_SIGN = re.compile(f"{_SIGN} ")


@dataclass(frozen=True)
class _Partial:
    """A version whose tail may be missing: `1`, `1.2`, `1.x`, `1.2.3-beta`."""

    numbers: tuple[int, ...]
    pre: tuple[str, ...] = ()

    @classmethod
    def of(cls, groups: Sequence[str | None]) -> _Partial:
        """From what `_PARTIAL` matched."""
        *numbers, pre, _ = groups
        known = [number for number in numbers if number and number not in "xX*"]
        if known != numbers[: len(known)]:
            raise RangeError("a number cannot follow x in a version range")
        return cls(tuple(map(int, known)), _identifiers(pre) if len(known) == 3 else ())

    @property
    def floor(self) -> Version:
        """The lowest version meant."""
        return _filled(self.numbers, self.pre)

    def ceiling(self, fixed: int) -> Version:
        """Below this, the first `fixed` numbers stay as they are."""
        *kept, last = self.numbers[:fixed]
        return _filled([*kept, last + 1], ("0",))


def _alternative(part: str, whole: str) -> tuple[_Comparator, ...]:
    text = " ".join(part.split())
    if match := _HYPHENATED.match(text):
        low, high = _Partial.of(match.groups()[:5]), _Partial.of(match.groups()[5:])
        return (*_bounds(">=", low), *_bounds("<=", high))
    bounds: list[_Comparator] = []
    for token in _SPACED_SIGN.sub(r"\1", text).split():
        match = _BOUND.match(token)
        if not match:
            raise RangeError(f"not a version range: {whole[:80]!r}")
        bounds += _bounds(match[1] or "", _Partial.of(match.groups()[1:]))
    return tuple(bounds)


def _bounds(sign: str, partial: _Partial) -> tuple[_Comparator, ...]:
    given, floor = len(partial.numbers), partial.floor
    if not given:
        return (_Comparator("<", _filled([], ("0",))),) if sign in ("<", ">") else ()
    if sign == ">=" or (given == 3 and sign in _OPERATORS):
        return (_Comparator(sign, floor),)
    if sign == "<":
        return (_Comparator("<", _filled(partial.numbers, ("0",))),)
    if sign == "<=":
        return (_Comparator("<", partial.ceiling(given)),)
    if sign == ">":
        return (_Comparator(">=", Version(*partial.ceiling(given).core)),)
    fixed = given
    if sign == "^":  # up to the first number that is not zero
        fixed = next((i for i, number in enumerate(partial.numbers, 1) if number), given)
    elif sign.startswith("~"):
        fixed = min(given, 2)
    return _Comparator(">=", floor), _Comparator("<", partial.ceiling(fixed))


def _names_prerelease(bounds: Sequence[_Comparator], version: Version) -> bool:
    return any(bound.version.pre and bound.version.core == version.core for bound in bounds)


def _filled(numbers: Sequence[int], pre: tuple[str, ...]) -> Version:
    """A version whose missing numbers are 0."""
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return Version(major, minor, patch, pre)


def _identifiers(pre: str | None) -> tuple[str, ...]:
    return tuple(pre.split(".")) if pre else ()


def _parsed(text: str) -> Version | None:
    try:
        return Version.parse(text)
    except VersionError:
        return None
