"""Checks a call's arguments against the tool's schema; paths become mounts."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_agentpack.enact import permissions
from fleet_agentpack.enact.denied import DenyList
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.manifest import PATH_FORMATS
from fleet_agentpack.enact.schemas import check
from fleet_agentpack.enact.template import text_of
from fleet_agentpack.kit.errors import Problem
from fleet_agentpack.kit.paths import NoBaseError, PathArguments

MOST_PROBLEMS = 10
VISIBLE = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt")))  # also in images
_UNUSABLE = re.compile("[\\x00\\ud800-\\udfff]")  # a program's arguments cannot contain these


@dataclass(frozen=True)
class Mount:
    """A file or directory of the user that the tool sees at the same path."""

    path: Path
    writable: bool = False
    hidden: tuple[Path, ...] = ()  # what looks empty inside it


@dataclass(frozen=True)
class Prepared:
    """Checked arguments with defaults filled in, and what they make visible."""

    values: Mapping[str, Any]
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class PathRules:
    """Where relative paths start, what is out of reach, and where writing was granted."""

    paths: PathArguments
    denied: DenyList
    granted: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()  # granted for every call


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
    _require_writable(tool, mounts, rules)
    return Prepared(values, tuple(mounts))


def writes(schema: Mapping[str, Any]) -> bool:
    """Whether a schema asks for a directory that the tool may change."""
    return bool(writable_inputs(schema))


def writable_inputs(schema: Mapping[str, Any]) -> list[str]:
    """The inputs that take directories which the tool may change."""
    properties = schema.get("properties") or {}
    return [name for name, rule in properties.items() if _takes_writable(rule)]


def _takes_writable(rule: object) -> bool:
    return isinstance(rule, Mapping) and (_is_writable(rule) or _takes_writable(rule.get("items")))


def check_declared(
    tool: str,
    schema: Mapping[str, Any],
    given: Mapping[str, Any],
    rules: PathRules,
    seen: Sequence[Path],
) -> None:
    """Refuse a file that is named in an input which is not declared as a path.

    The tool could not see it, unless it is in one of the places that it sees. What nobody could
    grant is text like any other. Raises `EnactError`.
    """
    for name, path in _undeclared_files(schema, given, rules):
        is_seen = any(path.is_relative_to(each) for each in (*VISIBLE, *seen))
        if not is_seen and not rules.denied.reason(path):
            raise permissions.undeclared(tool, name, str(path))


def _undeclared_files(
    schema: Mapping[str, Any], given: Mapping[str, Any], rules: PathRules
) -> Iterator[tuple[str, Path]]:
    """The inputs that name an existing file, though they are not declared as paths.

    A word that is also the name of a directory is a word, and `/home` may be part of an address.
    """
    properties = schema.get("properties") or {}
    for name, value in given.items():
        rule = properties.get(name)
        if not isinstance(value, str) or not isinstance(rule, Mapping) or not value.strip():
            continue
        if rule.get("format") in PATH_FORMATS or rule.get("type", "string") != "string":
            continue
        with contextlib.suppress(OSError, RuntimeError, ValueError, NoBaseError):
            path = rules.paths.resolve(value).resolve(strict=True)
            is_deep = "/" in value and len(path.parts) > len(Path("/home").parts)
            if path.is_file() or (path.is_dir() and is_deep):
                yield name, path


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
        given = rules.paths.resolve(value)
        path = given.resolve(strict=True)
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
    if reason := rules.denied.reason(path):
        raise _bad(name, f"{value[:200]} {reason}")
    if _leads_out(given, path, rules):
        raise _bad(name, f"{value[:200]} is a link that leads to {path}: name that, if it is meant")
    writable = _is_writable(rule) and path.is_dir()
    return Mount(path, writable, rules.denied.inside(path, writable=writable))


def _leads_out(given: Path, path: Path, rules: PathRules) -> bool:
    """Whether a link leads out of a directory in which a tool may have made it."""
    lexical = Path(os.path.normpath(given))
    project = [rules.denied.project] if rules.denied.project else []
    for root in (*project, *map(Path, rules.granted)):
        real = root.resolve()
        is_named_inside = any(lexical.is_relative_to(each) for each in (root, real))
        if is_named_inside and not path.is_relative_to(real):
            return True
    return False


def _is_writable(rule: Mapping[str, Any]) -> bool:
    return rule.get("x-access") == "write" and rule.get("format") in PATH_FORMATS


def _require_writable(tool: str, mounts: Sequence[Mount], rules: PathRules) -> None:
    """Refuse to change a directory outside the project that nobody has granted."""
    for mount in mounts:
        free = rules.denied.is_work(mount.path) or any(
            mount.path.is_relative_to(each) for each in rules.granted
        )
        if mount.writable and not free:
            raise permissions.required(tool, permissions.Permissions(write=(str(mount.path),)))


def _bad(name: str, message: str) -> EnactError:
    return EnactError.bad_argument(name, message)
