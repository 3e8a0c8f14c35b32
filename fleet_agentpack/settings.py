"""Every variable and default, read once at the command line and passed down."""

from __future__ import annotations

import os
import secrets
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
    is_on,
    split_names,
    tool_prefix,
    variables_named,
)
from fleet_agentpack.kit.paths import PathArguments, expand_home
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
    open_to_all: bool = False  # no token is asked for: `--no-token`
    allowed_hosts: tuple[str, ...] = ()
    install_scope: str = "global"
    projects: tuple[Path, ...] = ()  # those that a client may name with `?project=`


@dataclass(frozen=True)
class Settings:
    """Everything that comes from outside: environment, configuration file, directories."""

    environ: Mapping[str, str]
    cwd: Path
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
    serving: bool = False  # not on the command line, where paths start at the working directory
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
        given = {**variables_named(variables), **(options or {})}
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
            warnings=tuple(problems),
        )
        return settings.choosing(given)._bounded(given["ask"], lenient=lenient)

    def choosing(self, options: Mapping[str, str]) -> Settings:
        """These settings with the options that choose what is served, as far as they are given.

        Raises `SettingsError` for a prefix that cannot be one.
        """
        extras = _has_extras(options["no_extras"]) if options.get("no_extras") else self.extras
        return replace(
            self,
            only=split_names(options.get("only", "")) or self.only,
            tools=split_names(options.get("tools", "")) or self.tools,
            without=split_names(options.get("without", "")) or self.without,
            prefix=_prefix(options.get("prefix", "")) or self.prefix,
            extras=extras,
        )

    def _bounded(self, ask: str, *, lenient: bool) -> Settings:
        """These settings with what `[approval]` and `[limits]` say."""
        if not self.config and not ask:
            return self  # the defaults, without an import of the tables' shapes
        from fleet_agentpack.config import ApprovalTable, LimitsTable

        try:
            asked = _ask(ask) if ask else self.read_table(ApprovalTable, "approval").ask
            limits = self.read_table(LimitsTable, "limits")
        except SettingsError as error:
            if not lenient:
                raise
            return replace(self, warnings=(*self.warnings, str(error)))
        return replace(self, ask=asked, result_bytes=limits.result_bytes)

    def served(self, project: Path | None = None) -> Settings:
        """The settings of a server, and of another project than its own, if one is given."""
        served = replace(self, serving=True)
        return replace(served, project=project, no_project="") if project else served

    @property
    def paths(self) -> PathArguments:
        """What paths mean that a caller gives."""
        base = self.project if self.serving else self.cwd
        return PathArguments(base, self.home, self.environ, self.place.advice)

    @property
    def place(self) -> FoundProject:
        """The project, or why there is none."""
        return FoundProject(str(self.project or ""), self.no_project)

    def value(self, *names: str) -> object:
        """What the configuration file has at a place, None for nothing.

        Raises `SettingsError` when there is something else than a table on the way.
        """
        found: object = self.config
        for at, name in enumerate(names):
            if not isinstance(found, Mapping):
                raise self._no_table(*names[:at])
            found = found.get(name)
            if found is None:
                return None
        return found

    def read_table(self, shape: type[T], *names: str) -> T:
        """A table of the configuration file in its shape, with defaults for what is not there.

        Raises `SettingsError` that names every key with a value of the wrong kind.
        """
        found = self.value(*names)
        if found is None:
            return shape()
        if not isinstance(found, Mapping):
            raise self._no_table(*names)
        from fleet_agentpack.kit.shapes import ShapeError, convert

        try:
            return convert(shape, found, names)
        except ShapeError as error:
            raise SettingsError(f"{self.config_path}: {error}") from error

    def _no_table(self, *names: str) -> SettingsError:
        return SettingsError(f"{self.config_path}: [{'.'.join(names)}] must be a table")


def check_exposure(http: HttpSettings) -> None:
    """Refuse to listen beyond loopback without a token and named hosts. Raises `SettingsError`."""
    if is_loopback(http.host):
        return
    if http.open_to_all:
        raise SettingsError(f"--no-token is for loopback, and {http.host} lets other machines in")
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


def own_token(path: Path) -> tuple[Secret, bool]:
    """The token of a server that was given none, made at the first start; and whether it is new.

    Raises `SettingsError`.
    """
    from fleet_agentpack.kit.files import write_atomic
    from fleet_agentpack.kit.locks import LockTimeoutError, file_lock

    try:
        with file_lock(path.with_name(f".{path.name}.lock"), timeout_s=10):
            made = not path.exists()
            if made:
                write_atomic(path, secrets.token_urlsafe(32) + "\n", mode=0o600)
    except (OSError, LockTimeoutError) as error:
        told = f"cannot keep a token in {path}: {error}; give --token-file PATH or --no-token"
        raise SettingsError(told) from error
    return read_token_file(path), made


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
        raise SettingsError(f"{text!r} is not a way to ask; choose from {', '.join(ASK)}")
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
