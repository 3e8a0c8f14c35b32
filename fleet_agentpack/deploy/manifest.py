"""`agentpack.yaml`: its content, how it is checked, which modules a profile selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet_agentpack.deploy import looks
from fleet_agentpack.deploy.errors import DeployError, both_ways
from fleet_agentpack.deploy.yaml_fields import FieldError, Fields
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.paths import is_plain

FILE_NAME = "agentpack.yaml"
SUPPORTED_VERSIONS = [1]
MODULE_TYPES = ("instructions", "skill", "prompt", "command")
SCOPES = ("user", "project", "both")


@dataclass(frozen=True)
class GitSource:
    """A module's files inside a git repository."""

    url: str
    ref: str = "main"
    subdir: str = ""
    shallow: bool = True


@dataclass(frozen=True)
class Source:
    """Where a module's files come from: a local path or git, exactly one once checked."""

    local_path: str | None = None
    git: GitSource | None = None


@dataclass(frozen=True)
class Module:
    """One entry of `modules`."""

    id: str
    type: str
    source: Source
    enabled: bool = True
    tags: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def name(self) -> str | None:
        """The text after the id's first colon, if there is one."""
        return self.id.partition(":")[2] if ":" in self.id else None

    def goes_to(self, target: str) -> bool:
        """Whether a target takes this module."""
        return not self.targets or target in self.targets


@dataclass(frozen=True)
class Profile:
    """A selection of modules."""

    include_tags: tuple[str, ...] = ()
    include_modules: tuple[str, ...] = ()
    exclude_modules: tuple[str, ...] = ()

    def takes(self, module: Module) -> bool:
        """Whether a module belongs to this profile; exclusion wins."""
        if not module.enabled or module.id in self.exclude_modules:
            return False
        tagged = any(tag in self.include_tags for tag in module.tags)
        return tagged or module.id in self.include_modules


@dataclass(frozen=True)
class TargetConfig:
    """One entry of `targets`."""

    mode: str
    scope: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """A whole, checked `agentpack.yaml`."""

    path: Path
    version: int
    profiles: Mapping[str, Profile]
    targets: Mapping[str, TargetConfig]
    modules: tuple[Module, ...]

    def select(self, profile: str) -> list[Module]:
        """The modules of a profile, by id."""
        found = self.profiles.get(profile)
        if found is None:
            profiles = sorted(self.profiles)
            message = f"profile not found: {profile}; choose from {', '.join(profiles)}"
            raise DeployError.because(
                "profile_not_found", message, profile=profile, profiles=profiles
            )
        return sorted((m for m in self.modules if found.takes(m)), key=lambda module: module.id)


def load(
    repo: Path,
    known: Sequence[str],
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
    found = _check(_parse(path, text), known, project_only)
    if remembered is not None:
        remembered.clear()
        remembered[text] = found
    return found


def _read(path: Path) -> str:
    looks.at(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DeployError(
            "E_CONFIG_MISSING",
            f"{path} does not exist",
            hint="run `fleet-agentpack init` to create it, or choose a config repo with --repo",
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


def _parse(path: Path, text: str) -> Manifest:
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
        }
        modules = [
            _module(Fields(node, f"modules[{i}]")) for i, node in enumerate(root.list("modules"))
        ]
    except (FieldError, yaml12.YamlError) as error:
        raise _invalid(path, str(error)) from error
    return Manifest(path, version, profiles, targets, tuple(modules))


def _profile(fields: Fields) -> Profile:
    return Profile(
        fields.texts("include_tags"),
        fields.texts("include_modules"),
        fields.texts("exclude_modules"),
    )


def _target(fields: Fields) -> TargetConfig:
    return TargetConfig(
        _choice(fields, "mode", ("files",)),
        _choice(fields, "scope", SCOPES),
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


def _check(manifest: Manifest, known: Sequence[str], project_only: Sequence[str]) -> Manifest:
    if manifest.version not in SUPPORTED_VERSIONS:
        raise DeployError(
            "E_CONFIG_UNSUPPORTED_VERSION",
            f"{manifest.path}: version {manifest.version} is not supported, only version 1",
            version=manifest.version,
            supported=SUPPORTED_VERSIONS,
            path=str(manifest.path),
        )
    for name in sorted(manifest.targets):
        _check_target(name, manifest.targets[name], known, project_only)
    if "default" not in manifest.profiles:
        raise DeployError.config_invalid(
            f"{manifest.path}: a profile named `default` is required", profile="default"
        )
    seen: set[str] = set()
    for module in manifest.modules:
        _check_module(module, seen, known)
        seen.add(module.id)
    return manifest


def _check_target(
    name: str, config: TargetConfig, known: Sequence[str], project_only: Sequence[str]
) -> None:
    if name in project_only and config.scope == "user":
        raise DeployError.config_invalid(
            f"target {name} has no user scope; use project or both",
            target=name,
            allowed_scopes=["project", "both"],
        )
    if name not in known:
        raise _unknown_target(name, known)


def _check_module(module: Module, seen: set[str], known: Sequence[str]) -> None:
    if module.id in seen:
        raise DeployError.config_invalid(
            f"module id {module.id} is used twice", module_id=module.id
        )
    if problem := id_problem(module.id):
        raise DeployError.config_invalid(f"module id {module.id!r} {problem}", module_id=module.id)
    for target in module.targets:
        if target not in known:
            raise _unknown_target(target, known, module_id=module.id)
    if (module.source.local_path is None) == (module.source.git is None):
        raise DeployError.config_invalid(
            f"module {module.id} must have exactly one source: local_path or git",
            module_id=module.id,
        )


def id_problem(module_id: str) -> str | None:
    """Why an id cannot be used as a file name, or None."""
    if any(ord(char) < 32 or ord(char) == 127 or char == "\\" for char in module_id):
        return "contains a backslash or a control character"
    for part in module_id.partition(":")[::2] if ":" in module_id else (module_id,):
        if not is_plain(part):
            return "has an empty part, or one that is `.` or `..`"
    return None


def _unknown_target(target: str, known: Sequence[str], **details: Any) -> DeployError:
    return DeployError(
        "E_TARGET_UNSUPPORTED",
        f"target {target!r} is not supported; choose from {', '.join(known)}",
        target=target,
        allowed=list(known),
        **details,
    )


def _invalid(path: Path, problem: str) -> DeployError:
    return DeployError.config_invalid(
        f"{path} is not valid: {problem}", error=problem, **both_ways(path=path)
    )
