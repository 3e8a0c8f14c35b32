"""Checks values against a publisher's JSON Schema, which may be wrong or made to hang us."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.manifest import ManifestError
from fleet_agentpack.kit import process
from fleet_agentpack.kit.errors import Problem

LONGEST_CHECK_S = 5.0


class _Validator(Protocol):
    def iter_errors(self, instance: object) -> Iterable[object]:
        """Every `jsonschema.ValidationError`."""


def check(tool: str, schema: Mapping[str, Any], value: Any) -> list[Problem]:
    """Where a value does not fit a schema. Raises `EnactError` for a schema that cannot be used."""
    try:
        return _check_apart(schema, value) if _has_pattern(schema) else _check(schema, value)
    except (ManifestError, RecursionError) as error:
        raise EnactError.manifest_invalid(tool, f"its schema cannot be used: {error}") from error


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse an invalid JSON Schema. Raises `ManifestError`."""
    _validator(json.dumps(schema))


def main() -> int:
    """The child process of `_check_apart`: the question on standard input, the answer on output."""
    schema, value = json.loads(sys.stdin.buffer.read())
    answer: dict[str, Any]
    try:
        found = _check(schema, value)
        answer = {"problems": [[each.field, each.kind, each.message] for each in found]}
    except (ManifestError, RecursionError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))
    return 0


def _check_apart(schema: Mapping[str, Any], value: Any) -> list[Problem]:
    """Check in a child process: a regular expression can run forever and block every thread."""
    argv = [sys.executable, "-P", "-m", "fleet_agentpack.enact.schemas"]
    question = json.dumps([schema, value]).encode()
    try:
        done = process.run(argv, stdin=question, timeout_s=LONGEST_CHECK_S)
    except TimeoutError as error:
        raise ManifestError("checking its patterns takes too long") from error
    if done.status:
        raise ManifestError("checking its patterns failed")
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise ManifestError(answer["error"])
    return [Problem(*each) for each in answer["problems"]]


def _has_pattern(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        found = isinstance(schema.get("pattern"), str) or "patternProperties" in schema
        return found or any(map(_has_pattern, schema.values()))
    return isinstance(schema, list) and any(map(_has_pattern, schema))


def _check(schema: Mapping[str, Any], value: Any) -> list[Problem]:
    try:
        errors = sorted(_validator(json.dumps(schema)).iter_errors(value), key=_place)
    except (ManifestError, RecursionError):
        raise
    except Exception as error:
        if type(error).__module__.startswith(("referencing", "jsonschema")):
            raise ManifestError("it refers to something outside itself") from error
        if type(error).__name__ == "error":  # `re.error`, also raised by other engines
            raise ManifestError("it contains a pattern that is not a regular expression") from error
        raise
    return list(dict.fromkeys(problem for each in errors for problem in _problems(each)))


@lru_cache(maxsize=512)
def _validator(schema_text: str) -> _Validator:
    import jsonschema  # type: ignore[import-untyped,unused-ignore]
    from referencing import Registry

    schema = json.loads(schema_text)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ManifestError(error.message[:200]) from error
    # An empty registry: a `$ref` never makes this process fetch anything.
    validator: _Validator = kind(schema, registry=Registry())
    return validator


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
