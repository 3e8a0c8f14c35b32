"""Every variable and default, read once at the command line and passed down."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from fleet_agentpack.kit.paths import expand_home
from fleet_agentpack.kit.proxies import is_loopback
from fleet_agentpack.kit.secret import Secret

APP = "fleet-agentpack"
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


@dataclass(frozen=True)
class Settings:
    """Everything that comes from outside: environment, configuration file, directories."""

    environ: Mapping[str, str]
    cwd: Path
    home: Path
    directories: Directories
    config: Mapping[str, Any] = field(default_factory=dict)
    config_path: Path | None = None
    only: tuple[str, ...] = ()
    read_only: bool = False
    http: HttpSettings = field(default_factory=HttpSettings)
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        *,
        lenient: bool = False,
    ) -> Settings:
        """Settings from the environment and the configuration file.

        A file that cannot be read or parsed raises `SettingsError`; if lenient, it is a warning.
        """
        variables = dict(os.environ if environ is None else environ)
        directories = Directories.of_user()
        given = variables.get("FLEET_AGENTPACK_CONFIG")
        home = Path(variables.get("HOME") or Path.home())
        path = expand_home(given, home) if given else directories.config / "config.toml"
        warnings: list[str] = []
        try:
            config = _load_config(path, required=bool(given))
        except SettingsError as error:
            if not lenient:
                raise
            config, warnings = {}, [str(error)]
        warnings += [f"{path}: unknown setting {key}" for key in _unknown_keys(config)]
        return cls(
            environ=variables,
            cwd=cwd or Path.cwd(),
            home=home,
            directories=directories,
            config=config,
            config_path=path,
            only=split_names(variables.get("FLEET_AGENTPACK_ONLY", "")),
            warnings=tuple(warnings),
        )

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


def split_names(text: str) -> tuple[str, ...]:
    """The names in a list with commas between them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
