"""Every variable and default, read once at the command line and passed down."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import platformdirs

from fleet_agentpack.kit.options import (
    ASK,
    LONGEST_PREFIX,
    VARIABLES,
    is_on,
    split_names,
    tool_prefix,
)
from fleet_agentpack.kit.paths import expand_home
from fleet_agentpack.kit.project import FoundProject, find_project
from fleet_agentpack.kit.proxies import is_loopback
from fleet_agentpack.kit.secret import Secret

APP = "fleet-agentpack"
RESULT_BYTES = 32_768  # of text; what every known client shows whole
Ask = Literal["never", "risky", "always", "require"]
_CONFIG = "FLEET_AGENTPACK_CONFIG"
T = TypeVar("T")


class SettingsError(ValueError):
    """A setting that cannot be used; the message says which and what to do."""


@dataclass(frozen=True)
class Directories:
    """Where this package keeps its own files."""

    config: Path
    state: Path
    cache: Path
    data: Path

    @classmethod
    def of_user(cls) -> Directories:
        """The platform's directories for this user."""
        dirs = platformdirs.PlatformDirs(APP, appauthor=False)
        config, state = dirs.user_config_path, dirs.user_state_path
        return cls(config, state, dirs.user_cache_path, dirs.user_data_path)


@dataclass(frozen=True)
class HttpSettings:
    """How the server listens when it serves over HTTP."""

    host: str = "127.0.0.1"
    port: int = 3000
    token: Secret | None = None
    allowed_hosts: tuple[str, ...] = ()
    install_scope: str = "global"
    projects: tuple[Path, ...] = ()  # those that a client may name with `?project=`


@dataclass(frozen=True)
class Settings:
    """Everything that comes from outside: environment, configuration file, directories."""

    environ: Mapping[str, str]
    cwd: Path  # what a path on the command line is relative to
    home: Path
    directories: Directories
    config: Mapping[str, Any] = field(default_factory=dict)
    config_path: Path | None = None
    project: Path | None = None
    no_project: str = ""  # why there is none, as a clause
    only: tuple[str, ...] = ()  # domains
    read_only: bool = False
    tools: tuple[str, ...] = ()  # if any, these alone
    without: tuple[str, ...] = ()
    prefix: str = ""  # goes before every tool's name as it is
    extras: bool = True
    ask: Ask = "never"
    result_bytes: int = RESULT_BYTES
    http: HttpSettings = field(default_factory=HttpSettings)
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        options: Mapping[str, str] | None = None,
        *,
        lenient: bool = False,
    ) -> Settings:
        """Settings from the environment and the configuration file.

        `options` are the command line's, by name: `tools` counts before FLEET_AGENTPACK_TOOLS. A
        file that cannot be read or parsed raises `SettingsError`; if lenient, it is a warning.
        """
        variables = dict(os.environ if environ is None else environ)
        directories = Directories.of_user()
        home = Path(variables.get("HOME") or Path.home())
        path = _config_path(variables, home, directories)
        try:
            config, problems = _load_config(path, required=bool(variables.get(_CONFIG))), []
        except SettingsError as error:
            if not lenient:
                raise
            config, problems = {}, [str(error)]
        problems += [f"{path}: unknown setting {key}" for key in _unknown_keys(config)]
        given = _Given(variables, options or {})
        found = find_project(given["project"], str(home), str(cwd or ""))
        settings = cls(
            environ=variables,
            cwd=cwd or _working_directory(found, home),
            home=home,
            directories=directories,
            config=config,
            config_path=path,
            project=Path(found.path) if found.path else None,
            no_project=found.reason,
            only=split_names(given["only"]),
            tools=split_names(given["tools"]),
            without=split_names(given["without"]),
            prefix=_prefix(given["prefix"]),
            extras=_has_extras(given["no_extras"]),
            warnings=tuple(problems),
        )
        return settings._bounded(given["ask"], lenient=lenient)

    def _bounded(self, ask: str, *, lenient: bool) -> Settings:
        """These settings with what `[approval]` and `[limits]` say."""
        from fleet_agentpack.config import ApprovalTable, LimitsTable

        try:
            asked = _ask(ask) if ask else self.read_table(ApprovalTable, "approval").ask
            limits = self.read_table(LimitsTable, "limits")
        except SettingsError as error:
            if not lenient:
                raise
            return replace(self, warnings=(*self.warnings, str(error)))
        return replace(self, ask=asked, result_bytes=limits.result_bytes)

    @property
    def place(self) -> FoundProject:
        """The project, or why there is none."""
        return FoundProject(str(self.project or ""), self.no_project)

    def table(self, *names: str) -> Mapping[str, object]:
        """A table of the configuration file, empty when it is not there.

        Raises `SettingsError` when something else stands in its place.
        """
        found: Any = self.config
        for name in names:
            found = found.get(name, {})
            if not isinstance(found, Mapping):
                raise SettingsError(f"{self.config_path}: [{'.'.join(names)}] must be a table")
        return dict(found)

    def read_table(self, shape: type[T], *names: str) -> T:
        """A table of the configuration file in its shape, with defaults for what is not there.

        Raises `SettingsError` that names every key with a value of the wrong kind.
        """
        found = self.table(*names)
        if not found:
            return shape()
        from fleet_agentpack.kit.shapes import ShapeError, convert

        try:
            return convert(shape, found, names)
        except ShapeError as error:
            raise SettingsError(f"{self.config_path}: {error}") from error


