"""Access to registries: requests, the tokens that they carry, what is shown without secrets."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from fleet_agentpack.forge.errors import ForgeError, run
from fleet_agentpack.forge.names import MAX_MANIFEST_BYTES, Directories, Registry, local_path
from fleet_agentpack.forge.results import timestamp
from fleet_agentpack.kit import background, http
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.http import is_same_origin
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.proxies import is_loopback
from fleet_agentpack.kit.secret import Secret

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend


logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3.0
DEADLINE_S = 10.0
MAX_REDIRECTS = 5
AT_ONCE = 10


@dataclass(frozen=True)
class Request:
    """One thing to fetch; the headers are kept to the URL's own server."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limit: int = MAX_MANIFEST_BYTES


class Transport:
    """Answers requests with bytes, or with the error that explains why there are none."""

    def __init__(
        self, *, connect_timeout_s: float = CONNECT_TIMEOUT_S, deadline_s: float = DEADLINE_S
    ):
        self._deadline_s = deadline_s
        self._limits = http.Limits(
            connect_s=connect_timeout_s,
            read_s=deadline_s,
            deadline_s=deadline_s,
            connect_attempts=1,  # a registry out of reach must not hold up a list
            redirects=MAX_REDIRECTS,
        )

    def fetch(self, request: Request) -> bytes:
        """The body of one answer. Raises `ForgeError`."""
        answer = self.fetch_all([request])[0]
        if isinstance(answer, ForgeError):
            raise answer
        return answer

    def fetch_all(self, requests: Sequence[Request]) -> list[bytes | ForgeError]:
        """The bodies of several answers, fetched concurrently, in the order of the requests."""
        remote = [each for each in requests if not each.url.startswith("file:")]
        answers = iter(background.run(self._gather(remote)) if remote else [])
        return [
            _from_file(each) if each.url.startswith("file:") else next(answers) for each in requests
        ]

    async def _gather(self, requests: Sequence[Request]) -> list[bytes | ForgeError]:
        client, turns = http.Http(self._limits), asyncio.Semaphore(AT_ONCE)
        try:
            return await asyncio.gather(*(self._answer(client, turns, each) for each in requests))
        finally:
            await client.close()

    async def _answer(
        self, client: http.Http, turns: asyncio.Semaphore, request: Request
    ) -> bytes | ForgeError:
        shown = masked_url(request.url)
        try:
            async with asyncio.timeout(self._deadline_s), turns:
                answer = await client.request(
                    "GET",
                    request.url,
                    headers={"Accept-Encoding": "identity"},
                    credentials=request.headers,
                    limit=request.limit,
                )
        except (TimeoutError, http.NoAnswerInTime):
            return ForgeError.network(f"{shown} did not answer in time", url=shown)
        except http.BodyTooLarge:
            return _too_large(request)
        except http.RedirectRefused as error:
            return ForgeError.network(f"{shown} {error}", url=shown)
        except http.HttpError as error:
            return ForgeError.network(f"{shown} cannot be reached: {error}", url=shown)
        if answer.status != 200:
            return _refusal(answer.status, request)
        logger.debug("fetched %s: %d bytes", shown, len(answer.body))
        return answer.body


def _refusal(status: int, request: Request) -> ForgeError:
    shown, sent = masked_url(request.url), bool(request.headers)
    if status in (401, 403):
        return ForgeError(
            "AUTH_FAILED" if sent else "AUTH_REQUIRED",
            f"{shown} {'refused the token' if sent else 'asks for a token'} (HTTP {status})",
            run("Log in: {}", "login", "REGISTRY"),
            "Or set FRACTARY_REGISTRY_TOKEN, or the registry's auth.token_env",
            url=shown,
            status=status,
        )
    message, advice = f"{shown} answered HTTP {status}", "Check the address"
    if status in (404, 410):
        message = f"there is nothing at {shown} (HTTP {status})"
        advice = "Check the address; a repository is added as owner/repo"
    elif status >= 500:
        message = f"{shown} has a problem of its own (HTTP {status})"
        advice = "Try again later"
    return ForgeError.network(message, advice, url=shown, status=status)


def _too_large(request: Request) -> ForgeError:
    shown = masked_url(request.url)
    message = f"the answer of {shown} is larger than the limit of {request.limit:,} bytes"
    return ForgeError.network(message, url=shown)


def _no_file(url: str, path: Path) -> ForgeError:
    what = "is not a file" if path.exists() else "does not exist"
    advice = "Correct the path in the registry's file:// URL, or put the file there"
    return ForgeError.network(f"{path} {what}", advice, url=url, path=str(path), status=404)


