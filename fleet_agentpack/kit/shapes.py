"""Configuration in a declared shape: msgspec judges the values, this says what is wrong where.

A shape is a frozen dataclass or a msgspec Struct. msgspec is imported when a value is judged, so
that a module on the way to start-up can declare shapes for nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from fleet_agentpack.kit.results import to_text
from fleet_agentpack.kit.secret import Secret

T = TypeVar("T")
Part: TypeAlias = str | int
Place: TypeAlias = tuple[Part, ...]


@dataclass(frozen=True)
class Rule:
    """In an annotation: what a value must be in plain words, and what its type cannot say of it."""

    words: str
    accepts: Callable[[Any], bool] = lambda _: True


Text = Annotated[str, Rule("text that is not empty", lambda text: bool(text.strip()))]
Count = Annotated[int, Rule("a whole number that is not negative", lambda count: count >= 0)]
Seconds = Annotated[float, Rule("a number of seconds above 0", lambda seconds: seconds > 0)]


@dataclass(frozen=True)
class Nouns:
    """What the format of a file calls its collections."""

    mapping: str
    array: str


TOML = Nouns("a table", "a list")
YAML = Nouns("a mapping", "a list")
JSON = Nouns("an object", "a list")


@dataclass(frozen=True)
class Misfit:
    """One thing that does not fit, and where."""

    place: Place
    problem: str  # continues the name of the place: "must be text"

    @property
    def name(self) -> str:
        """The place as people write it: `fleet.coder.projects.web`, `commands[2].c1`."""
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place)
        return "".join(parts).removeprefix(".")

    def __str__(self) -> str:
        return f"{self.name} {self.problem}".strip()


@dataclass(frozen=True)
class UnknownKey(Misfit):
    """A key that the shape does not have."""

    nearest: str = ""

    @classmethod
    def among(cls, known: Iterable[str], place: Place) -> UnknownKey:
        """The misfit for a key that is not among the known ones."""
        import difflib

        near = difflib.get_close_matches(str(place[-1]), known, n=1)
        return cls(place, "is not a known key", near[0] if near else "")

    @property
    def hint(self) -> str:
        """The key that may be meant, as the end of a sentence; empty when none is near."""
        return f"; did you mean {self.nearest}?" if self.nearest else ""

    def __str__(self) -> str:
        return f"{super().__str__()}{self.hint}"


class ShapeError(ValueError):
    """Data that does not fit its shape; never quotes a value, which may be a secret."""

    def __init__(self, misfits: Sequence[Misfit]) -> None:
        super().__init__("; ".join(map(str, misfits)))
        self.misfits = tuple(misfits)


def convert(shape: type[T], data: Any, at: Place = (), nouns: Nouns = TOML) -> T:
    """The data as a value of the shape. Raises `ShapeError` with everything that does not fit."""
    import msgspec

    if found := misfits(shape, data, at, nouns):
        raise ShapeError(found)
    return msgspec.convert(data, shape, dec_hook=_made)


def misfits(shape: Any, data: Any, at: Place = (), nouns: Nouns = TOML) -> list[Misfit]:
    """Everything that does not fit; unknown keys only where the shape forbids them."""
    hint, rules, nullable = _plain(shape)
    if data is None and nullable:
        return []
    wrong = list(_wrong_inside(hint, data, at, nouns))
    if rules and (wrong or not all(rule.accepts(data) for rule in rules)):
        return [Misfit(at, f"must be {rules[0].words}{_told(hint, data)}")]
    return wrong


def unknown_keys(shape: Any, data: Any, at: Place = ()) -> list[UnknownKey]:
    """Every key that the shape does not have, with the known one that is nearest."""
    hint, _, _ = _plain(shape)
    found: list[UnknownKey] = []
    if not (_is_shape(hint) and isinstance(data, Mapping)):
        for part, kind, value in _inside(hint, data):
            found += unknown_keys(kind, value, (*at, part))
        return found
    known = _keys(hint)
    for key, value in data.items():
        if key in known:
            found += unknown_keys(known[key].kind, value, (*at, key))
        else:
            found.append(UnknownKey.among(known, (*at, str(key))))
    return found


def objects(rows: object) -> list[Mapping[str, Any]]:
    """The objects in a list of parsed data; whatever else is there is left out."""
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def known_keys(shape: Any) -> set[str]:
    """The name of every key in the shape, at any depth."""
    hint, _, _ = _plain(shape)
    if _is_shape(hint):
        found = _keys(hint)
        return set(found).union(*(known_keys(key.kind) for key in found.values()))
    return known_keys(get_args(hint)[-1]) if get_origin(hint) in _MAPPINGS else set()


def without(data: T, places: Iterable[Place]) -> T:
    """A copy of the data that lacks what is at these places."""
    dropped = set(places)

    def kept(value: object, at: Place) -> object:
        if isinstance(value, Mapping):
            items = ((key, (*at, key)) for key in value)
            return {key: kept(value[key], place) for key, place in items if place not in dropped}
        if isinstance(value, list):
            rows = ((row, (*at, i)) for i, row in enumerate(value))
            return [kept(row, place) for row, place in rows if place not in dropped]
        return value

    return typing.cast(T, kept(data, ()))


def _wrong_inside(hint: Any, data: Any, at: Place, nouns: Nouns) -> Iterator[Misfit]:
    wanted = nouns.mapping if _is_mapping(hint) else nouns.array if _is_array(hint) else ""
    if not wanted:
        if _refusal(hint, data):
            yield Misfit(at, f"must be {_wanted(hint, nouns)}{_told(hint, data)}")
    elif not isinstance(data, Mapping if _is_mapping(hint) else list | tuple):
        yield Misfit(at, f"must be {wanted}")
    else:
        wrong = list(_missing(hint, data, at)) if _is_shape(hint) else []
        for key, kind, value in _inside(hint, data):
            wrong += misfits(kind, value, (*at, key), nouns)
        yield from wrong
        if not wrong and (refusal := _refusal(hint, data)):  # of a key, or by the shape itself
            yield Misfit(at, str(refusal.__cause__ or "has a key that is not text"))


def _missing(hint: Any, data: Any, at: Place) -> Iterator[Misfit]:
    for name, key in _keys(hint).items():
        if key.required and name not in data:
            yield Misfit((*at, name), "is missing")
    config = getattr(hint, "__struct_config__", None)
    if config is not None and config.forbid_unknown_fields:
        unknown = (str(key) for key in data if key not in _keys(hint))
        yield from (UnknownKey.among(_keys(hint), (*at, key)) for key in unknown)


def _inside(hint: Any, data: Any) -> Iterator[tuple[Part, object, object]]:
    """The parts of a collection: key or index, what it must be, what it is."""
    if _is_shape(hint) and isinstance(data, Mapping):
        yield from ((n, key.kind, data[n]) for n, key in _keys(hint).items() if n in data)
    elif get_origin(hint) in _MAPPINGS and isinstance(data, Mapping):
        yield from ((str(key), get_args(hint)[1], value) for key, value in data.items())
    elif _is_array(hint) and isinstance(data, list | tuple):
        yield from ((i, get_args(hint)[0], value) for i, value in enumerate(data))


@dataclass(frozen=True)
class _Key:
    kind: Any
    required: bool


@functools.cache
def _keys(shape: Any) -> dict[str, _Key]:
    if dataclasses.is_dataclass(shape):
        hints = typing.get_type_hints(shape, include_extras=True)
        unset = dataclasses.MISSING
        return {
            field.name: _Key(
                hints[field.name], field.default is unset and field.default_factory is unset
            )
            for field in dataclasses.fields(shape)
        }
    import msgspec

    fields = msgspec.structs.fields(shape)
    return {field.encode_name: _Key(field.type, field.required) for field in fields}


def _refusal(hint: Any, data: Any) -> Exception | None:
    """What msgspec says against a value, unless it takes it."""
    import msgspec

    try:
        msgspec.convert(data, hint, dec_hook=_made)
    except msgspec.ValidationError as error:
        return error
    return None


def _made(kind: type[T], value: Any) -> T:
    if kind in (Path, Secret) and isinstance(value, str):
        return kind(value)  # type: ignore[call-arg]
    raise TypeError


def _plain(hint: Any) -> tuple[object, list[Rule], bool]:
    """A type without its annotations and without `None`; their rules; whether it may be `None`."""
    rules, nullable = [], False
    while True:
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            rules += [note for note in notes if isinstance(note, Rule)]
        elif get_origin(hint) in _UNIONS and type(None) in get_args(hint):
            nullable = True
            hint = Union[tuple(kind for kind in get_args(hint) if kind is not type(None))]  # noqa: UP007
        else:
            return hint, rules, nullable


_UNIONS = (Union, types.UnionType)
_MAPPINGS = (dict, Mapping)
_ARRAYS = (list, tuple, Sequence)


def _is_shape(hint: Any) -> bool:
    return isinstance(hint, type) and (
        dataclasses.is_dataclass(hint) or hasattr(hint, "__struct_fields__")
    )


def _is_mapping(hint: Any) -> bool:
    return _is_shape(hint) or get_origin(hint) in _MAPPINGS


def _is_array(hint: Any) -> bool:
    return get_origin(hint) in _ARRAYS


_WORDS: Mapping[Any, str] = {
    str: "text",
    Secret: "text",
    Path: "a path",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def _wanted(hint: Any, nouns: Nouns) -> str:
    """What a type wants, in plain words."""
    hint, rules, _ = _plain(hint)
    if rules:
        return rules[0].words
    if get_origin(hint) is Literal:
        return _listed([to_text(value) for value in get_args(hint)])
    if get_origin(hint) in _UNIONS:
        return _listed([_wanted(kind, nouns) for kind in get_args(hint)])
    if _is_mapping(hint) or hint in _MAPPINGS:
        return nouns.mapping
    return nouns.array if _is_array(hint) or hint in _ARRAYS else _WORDS.get(hint, "usable")


def _told(hint: Any, data: Any) -> str:
    """The value, where one of a few words was wanted: nothing else is certainly no secret."""
    return f", not {data[:80]!r}" if get_origin(hint) is Literal and isinstance(data, str) else ""


def _listed(choices: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