def check_exposure(http: HttpSettings) -> None:
    """Refuse to listen beyond loopback without a token and named hosts. Raises `SettingsError`."""
    if is_loopback(http.host):
        return
    needed = {
        "a token (FLEET_AGENTPACK_TOKEN or --token-file PATH)": http.token,
        "the names clients use (--allowed-host NAME)": http.allowed_hosts,
    }
    if missing := [what for what, given in needed.items() if not given]:
        raise SettingsError(
            f"listening on {http.host} lets other machines in; that needs {' and '.join(missing)}"
        )


def read_token_file(path: Path) -> Secret:
    """The token in a file that only its owner can read. Raises `SettingsError`."""
    try:
        with path.open(encoding="utf-8") as stream:
            if os.fstat(stream.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise SettingsError(f"{path} can be read by others; run: chmod 600 {path}")
            token = stream.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the token file {path}: {error}") from error
    if not token:
        raise SettingsError(f"the token file {path} is empty")
    return Secret(token)


class _Given(dict[str, str]):
    """What was given on the command line, else in the environment."""

    def __init__(self, environ: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._environ = environ

    def __missing__(self, name: str) -> str:
        return self._environ.get(VARIABLES[name], "")


def _prefix(text: str) -> str:
    prefix = tool_prefix(text)
    if prefix is None:
        raise SettingsError(
            f"{text!r} cannot be a prefix: at most {LONGEST_PREFIX} letters, digits, _ and -,"
            " a letter first"
        )
    return prefix


def _has_extras(text: str) -> bool:
    without = is_on(text)
    if without is None:
        raise SettingsError(f"FLEET_AGENTPACK_NO_EXTRAS is {text!r}; give 1 or 0")
    return not without


def _ask(text: str) -> Ask:
    if text not in ASK:
        raise SettingsError(f"{text!r} is no way to ask; choose from {', '.join(ASK)}")
    return cast("Ask", text)


def _working_directory(project: FoundProject, home: Path) -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return Path(project.path or home)


def _config_path(environ: Mapping[str, str], home: Path, directories: Directories) -> Path:
    given = environ.get(_CONFIG)
    return expand_home(given, home) if given else directories.config / "config.toml"


def _load_config(path: Path, *, required: bool) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if not required:
            return {}
        told = f"FLEET_AGENTPACK_CONFIG names {path}, which does not exist"
        raise SettingsError(told) from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error


def _unknown_keys(config: Mapping[str, Any]) -> list[str]:
    if not config:
        return []
    from fleet_agentpack.config import ConfigFile
    from fleet_agentpack.kit.shapes import unknown_keys

    return [f"{key.name}{key.hint}" for key in unknown_keys(ConfigFile, config)]
