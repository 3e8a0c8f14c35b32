"""Checks values against a publisher's JSON Schema, which may be wrong or made to hang us.

A schema is tried out in a child process, within limits, before a tool is installed. A call uses
a compiled form of it that gives up after so many steps.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.manifest import ManifestError
from fleet_agentpack.kit import process
from fleet_agentpack.kit.errors import Problem

LONGEST_CHECK_S = 5  # of the child's own work
LONGEST_WAIT_S = 60.0  # for it, on a machine that is busy
MOST_STEPS = 400_000  # keywords applied in one check, and what each has to look at
REFERENCE_STEPS = 20  # what following a reference counts as; it takes that much longer
MOST_MEMORY = 512 * 1024**2  # of the child
TOO_LONG = "checking it takes too long"


_PATTERNS = ("pattern", "patternProperties")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_PAIRWISE = ("unevaluatedItems", "unevaluatedProperties")  # look at all of a value for each part
PAIRS_A_STEP = 100
NAMES_A_STEP = 20  # of a list of properties; the values of an `enum` count one each
DEEPEST = 64  # levels of a schema


class _Validator(Protocol):
    def iter_errors(self, instance: object) -> Iterable[object]:
        """Every `jsonschema.ValidationError`."""


class _Endless(Exception):
    """A check that took more steps than any honest schema needs."""


class _Steps(threading.local):
    """How many steps the check that runs in this thread has left."""

    left = 0


_STEPS = _Steps()


def check(tool: str, schema: Mapping[str, Any], value: Any) -> list[Problem]:
    """Where a value does not fit a schema. Raises `EnactError` for a schema that cannot be used."""
    try:
        return _apart([[schema, value]]) if _has(_PATTERNS, schema) else _check(schema, value)
    except (ManifestError, RecursionError) as error:
        raise EnactError.manifest_invalid(tool, f"its schema cannot be used: {error}") from error


def check_schemas(schemas: Sequence[Mapping[str, Any]]) -> None:
    """Refuse schemas that are invalid, or take too long or too much memory. `ManifestError`."""
    if any(is_deeper(schema, DEEPEST) for schema in schemas):
        raise ManifestError(f"it has more than {DEEPEST} levels")
    if any(map(_refers_elsewhere, schemas)):
        raise ManifestError("it refers to something outside itself")
    if any(map(_can_grow, schemas)):
        _apart([[schema, _example(schema)] for schema in schemas])
        return
    for schema in schemas:  # takes no longer than the schema is long
        _check(schema, _example(schema))


def is_deeper(value: object, levels: int) -> bool:
    """Whether JSON is nested more deeply than this; what writes it out again would fail."""
    layer = [value]
    for _ in range(levels + 1):
        inner = (
            each.values() if isinstance(each, dict) else each
            for each in layer
            if isinstance(each, dict | list)
        )
        layer = [below for each in inner for below in each]
    return any(isinstance(each, dict | list) for each in layer)


def main() -> int:
    """The child process: schemas and values on standard input, what is wrong on output."""
    _limit_ourselves()
    answer: dict[str, Any]
    try:
        found = [_check(schema, value) for schema, value in json.loads(sys.stdin.buffer.read())]
        answer = {"problems": [[p.field, p.kind, p.message] for each in found for p in each]}
    except (ManifestError, RecursionError, MemoryError) as error:
        answer = {"error": str(error) or "it is too large or too deep"}
    sys.stdout.write(json.dumps(answer))
    return 0


def _limit_ourselves() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_CHECK_S, LONGEST_CHECK_S))


def _example(schema: Mapping[str, Any]) -> object:
    """A value that leads into most of a schema."""
    properties = schema.get("properties")
    names = properties if isinstance(properties, Mapping) else {}
    return dict.fromkeys(names, "") if schema.get("type", "object") == "object" else None


def _apart(questions: Sequence[Sequence[Any]]) -> list[Problem]:
    """Check in a child process: a regular expression can run forever and block every thread."""
    argv = [sys.executable, "-P", "-m", "fleet_agentpack.enact.schemas"]
    try:
        question = json.dumps(questions).encode()
        done = process.run(argv, stdin=question, timeout_s=LONGEST_WAIT_S)
        answer = json.loads(done.stdout) if not done.status else {"error": TOO_LONG}
    except TimeoutError as error:
        raise ManifestError(TOO_LONG) from error
    except (TypeError, ValueError) as error:  # such as a date in YAML
        raise ManifestError("it is not JSON") from error
    if "error" in answer:
        raise ManifestError(answer["error"])
    return [Problem(*each) for each in answer["problems"]]


def _can_grow(schema: Mapping[str, Any]) -> bool:
    """Whether checking a schema can take longer than the schema is long."""
    return _has((*_PATTERNS, *_REFERENCES), schema)


def _refers_elsewhere(schema: Any) -> bool:
    """Whether a schema names one at another address, which a client might fetch."""
    if isinstance(schema, Mapping):
        targets = (schema.get(each) for each in _REFERENCES)
        if any(isinstance(each, str) and "//" in each.partition("#")[0] for each in targets):
            return True
        return any(map(_refers_elsewhere, schema.values()))
    return isinstance(schema, list) and any(map(_refers_elsewhere, schema))


def _has(keywords: Collection[str], schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return any(each in schema for each in keywords) or any(
            _has(keywords, each) for each in schema.values()
        )
    return isinstance(schema, list) and any(_has(keywords, each) for each in schema)


def _check(schema: Mapping[str, Any], value: Any) -> list[Problem]:
    try:
        compiled = _compiled(json.dumps(schema))
        _STEPS.left = MOST_STEPS
        errors = sorted(compiled.iter_errors(value), key=_place)
    except (ManifestError, RecursionError, MemoryError):
        raise
    except _Endless as error:
        raise ManifestError(TOO_LONG) from error
    except Exception as error:
        if type(error).__module__.startswith(("referencing", "jsonschema")):
            raise ManifestError("it refers to something outside itself") from error
        if type(error).__name__ == "error":  # `re.error`, also raised by other engines
            raise ManifestError("it contains a pattern that is not a regular expression") from error
        raise
    return list(dict.fromkeys(problem for each in errors for problem in _problems(each)))


@lru_cache(maxsize=512)
def _compiled(schema_text: str) -> _Validator:
    """What checks values, made once for a schema. Raises `ManifestError`."""
    import jsonschema  # type: ignore[import-untyped,unused-ignore]
    from referencing import Registry

    schema = json.loads(schema_text)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ManifestError(error.message[:200]) from error

    rules = {**kind.VALIDATORS, "uniqueItems": _unique}
    counted = {name: _counting(name, rule) for name, rule in rules.items()}
    # An empty registry: a `$ref` never makes this process fetch anything.
    bounded: _Validator = jsonschema.validators.extend(kind, counted)(schema, registry=Registry())
    return bounded


def _counting(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A keyword's rule that uses up steps, each time it is applied."""
    steps = REFERENCE_STEPS if name in _REFERENCES else 1

    def counted(validator: Any, keyword: Any, instance: Any, schema: Any) -> object:
        _STEPS.left -= steps + _length(keyword) // (1 if name == "enum" else NAMES_A_STEP)
        if name in _PAIRWISE:
            _STEPS.left -= _length(instance) ** 2 // PAIRS_A_STEP
        if _STEPS.left < 0:
            raise _Endless
        return rule(validator, keyword, instance, schema)

    return counted


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _unique(validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """`uniqueItems`, without comparing each item with every other."""
    from jsonschema import ValidationError

    if wanted and validator.is_type(instance, "array"):
        seen = {json.dumps(_comparable(each), sort_keys=True) for each in instance}
        if len(seen) < len(instance):
            yield ValidationError("it has non-unique elements")


def _comparable(value: Any) -> Any:
    """JSON in which numbers that are equal are written alike."""
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _problems(error: Any) -> list[Problem]:
    place = _place(error)
    if error.validator != "required":
        return [Problem(place, str(error.validator), _said(error))]
    missing = [name for name in error.validator_value if name not in error.instance]
    return [
        Problem(f"{place}.{name}" if place else name, "required", "required") for name in missing
    ]


def _place(error: Any) -> str:
    return ".".join(str(part) for part in error.absolute_path)


def _said(error: Any) -> str:
    """What is wrong, briefly and without the value itself."""
    if error.validator == "type":
        return f"must be of type {error.validator_value}"
    if error.validator == "enum":
        return f"must be one of {json.dumps(error.validator_value)[:200]}"
    return f"breaks the rule {error.validator}: {json.dumps(error.validator_value)[:200]}"


if __name__ == "__main__":
    sys.exit(main())
