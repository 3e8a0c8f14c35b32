"""Values for the variables that a tool declares: `.env` files, the keyring, the environment."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import quote, quote_plus

from fleet_agentpack.enact.errors import EnactError, ask_user
from fleet_agentpack.enact.manifest import Variable
from fleet_agentpack.enact.settings import Keyring
from fleet_agentpack.kit.files import UnreadableError, read_text

KEYRING_SERVICE = "enact-cli"
SHORTEST_MASKED = 4
SHORTEST_ENCODED = 8  # a shorter one is in any text
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


T = TypeVar("T")


@dataclass(frozen=True)
class Resolved:
    """Values for a tool's variables, and which of them must never be shown."""

    values: Mapping[str, str]
    secrets: tuple[str, ...] = ()

    def masked(self, text: str) -> str:
        """Text without the secrets that a tool may have printed, in the usual encodings too."""
        return self._pattern.sub("***", text) if self._pattern else text

    def masked_throughout(self, data: T) -> T:
        """JSON data without them, in names and values."""
        made: object = data
        if isinstance(data, str):
            made = self.masked(data)
        elif isinstance(data, dict):
            made = {self.masked(k): self.masked_throughout(v) for k, v in data.items()}
        elif isinstance(data, list):
            made = [self.masked_throughout(each) for each in data]
        return cast("T", made)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        forms = {
            form
            for secret in self.secrets
            if len(secret) >= SHORTEST_MASKED
            for form in (secret, *(e for e in _encoded(secret) if len(e) >= SHORTEST_ENCODED))
        }
        ordered = sorted(forms, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, ordered))) if forms else None


@dataclass(frozen=True)
class VariableSources:
    """Where values come from."""

    environ: Mapping[str, str]
    env_file: Path
    keyring: Keyring


def resolve(
    tool: str, variables: Sequence[Variable], sources: VariableSources, granted: Collection[str]
) -> Resolved:
    """Values of the user for the granted variables, defaults for the others; all are masked.

    Raises `EnactError` if a required one is missing.
    """
    kept = parse_env_file(sources.env_file) if variables else {}
    defaults = {each.name: each.default for each in variables if each.default is not None}
    own: dict[str, str] = {}
    for variable in (each for each in variables if each.name in granted):
        name = variable.name
        found = _secret(tool, name, sources.keyring) if variable.secret else kept.get(name)
        value = found or sources.environ.get(name)
        if value is not None:
            own[name] = value
        elif variable.required and name not in defaults:
            raise _missing(tool, variable)
    return Resolved({**defaults, **own}, tuple(sorted(own.values(), key=len, reverse=True)))


def _encoded(secret: str) -> Iterator[str]:
    """A secret as JSON, in an address, in hexadecimal, in base64 wherever it begins, by lines."""
    raw = secret.encode("utf-8", "surrogateescape")
    for text in (json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
        yield text[1:-1]
        yield json.dumps(text)[3:-3]  # JSON in a text of JSON
    yield from (quote(raw), quote(raw, safe=""), quote_plus(raw), raw.hex(), raw.hex().upper())
    for offset in range(3):
        text = b64encode(bytes(offset) + raw).decode()
        own = text[-(-8 * offset // 6) : 8 * (offset + len(raw)) // 6]
        yield from (own, own.replace("+", "-").replace("/", "_"))
    yield from (line.strip() for line in secret.splitlines())


def system_keyring(service: str, account: str) -> str | None:
    """A password from the user's keyring; None where there is no keyring."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        return keyring.get_password(service, account)
    except (KeyringError, RuntimeError, OSError):
        return None


def parse_env_file(path: Path) -> dict[str, str]:
    """The variables of a `.env` file; a file that cannot be read has none."""
    try:
        lines = read_text(path).splitlines()
    except (FileNotFoundError, UnreadableError):
        return {}
    found = {}
    for line in lines:
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            found[name.removeprefix("export ").strip()] = _unquoted(value.strip())
    return found


def namespaces(tool: str) -> Iterator[str]:
    """A tool's name and the namespaces around it, nearest first."""
    while tool:
        yield tool
        tool = tool.rpartition("/")[0]


def _secret(tool: str, name: str, keyring: Keyring) -> str | None:
    found = (keyring(KEYRING_SERVICE, f"{namespace}:{name}") for namespace in namespaces(tool))
    return next(filter(None, found), None)


def _missing(tool: str, variable: Variable) -> EnactError:
    name = variable.name
    code, where = "VARIABLE_MISSING", f"set {name} in ~/.enact/.env or in the server's environment"
    if variable.secret:
        keyring = f"the keyring (service {KEYRING_SERVICE}, account {tool}:{name})"
        where = f"store it in {keyring} or set {name} in the server's environment"
        code = "SECRET_MISSING"
    message = f"{tool} needs {name}: {variable.description}"
    return EnactError(code, message, ask_user(where), tool=tool, variable=name)


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return value[1:-1]
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), value[1:-1])
    return value.split(" #", 1)[0].rstrip()
