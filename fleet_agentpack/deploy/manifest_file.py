"""Reads `agentpack.yaml` and checks it; a key that is nearly a known one is refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError, both_ways
from fleet_agentpack.deploy.manifest import (
    FILE_NAME,
    SCOPES,
    GitSource,
    Manifest,
    Module,
    Profile,
    Source,
    TargetConfig,
)
from fleet_agentpack.deploy.yaml_fields import FieldError, Fields
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.paths import is_plain
from fleet_agentpack.kit.shapes import UnknownKey

SUPPORTED_VERSIONS = [1]
MODULE_TYPES = ("instructions", "skill", "prompt", "command")

_PROFILE_KEYS = ("include_tags", "include_modules", "exclude_modules", "project", "machine")
_MODULE_KEYS = (
    "id",
    "type",
    "enabled",
    "tags",
    "targets",
    "scope",
    "output",
    "source",
    "metadata",
)
_GIT_KEYS = ("url", "ref", "subdir", "shallow")
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\\]")

Known = Mapping[str, Collection[str]]  # the targets, each with its options


def load(
    repo: Path,
    known: Known,
    project_only: Sequence[str],
    remembered: dict[str, Manifest] | None = None,
) -> Manifest:
    """Read a repo's manifest and check it against the known targets.

    `remembered` holds the last manifest by its text, which is then not parsed again.
    """
    path = repo / FILE_NAME
    text = _read(path)
    if remembered is not None and text in remembered and remembered[text].path == path:
        return remembered[text]
    found = check(path, text, known, project_only)
    if remembered is not None:
        remembered.clear()
        remembered[text] = found
    return found


def check(path: Path, text: str, known: Known, project_only: Sequence[str]) -> Manifest:
    """The manifest that a text would be. Raises `DeployError` when it is not valid."""
    return _check(*_parse(path, text, known), known, project_only)


def _read(path: Path) -> str:
    reads.at(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DeployError(
            "E_CONFIG_MISSING",
            f"{path} does not exist",
            hint="bring in what the tools already have (`fleet-agentpack import`; as a tool:"
            " import_config), start from an example with `fleet-agentpack init`, or name another"
            " config repo with `repo` (on the command line: --repo)",
            **both_ways(path=path),
        ) from error
    except OSError as error:
        raise DeployError.io(path, error, "read") from error
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8 text"
        raise DeployError.because("not_utf8", message, path=str(path)) from error
    if text.startswith("\ufeff"):
        raise _invalid(path, "the file starts with a byte order mark; save it without one")
    return text


def _parse(path: Path, text: str, known: Known) -> tuple[Manifest, list[UnknownKey]]:
    try:
        root = Fields(yaml12.compose(text), "")
        version = root.number("version")
        profiles = {
            name: _profile(Fields(node, f"profiles.{name}"))
            for name, node in root.mapping("profiles").items().items()
        }
        targets = {
            name: _target(Fields(node, f"targets.{name}"))
            for name, node in root.mapping("targets").items().items()
            if name in known
        }
        modules = [
            _module(Fields(node, f"modules[{i}]")) for i, node in enumerate(root.list("modules"))
        ]
        unknown = [key for fields, names in _levels(root, known) for key in fields.unknown(names)]
    except (FieldError, yaml12.YamlError) as error:
        raise _invalid(path, str(error)) from error
    return Manifest(path, version, profiles, targets, tuple(modules)), unknown


def _levels(root: Fields, known: Known) -> Iterator[tuple[Fields, Collection[str]]]:
    """Every mapping with the keys that it may have; `metadata` may have any."""
    yield root, ("version", "profiles", "targets", "modules")
    for name in root.mapping("profiles").items():
        yield root.mapping("profiles").mapping(name), _PROFILE_KEYS
    targets = root.mapping("targets")
    yield targets, known
    for name in filter(known.__contains__, targets.items()):
        yield targets.mapping(name), ("mode", "scope", "options")
        yield targets.mapping(name).mapping("options"), known[name]
    for i, node in enumerate(root.list("modules")):
        module = Fields(node, f"modules[{i}]")
        source = module.mapping("source")
        yield module, _MODULE_KEYS
        yield source, ("local_path", "git")
        for kind, names in (("local_path", ("path",)), ("git", _GIT_KEYS)):
            inside = source.optional(kind)
            if inside is not None:
                yield inside, names


def _profile(fields: Fields) -> Profile:
    return Profile(
        fields.texts("include_tags"),
        fields.texts("include_modules"),
        fields.texts("exclude_modules"),
        fields.text("project", ""),
        fields.text("machine", ""),
    )


def _target(fields: Fields) -> TargetConfig:
    return TargetConfig(
        _choice(fields, "mode", ("files",)),
        _choice(fields, "scope", (*SCOPES, "both")),
        fields.data("options"),
    )


def _module(fields: Fields) -> Module:
    fields.data("metadata")
    fields.required("source")
    source = fields.mapping("source")
    local, git = source.optional("local_path"), source.optional("git")
    return Module(
        id=fields.text("id"),
        type=_choice(fields, "type", MODULE_TYPES),
        enabled=fields.boolean("enabled", True),
        tags=fields.texts("tags"),
        targets=fields.texts("targets"),
        scope=_choice(fields, "scope", SCOPES) if "scope" in fields.items() else None,
        output=fields.text("output", ""),
        source=Source(
            local.text("path") if local else None,
            _git(git) if git else None,
        ),
    )


def _git(fields: Fields) -> GitSource:
    return GitSource(
        fields.text("url"),
        fields.text("ref", "main"),
        fields.text("subdir", ""),
        fields.boolean("shallow", True),
    )


def _choice(fields: Fields, name: str, allowed: Sequence[str]) -> str:
    value = fields.text(name)
    if value not in allowed:
        raise FieldError(
            f"{fields.path(name)}: unknown value `{value}`, expected {' or '.join(allowed)}"
        )
    return value


def _check(
    manifest: Manifest, unknown: Sequence[UnknownKey], known: Known, project_only: Sequence[str]
) -> Manifest:
    if manifest.version not in SUPPORTED_VERSIONS:
        raise DeployError(
            "E_CONFIG_UNSUPPORTED_VERSION",
            f"{manifest.path}: version {manifest.version} is not supported, only version 1",
            version=manifest.version,
            supported=SUPPORTED_VERSIONS,
            path=str(manifest.path),
        )
    for name in sorted(manifest.targets):
        _check_target(name, manifest.targets[name], project_only)
    targets = [str(key.place[-1]) for key in unknown if key.place[:-1] == ("targets",)]
    targets += [name for module in manifest.modules for name in module.targets if name not in known]
    skipped = sorted(set(targets))
    for name in skipped:
        _refuse_misspelt(name, known)
    others = [key for key in unknown if key.place[:-1] != ("targets",)]
    for key in others:
        if key.nearest:
            raise _invalid(manifest.path, str(key), key=key.name, nearest=key.nearest)
    if "default" not in manifest.profiles:
        raise DeployError.config_invalid(
            f"{manifest.path}: a profile named `default` is required", profile="default"
        )
    seen: set[str] = set()
    for module in manifest.modules:
        _check_module(module, seen)
        seen.add(module.id)
    warnings = [f"target {name} is not supported here and is skipped" for name in skipped]
    warnings += [f"{manifest.path}: {key} and is ignored" for key in others]
    return replace(manifest, warnings=tuple(warnings))


def _check_target(name: str, config: TargetConfig, project_only: Sequence[str]) -> None:
    if name in project_only and config.scope == "user":
        raise DeployError.config_invalid(
            f"target {name} has no user scope; use project or both",
            target=name,
            allowed_scopes=["project", "both"],
        )


def _check_module(module: Module, seen: set[str]) -> None:
    if module.id in seen:
        raise DeployError.config_invalid(
            f"module id {module.id} is used twice", module_id=module.id
        )
    if problem := id_problem(module.id):
        raise DeployError.config_invalid(f"module id {module.id!r} {problem}", module_id=module.id)
    if module.output and not _is_output(module):
        raise DeployError.config_invalid(
            f"module {module.id}: output {module.output!r} must be a path below the target's"
            " directory, for a skill, a prompt or a command",
            module_id=module.id,
        )
    if (module.source.local_path is None) == (module.source.git is None):
        raise DeployError.config_invalid(
            f"module {module.id} must have exactly one source: local_path or git",
            module_id=module.id,
        )


def _is_output(module: Module) -> bool:
    name = module.output
    usable = is_plain(name) and "\\" not in name and not any(ord(char) < 32 for char in name)
    return usable and module.type != "instructions"


def id_problem(module_id: str) -> str | None:
    """Why an id cannot be used as a file name, or None."""
    if _UNUSABLE.search(module_id):
        return "contains a backslash or a control character"
    for part in module_id.partition(":")[::2] if ":" in module_id else (module_id,):
        if not is_plain(part):
            return "has an empty part, or one that is `.` or `..`"
    return None


def _refuse_misspelt(target: str, known: Known) -> None:
    """Raises `DeployError` for a target that is nearly a known one; others may be for 0.9.1."""
    key = UnknownKey.among(known, (target,))
    if key.nearest:
        raise DeployError(
            "E_TARGET_UNSUPPORTED",
            f"target {target!r} is not supported{key.hint}",
            target=target,
            allowed=list(known),
        )


def _invalid(path: Path, problem: str, **details: Any) -> DeployError:
    return DeployError.config_invalid(
        f"{path} is not valid: {problem}", error=problem, **details, **both_ways(path=path)
    )
