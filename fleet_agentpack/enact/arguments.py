"""Checks a call's arguments against the tool's schema; paths become mounts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.manifest import PATH_FORMATS
from fleet_agentpack.enact.schemas import check
from fleet_agentpack.enact.template import text_of
from fleet_agentpack.kit.errors import Problem
from fleet_agentpack.kit.paths import NoBaseError, PathArguments

MOST_PROBLEMS = 10
_UNUSABLE = re.compile("[\\x00\\ud800-\\udfff]")  # a program's arguments cannot contain these
_KERNEL_PATHS = (Path("/proc"), Path("/sys"), Path("/dev"))


@dataclass(frozen=True)
class Mount:
    """A file or directory of the user that the tool sees at the same path."""

    path: Path
    writable: bool = False


@dataclass(frozen=True)
class Prepared:
    """Checked arguments with defaults filled in, and what they make visible."""

    values: Mapping[str, Any]
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class PathRules:
    """Where relative paths start, and what no tool may ever write to."""

    paths: PathArguments
    home: Path
    kept: tuple[Path, ...]


def prepare(
    tool: str, schema: Mapping[str, Any], given: Mapping[str, Any], rules: PathRules
) -> Prepared:
    """Check arguments and resolve their paths. Raises `EnactError` with every problem found."""
    properties = schema.get("properties") or {}
    values = {
        name: rule["default"]
        for name, rule in properties.items()
        if isinstance(rule, Mapping) and "default" in rule
    } | dict(given)
    problems = [*_unknown(schema, given), *check(tool, schema, values), *_unusable(values)]
    if problems:
        raise EnactError.invalid_arguments(tool, problems[:MOST_PROBLEMS])
    mounts: list[Mount] = []
    for name, rule in properties.items():
        if name in values and isinstance(rule, Mapping):
            values[name], needed = _resolve(name, rule, values[name], rules)
            mounts += needed
    return Prepared(values, tuple(mounts))


def writes(schema: Mapping[str, Any]) -> bool:
    """Whether a schema asks for a directory that the tool may change."""
    properties = schema.get("properties") or {}
    return any(isinstance(rule, Mapping) and _is_writable(rule) for rule in properties.values())


def _unknown(schema: Mapping[str, Any], given: Mapping[str, Any]) -> list[Problem]:
    """Arguments that the schema does not name, unless it accepts others."""
    if any(key in schema for key in ("additionalProperties", "patternProperties", "$ref", "allOf")):
        return []
    known = schema.get("properties") or {}
    return [Problem(name, "unknown", "no such argument") for name in given if name not in known]


def _unusable(values: Mapping[str, Any]) -> list[Problem]:
    return [
        Problem(name, "value", "must not contain a NUL character or a lone surrogate")
        for name, value in values.items()
        if _UNUSABLE.search(text_of(value))
    ]


def _resolve(
    name: str, rule: Mapping[str, Any], value: Any, rules: PathRules
) -> tuple[object, list[Mount]]:
    """A value with its paths made absolute, and the mounts they need."""
    items = rule.get("items")
    if isinstance(value, list) and isinstance(items, Mapping):
        resolved = [_resolve(name, items, each, rules) for each in value]
        return [each for each, _ in resolved], [each for _, mounts in resolved for each in mounts]
    if rule.get("format") not in PATH_FORMATS or not isinstance(value, str):
        return value, []
    mount = _mount(name, rule, value, rules)
    return str(mount.path), [mount]


def _mount(name: str, rule: Mapping[str, Any], value: str, rules: PathRules) -> Mount:
    try:
        path = rules.paths.resolve(value).resolve(strict=True)
    except NoBaseError as error:
        raise _bad(name, str(error)) from error
    except (OSError, RuntimeError, ValueError) as error:
        hint = rules.paths.hint(value)
        raise _bad(name, f"{value[:200]} does not exist{hint}") from error
    kind = rule["format"]
    if kind == "directory-path" and not path.is_dir():
        raise _bad(name, f"{value[:200]} is not a directory")
    if not path.is_dir() and not path.is_file():
        raise _bad(name, f"{value[:200]} is neither a file nor a directory")
    if kind == "file-path" and not path.is_file():
        raise _bad(name, f"{value[:200]} is not a file")
    if path == Path("/") or any(path.is_relative_to(each) for each in _KERNEL_PATHS):
        raise _bad(name, f"{value[:200]} cannot be passed to a tool")
    writable = _is_writable(rule) and path.is_dir()
    if writable and _holds_more_than_work(path, rules):
        raise _bad(name, f"{value[:200]} cannot be made writable: choose a directory inside it")
    return Mount(path, writable)


def _is_writable(rule: Mapping[str, Any]) -> bool:
    return rule.get("x-access") == "write" and rule.get("format") in PATH_FORMATS


def _holds_more_than_work(path: Path, rules: PathRules) -> bool:
    """Whether writing here could reach the user's home as a whole, installed tools or settings."""
    kept = [each.resolve() for each in rules.kept]
    return rules.home.resolve().is_relative_to(path) or any(
        each.is_relative_to(path) or path.is_relative_to(each) for each in kept
    )


def _bad(name: str, message: str) -> EnactError:
    return EnactError.bad_argument(name, message)
