"""`~/.enact/config.yaml`: trust, registry and execution; a value nobody knows is never a default.

A section that cannot be used is remembered as an error and raised to whoever asks for it, so that
a mistake in one section stops only the calls that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.identity import Auditor, AuditorError
from fleet_agentpack.enact.manifest import ManifestError, seconds
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.paths import expand_home
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.kit.stamps import Remembered

POLICIES = ("require_attestation", "prompt", "allow")
_SAME_POLICY = {"require_audit": "require_attestation"}
BACKENDS = ("container", "podman", "docker", "dagger", "bubblewrap", "local")
_SAME_BACKEND = {"host": "local", "sandbox": "bubblewrap", "bwrap": "bubblewrap"}
DEFAULT_TIMEOUT_S = 300.0
DEFAULT_SEARCH_TTL_S = 300.0
LARGEST_CONFIG = 1024 * 1024


@dataclass(frozen=True)
class TrustConfig:
    """Who is believed, and how many of them a tool needs."""

    policy: str = "require_attestation"
    minimum: int = 1
    auditors: tuple[Auditor, ...] = ()
    trusted_root: Path | None = None

    @property
    def requires_attestations(self) -> bool:
        """Whether a tool without enough attestations is refused; nobody can be asked here."""
        return self.policy != "allow"


@dataclass(frozen=True)
class RegistryConfig:
    """Where tools come from besides the built-in ones."""

    url: str | None = None
    token: Secret | None = None
    search_ttl_s: float = DEFAULT_SEARCH_TTL_S


@dataclass(frozen=True)
class ExecutionConfig:
    """Where tools run."""

    backend: str | None = None  # None: a container for a tool with an image, else a sandbox
    fallback: str | None = None
    trusted_scopes: tuple[str, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True)
class Config:
    """The file as a whole; each section is there or says why it is not."""

    path: Path
    sections: Mapping[str, Any] = field(default_factory=dict)

    @property
    def trust(self) -> TrustConfig:
        """The trust policy. Raises `EnactError` when it cannot be used."""
        return self._section("trust", TrustConfig())  # type: ignore[no-any-return]

    @property
    def registry(self) -> RegistryConfig:
        """The registry. Raises `EnactError` when it cannot be used."""
        return self._section("registry", RegistryConfig())  # type: ignore[no-any-return]

    @property
    def execution(self) -> ExecutionConfig:
        """Where tools run. Raises `EnactError` when it cannot be used."""
        return self._section("execution", ExecutionConfig())  # type: ignore[no-any-return]

    def _section(self, name: str, default: Any) -> Any:
        found = self.sections.get(name, default)
        if isinstance(found, EnactError):
            raise found
        return found


class ConfigFile:
    """Reads the file when it has changed, and only then."""

    def __init__(self, path: Path, environ: Mapping[str, str], home: Path) -> None:
        self.path = path
        self._home = home
        self._environ = environ
        self._last: Remembered[Config] = Remembered()

    def read(self) -> Config:
        """The configuration as it is now."""
        return self._last.get(lambda: _load(self.path, self._environ, self._home), self.path)


def _load(path: Path, environ: Mapping[str, str], home: Path) -> Config:
    try:
        data = _mapping(path)
    except EnactError as error:
        return Config(path, dict.fromkeys(("trust", "registry", "execution"), error))
    readers: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "trust": lambda section: _trust(section, home),
        "registry": lambda section: _registry(section, environ),
        "execution": _execution,
    }
    return Config(path, {name: _guarded(path, name, data, read) for name, read in readers.items()})


def _mapping(path: Path) -> Mapping[str, Any]:
    try:
        data = yaml12.load(read_text(path, LARGEST_CONFIG))
    except FileNotFoundError:
        return {}
    except (UnreadableError, yaml12.YamlError) as error:
        raise EnactError.config_invalid(path, str(error)) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise EnactError.config_invalid(path, "the file must be a mapping of sections")
    return data


def _guarded(
    path: Path, name: str, data: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Any]
) -> Any:
    section = data.get(name)
    if section is None:
        section = {}
    if not isinstance(section, dict):
        return EnactError.config_invalid(path, f"{name} must be a mapping")
    try:
        return read(section)
    except (ValueError, AuditorError) as error:
        return EnactError.config_invalid(path, f"{name}.{error}")


def _trust(section: Mapping[str, Any], home: Path) -> TrustConfig:
    policy = section.get("policy")
    if policy is None and isinstance(section.get("require_signatures"), bool):
        policy = "require_attestation" if section["require_signatures"] else "allow"
    if policy is None:
        policy = "require_attestation"
    policy = _SAME_POLICY.get(policy, policy) if isinstance(policy, str) else policy
    if policy not in POLICIES:
        raise ValueError(f"policy: {policy!r} is not one of {', '.join(POLICIES)}")
    minimum = section.get("minimum_attestations", 1)
    if not isinstance(minimum, int) or isinstance(minimum, bool) or minimum < 0:
        raise ValueError(f"minimum_attestations: {minimum!r} is not a count")
    auditors: dict[str, Auditor] = {}
    for key in ("trusted_auditors", "auditors", "trusted_publishers"):
        for text in _texts(section, key):
            auditors[text] = Auditor.parse(text)
    root = section.get("trusted_root")
    if root is not None and not isinstance(root, str):
        raise ValueError("trusted_root: must be the path of a file")
    return TrustConfig(
        policy, minimum, tuple(auditors.values()), expand_home(root, home) if root else None
    )


def _registry(section: Mapping[str, Any], environ: Mapping[str, str]) -> RegistryConfig:
    configured = section.get("url")
    if configured is not None and (not isinstance(configured, str) or not configured.strip()):
        raise ValueError("url: must be the address of a registry or a directory")
    override = environ.get("ENACT_REGISTRY_URL") or None
    url = override or configured
    token = section.get("authToken")
    if token is not None and not isinstance(token, str):
        raise ValueError("authToken: must be text")
    if override and override != configured:
        token = None  # a token goes only to the registry it was written for
    ttl = section.get("search_ttl_seconds", DEFAULT_SEARCH_TTL_S)
    if not isinstance(ttl, int | float) or isinstance(ttl, bool) or ttl < 0:
        raise ValueError(f"search_ttl_seconds: {ttl!r} is not a number of seconds")
    token = token or environ.get("ENACT_AUTH_TOKEN")
    return RegistryConfig(url, Secret(token) if token else None, float(ttl))


def _execution(section: Mapping[str, Any]) -> ExecutionConfig:
    timeout = section.get("defaultTimeout")
    try:
        timeout_s = DEFAULT_TIMEOUT_S if timeout is None else seconds(str(timeout))
    except ManifestError as error:
        raise ValueError(f"defaultTimeout: {error}") from error
    return ExecutionConfig(
        _backend(section, "default"),
        _backend(section, "fallback"),
        tuple(_texts(section, "trusted_scopes")),
        timeout_s,
    )


def _backend(section: Mapping[str, Any], key: str) -> str | None:
    value = section.get(key)
    if value is None:
        return None
    name = _SAME_BACKEND.get(value, value) if isinstance(value, str) else value
    if name not in BACKENDS:
        raise ValueError(f"{key}: {value!r} is not one of {', '.join(BACKENDS)}")
    return str(name)


def _texts(section: Mapping[str, Any], key: str) -> list[str]:
    value = section.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{key}: must be a list of texts")
    return value
