"""The fleet's settings, read from the environment and the configuration file and checked once."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from fleet_agentpack.config import FleetTable
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.kit.shapes import ShapeError
from fleet_agentpack.settings import Settings, SettingsError

ENGINE_VARIABLE = "FLEET_AGENTPACK_FLEET"
TOKEN = re.compile(r"[!-:<-~]+")  # characters that fit in a header and a cookie
URL_VARIABLE = "CODER_URL"
TOKEN_VARIABLE = "CODER_SESSION_TOKEN"  # noqa: S105 - the variable's name


def fleet_table(settings: Settings) -> FleetTable:
    """The `[fleet]` table of the configuration file. Raises 503 for values of the wrong kind."""
    try:
        return settings.read_table(FleetTable, "fleet")
    except SettingsError as error:
        wrong = error.__cause__
        named = (
            {"setting": str(wrong.misfits[0].place[-1])} if isinstance(wrong, ShapeError) else {}
        )
        raise FleetError.unavailable(f"{error}.", **named) from error


def choose_engine(settings: Settings, table: FleetTable) -> str:
    """`coder` or `local`: Coder if it is configured or chosen, otherwise this machine."""
    environ = settings.environ
    configured = environ.get(URL_VARIABLE) or environ.get(TOKEN_VARIABLE)
    chosen = environ.get(ENGINE_VARIABLE) or table.engine or ("coder" if configured else "local")
    if chosen not in ("coder", "local"):
        raise FleetError.unavailable(
            f"{ENGINE_VARIABLE} (or [fleet] engine) must be 'coder' or 'local', not '{chosen}'."
        )
    return chosen


def coder_access(settings: Settings) -> tuple[str, Secret]:
    """The server and our token there: from the environment, else what `coder login` stored."""
    url = settings.environ.get(URL_VARIABLE, "").strip()
    token = settings.environ.get(TOKEN_VARIABLE, "").strip()
    if not url and not token:
        url, token = _stored_session(settings)
    if not url or not token:
        missing, given = (URL_VARIABLE, TOKEN_VARIABLE) if token else (TOKEN_VARIABLE, URL_VARIABLE)
        raise FleetError.unavailable(
            f"{given} is set but {missing} is not; set both, or neither to run agents on this"
            " machine.",
            missing=missing,
        )
    if not TOKEN.fullmatch(token):
        # Checked here, because the HTTP library would quote the token in its error.
        raise FleetError.unavailable(
            f"{TOKEN_VARIABLE} is not a session token: it contains spaces, line breaks, ';' or the"
            " like. Copy it again, or run 'coder login'."
        )
    return _checked_url(url), Secret(token)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.username
    except ValueError:
        usable = False
    if not usable:
        raise FleetError.unavailable(
            f"{URL_VARIABLE} must be an http or https address without a user name."
        )
    return url.rstrip("/")


def _stored_session(settings: Settings) -> tuple[str, str]:
    """The URL and token that `coder login` stored."""
    for folder in _session_folders(settings):
        try:
            url, token = (read_text(folder / name).strip() for name in ("url", "session"))
        except (FileNotFoundError, UnreadableError):
            continue
        if url and token:
            return url, token
    raise FleetError.unavailable(
        f"Coder is chosen as the engine, but there is no session: set {URL_VARIABLE} and"
        f" {TOKEN_VARIABLE}, or run 'coder login'.",
        missing=f"{URL_VARIABLE}, {TOKEN_VARIABLE}",
    )


def _session_folders(settings: Settings) -> list[Path]:
    given = settings.environ.get("CODER_CONFIG_DIR")
    if given:
        return [Path(given)]
    config = Path(settings.environ.get("XDG_CONFIG_HOME") or settings.home / ".config")
    return [config / "coderv2", settings.home / "Library/Application Support/coderv2"]
