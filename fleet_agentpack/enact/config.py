"""`~/.enact/config.yaml`: trust, registry and execution; an unknown value is never a default.

A section that cannot be used is kept as an error and raised when it is asked for, so a mistake in
one section stops only the calls that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.quantities import seconds, size
from fleet_agentpack.enact.trust.identity import Auditor
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.paths import expand_home
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.kit.shapes import YAML, Count, Rule, Text, convert, unknown_keys
from fleet_agentpack.kit.stamps import Remembered

_SAME_POLICY = {"require_audit": "require_attestation"}
_SAME_BACKEND = {"host": "local", "sandbox": "bubblewrap", "bwrap": "bubblewrap"}
DEFAULT_TIMEOUT_S = 300.0
DEFAULT_SEARCH_TTL_S = 300.0
DEFAULT_MEMORY = 2 * 1024**3
DEFAULT_PROCESSES = 256
DEFAULT_SCRATCH = 256 * 1024**2
DEFAULT_BUILD_TIMEOUT_S = 600.0
DEFAULT_BUILD_SIZE = 1024**3
LARGEST_CONFIG = 1024 * 1024

S = TypeVar("S")
T = TypeVar("T")
_Texts = Annotated[tuple[str, ...], Rule("a list of strings")] | None
_Policy = Annotated[
    Literal["require_attestation", "require_audit", "prompt", "allow"],
    Rule("one of require_attestation, prompt, allow"),
]
_Backend = Annotated[
    Literal[
        "container", "podman", "docker", "dagger", "bubblewrap", "local", "host", "sandbox", "bwrap"
    ],
    Rule("one of container, podman, docker, dagger, bubblewrap, local"),
]


@dataclass(frozen=True)
class TrustConfig:
    """Which auditors are trusted, and how many a tool needs."""

    policy: str = "require_attestation"
    minimum: int = 1
    auditors: tuple[Auditor, ...] = ()
    trusted_root: Path | None = None

    @property
    def requires_attestations(self) -> bool:
        """Whether a tool without enough attestations is refused; there is no one to prompt."""
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
    memory_bytes: int = DEFAULT_MEMORY
    processes: int = DEFAULT_PROCESSES
    scratch_bytes: int = DEFAULT_SCRATCH
    build_timeout_s: float = DEFAULT_BUILD_TIMEOUT_S
    build_bytes: int = DEFAULT_BUILD_SIZE
    strict: bool = False  # refuse to run where a part of the sandbox is missing


@dataclass(frozen=True)
class Config:
    """The whole file; a section is checked when it is asked for."""

    path: Path
    data: Mapping[str, object] | EnactError  # or why the file cannot be used
    environ: Mapping[str, str]
    home: Path

    @cached_property
    def trust(self) -> TrustConfig:
        """The trust policy. Raises `EnactError` when it cannot be used."""
        return self._section("trust", _Trust, lambda section: _trust(section, self.home))

    @cached_property
    def registry(self) -> RegistryConfig:
        """The registry. Raises `EnactError` when it cannot be used."""
        return self._section("registry", _Registry, lambda found: _registry(found, self.environ))

    @cached_property
    def execution(self) -> ExecutionConfig:
        """Where tools run. Raises `EnactError` when it cannot be used."""
        return self._section("execution", _Execution, _execution)

    @property
    def execution_or_default(self) -> ExecutionConfig:
        """Where tools would run; to tell of it, not to run one."""
        try:
            return self.execution
        except EnactError:
            return ExecutionConfig()

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """The settings in known sections that mean nothing, such as misspelt ones."""
        if isinstance(self.data, EnactError):
            return ()
        shapes = {"trust": _Trust, "registry": _Registry, "execution": _Execution}
        return tuple(
            f"{self.path}: {unknown}"
            for name, shape in shapes.items()
            for unknown in unknown_keys(shape, self.data.get(name), (name,))
        )

    def _section(self, name: str, shape: type[S], read: Callable[[S], T]) -> T:
        if isinstance(self.data, EnactError):
            raise self.data
        found = self.data.get(name)
        try:
            return read(shape() if found is None else convert(shape, found, (name,), YAML))
        except ValueError as error:
            raise EnactError.config_invalid(self.path, str(error)) from error


class ConfigFile:
    """Reads the file when it has changed, and only then."""

    def __init__(self, path: Path, environ: Mapping[str, str], home: Path) -> None:
        self.path = path
        self._home = home
        self._environ = environ
        self._last: Remembered[Config] = Remembered()

    def read(self) -> Config:
        """The configuration as it is now."""
        return self._last.get(self._load, self.path)

    def _load(self) -> Config:
        data: Any
        try:
            data = yaml12.load(read_text(self.path, LARGEST_CONFIG)) or {}
        except FileNotFoundError:
            data = {}
        except (UnreadableError, yaml12.YamlError) as error:
            data = EnactError.config_invalid(self.path, str(error))
        if not isinstance(data, dict | EnactError):
            data = EnactError.config_invalid(self.path, "the file must be a mapping of sections")
        return Config(self.path, data, self._environ, self._home)


@dataclass(frozen=True)
class _Trust:
    policy: _Policy | None = None
    require_signatures: Any = None  # an older form of `policy`; only true and false count
    minimum_attestations: Count = 1
    trusted_auditors: _Texts = None
    auditors: _Texts = None
    trusted_publishers: _Texts = None
    trusted_root: Annotated[str, Rule("the path of a file")] | None = None


def _trust(section: _Trust, home: Path) -> TrustConfig:
    older = "allow" if section.require_signatures is False else "require_attestation"
    policy = section.policy or older
    named = (section.trusted_auditors, section.auditors, section.trusted_publishers)
    texts = dict.fromkeys(text for names in named for text in names or ())
    try:
        auditors = tuple(Auditor.parse(text) for text in texts)
    except ValueError as error:
        raise ValueError(f"trust.{error}") from error
    root = expand_home(section.trusted_root, home) if section.trusted_root else None
    policy = _SAME_POLICY.get(policy, policy)
    return TrustConfig(policy, section.minimum_attestations, auditors, root)


@dataclass(frozen=True)
class _Registry:
    url: Annotated[Text, Rule("the address of a registry or a directory")] | None = None
    authToken: Secret | None = None
    search_ttl_seconds: Annotated[
        float, Rule("a number of seconds that is not negative", lambda ttl: ttl >= 0)
    ] = DEFAULT_SEARCH_TTL_S


def _registry(section: _Registry, environ: Mapping[str, str]) -> RegistryConfig:
    override = environ.get("ENACT_REGISTRY_URL") or None
    token = section.authToken
    if override and override != section.url:
        token = None  # a token goes only to the registry it was written for
    if not (token and token.reveal()):
        token = Secret(environ["ENACT_AUTH_TOKEN"]) if environ.get("ENACT_AUTH_TOKEN") else None
    return RegistryConfig(override or section.url, token, section.search_ttl_seconds)


@dataclass(frozen=True)
class _Execution:
    default: _Backend | None = None
    fallback: _Backend | None = None
    trusted_scopes: _Texts = None
    defaultTimeout: Any = None  # as a tool writes its timeout: 30s
    memory: Any = None  # such as 2GiB
    scratch: Any = None
    buildTimeout: Any = None
    buildSize: Any = None  # of everything that building one tool writes
    processes: Count = DEFAULT_PROCESSES
    sandbox: Annotated[Literal["strict", "standard"], Rule("one of strict, standard")] | None = None


def _execution(section: _Execution) -> ExecutionConfig:
    names = (section.default, section.fallback)
    backend, fallback = (_SAME_BACKEND.get(name or "", name) for name in names)
    return ExecutionConfig(
        backend,
        fallback,
        section.trusted_scopes or (),
        _quantity("defaultTimeout", section.defaultTimeout, seconds, DEFAULT_TIMEOUT_S),
        _quantity("memory", section.memory, size, DEFAULT_MEMORY),
        section.processes,
        _quantity("scratch", section.scratch, size, DEFAULT_SCRATCH),
        _quantity("buildTimeout", section.buildTimeout, seconds, DEFAULT_BUILD_TIMEOUT_S),
        _quantity("buildSize", section.buildSize, size, DEFAULT_BUILD_SIZE),
        section.sandbox == "strict",
    )


def _quantity(key: str, given: object, read: Callable[[str], T], default: T) -> T:
    try:
        return default if given is None else read(str(given))
    except ValueError as error:
        raise ValueError(f"execution.{key}: {error}") from error