def _from_file(request: Request) -> bytes | ForgeError:
    path = local_path(request.url)
    try:
        if not path.is_file():
            return _no_file(request.url, path)
        with path.open("rb") as stream:
            body = stream.read(request.limit + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        return ForgeError.network(f"{request.url} cannot be read: {reason}", url=request.url)
    return _too_large(request) if len(body) > request.limit else body


SERVICE = "fractary-forge"
STOCKYARD_VARIABLES = ("STOCKYARD_TOKEN", "FRACTARY_TOKEN")
DEFAULT_VARIABLE = "FRACTARY_REGISTRY_TOKEN"


class Vault(Protocol):
    """Where the system keeps secrets."""

    def get(self, account: str) -> str | None:
        """A kept secret."""

    def put(self, account: str, secret: str) -> bool:
        """Keep a secret; false when this system has no such place."""

    def remove(self, account: str) -> None:
        """Forget a secret."""


class Keyring:
    """The system's keyring through the `keyring` package, where both are available."""

    # Backends fail in ways of their own; one that is locked or missing is as good as none.

    def get(self, account: str) -> str | None:
        """See `Vault.get`."""
        with suppress(Exception):
            return self._backend().get_password(SERVICE, account)
        return None

    def put(self, account: str, secret: str) -> bool:
        """See `Vault.put`."""
        with suppress(Exception):
            self._backend().set_password(SERVICE, account, secret)
            return True
        return False

    def remove(self, account: str) -> None:
        """See `Vault.remove`."""
        with suppress(Exception):
            self._backend().delete_password(SERVICE, account)

    @staticmethod
    def _backend() -> KeyringBackend:
        import keyring
        from keyring.backends import fail

        backend = keyring.get_keyring()
        if isinstance(backend, fail.Keyring) or backend.priority < 1:
            raise LookupError("no usable keyring")
        return backend


@dataclass(frozen=True)
class StoredLogin:
    """One registry's entry in the file of logins."""

    token: str = ""
    in_keyring: bool = False
    pair: tuple[str, str] | None = None  # user name and password, for basic authentication

    @property
    def is_usable(self) -> bool:
        """Whether there is a credential."""
        return bool(self.token or self.in_keyring or self.pair)


NO_LOGIN = StoredLogin()


class _LoginFile(NamedTuple):
    data: dict[str, Any]
    logins: dict[str, Any]  # `registries` in the data


@dataclass(frozen=True)
class Credentials:
    """The logins of this user and the tokens in the environment."""

    directories: Directories
    vault: Vault

    @property
    def path(self) -> Path:
        """The file of logins, shared with the original program."""
        return self.directories.user / "auth/credentials.json"

    def is_authenticated(self, registry: Registry) -> bool:
        """Whether requests to a registry would carry a credential; asks no keyring."""
        return bool(self._from_environment(registry)) or self._login(registry.name).is_usable

    def headers(self, registry: Registry, url: str) -> dict[str, str]:
        """The headers that authorise a request; none for a foreign or an unprotected URL."""
        if not is_same_origin(registry.url, url) or not _is_protected(url):
            return {}
        token = self._from_environment(registry)
        if token is None:
            login = self._login(registry.name)
            if login.pair:
                encoded = base64.b64encode(":".join(login.pair).encode()).decode()
                return {"Authorization": f"Basic {encoded}"}
            kept = self.vault.get(registry.name) if login.in_keyring else login.token
            token = Secret(kept) if kept else None
        if token is None:
            return {}
        if registry.auth_type == "apikey":
            return {"X-API-Key": token.reveal()}
        return {"Authorization": f"Bearer {token.reveal()}"}

    def store(self, name: str, token: Secret, now: datetime) -> str:
        """Log in to a registry; returns where the token is kept: `keyring` or the file's path."""
        moment = timestamp(now)
        self._file(moment)  # refuses a broken one before anything is kept anywhere
        login: dict[str, Any] = {"type": "token", "authenticated_at": moment}
        in_keyring = self.vault.put(name, token.reveal())
        login |= {"keyring": True} if in_keyring else {"token": token.reveal()}
        self._edit(name, login, moment)
        return "keyring" if in_keyring else str(self.path)

    def forget(self, name: str, now: datetime) -> bool:
        """Log out; false when there was no login. Raises `ForgeError` for an unusable file."""
        moment = timestamp(now)
        known = name in self._file(moment).logins
        if known:
            self.vault.remove(name)
            self._edit(name, None, moment)
        return known

    def _from_environment(self, registry: Registry) -> Secret | None:
        """A token for this registry; without one and without a login, a token for any registry."""
        environ, is_stockyard = self.directories.environ, registry.kind == "stockyard"
        if registry.token_env and environ.get(registry.token_env):
            return Secret(environ[registry.token_env])
        if self._login(registry.name).is_usable:
            return None
        for name in (*(STOCKYARD_VARIABLES if is_stockyard else ()), DEFAULT_VARIABLE):
            if environ.get(name):
                return Secret(environ[name])
        return self._stockyard_file() if is_stockyard else None

    def _stockyard_file(self) -> Secret | None:
        try:
            section = read_mapping(self.directories.user / "config/forge.json").get("stockyard")
        except (FileNotFoundError, UnparsableError):
            return None
        token = section.get("token") if isinstance(section, Mapping) else None
        return Secret(token) if isinstance(token, str) and token else None

    def _login(self, name: str) -> StoredLogin:
        """The login to a registry; one that has expired is none."""
        try:
            registries = read_mapping(self.path).get("registries")
        except (FileNotFoundError, UnparsableError):
            return NO_LOGIN
        login = registries.get(name) if isinstance(registries, Mapping) else None
        if not isinstance(login, Mapping) or _is_past(login.get("expires_at")):
            return NO_LOGIN
        user, password = login.get("username"), login.get("password")
        if login.get("type") == "basic":
            return StoredLogin(pair=(str(user), str(password)) if user and password else None)
        return StoredLogin(str(login.get("token") or ""), bool(login.get("keyring")))

    def _edit(self, name: str, login: Mapping[str, Any] | None, moment: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with file_lock(self.path.with_name(".credentials.lock")):
                data, logins = self._file(moment)
                logins.pop(name, None)
                if login is not None:
                    logins[name] = dict(login)
                data["updated_at"] = moment
                write_atomic(self.path, json.dumps(data, indent=2) + "\n", mode=0o600, durable=True)
        except OSError as error:
            raise ForgeError.unwritable(self.path, error) from error

    def _file(self, moment: str) -> _LoginFile:
        try:
            data = read_mapping(self.path)
        except FileNotFoundError:
            data = {"version": "1.0.0", "created_at": moment}
        except UnparsableError as error:
            raise ForgeError.config(self.path, str(error)) from error
        logins = data.setdefault("registries", {})
        if not isinstance(logins, dict):
            raise ForgeError.config(self.path, "registries must be an object")
        return _LoginFile(data, logins)


def _is_protected(url: str) -> bool:
    """A token goes over TLS, or stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def _is_past(text: object) -> bool:
    if not isinstance(text, str) or not text:
        return False
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return True
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) <= datetime.now(UTC)


MASK = "***"

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_KEY = re.compile(
    r"(?:.*_)?(?:token|secret|password|passwd|passphrase|pwd|(?:api|access|private|signing)_?key"
    r"|authorization|credentials?|cookie)\Z"
)
_SHORTEST_SECRET = 4  # shorter values would blank out ordinary words
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_PARAMETER = re.compile(r"([^&=]*)=([^&]*)")
_SECRET_PARAMETERS = ("sig", "signature", "key", "code", "auth", "jwt", "session", "state")
# A word, a number or a version; not letters and digits in a row as long as a key.
_PLAIN_VALUE = re.compile(r"(?:[A-Za-z]{0,40}|[0-9]{0,12}|[\w./-]{0,15})\Z", re.ASCII)
_SCHEME = re.compile(r"(\bBearer|^\s*(?:bearer|Basic|basic))\s+\S+")
_HEADER = re.compile(r"\s*-{0,2}([A-Za-z][\w-]*)\s*[:=]\s*(?=\S)")  # also `--token=…`


def is_secret_name(name: str) -> bool:
    """Whether a key or a variable is named like a secret; `token_env` only names a variable."""
    plain = _WORD_START.sub("_", name).lower().replace("-", "_")
    return bool(_SECRET_KEY.match(plain))


def masked(value: object, secrets: Collection[str] = (), key: str = "") -> object:
    """A copy without secrets: by the key's name, by known value, and inside URLs and headers."""
    if isinstance(value, Mapping):
        pair = _named_by(value)
        return {
            name: masked(item, secrets, _closest(key, pair if name == "value" else str(name)))
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [masked(item, secrets, key) for item in value]
    if value is None or value == "":
        return value
    if is_secret_name(key):
        return MASK
    if not isinstance(value, str):
        return value
    # `max_tokens` is a number; `tokens` of text are what they are called
    return MASK if is_secret_name(key.removesuffix("s")) else _masked_text(value, secrets)


def masked_url(url: str) -> str:
    """A URL without its user and password and without the secrets in its query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    if not parts.scheme or not ("@" in parts.netloc or parts.query or parts.fragment):
        return url
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{MASK}@{host}" if "@" in parts.netloc else host
    query, fragment = (_PARAMETER.sub(_masked_parameter, each) for each in parts[3:])
    return urlunsplit((parts.scheme, netloc, parts.path, query, fragment))


def _masked_parameter(found: re.Match[str]) -> str:
    """`ref=main` is shown; what is called or looks like a secret is not."""
    name, value = unquote(found[1]), found[2]
    secret = is_secret_name(name) or name.lower() in _SECRET_PARAMETERS
    return f"{found[1]}={MASK}" if secret or not _PLAIN_VALUE.match(value) else found[0]


def _named_by(pair: Mapping[Any, Any]) -> str:
    """What `value` is the value of, in `{"name": "Authorization", "value": …}`."""
    return next((pair[each] for each in ("name", "key") if isinstance(pair.get(each), str)), "")


def _closest(outer: str, inner: str) -> str:
    """The name to judge a value by; all that is inside a secret is secret."""
    return outer if is_secret_name(outer) or is_secret_name(outer.removesuffix("s")) else inner


def _masked_text(text: str, secrets: Collection[str]) -> str:
    header = _HEADER.match(text)
    if "PRIVATE KEY-----" in text:
        return MASK
    if header and is_secret_name(header[1]):
        return f"{header[0]}{MASK}"
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    text = _SCHEME.sub(rf"\1 {MASK}", text)
    return _URL.sub(lambda match: masked_url(match[0]), text)
