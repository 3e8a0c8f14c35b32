"""Values for the variables that a tool declares: `.env` files, the keyring, the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.enact.errors import EnactError, ask_user
from fleet_agentpack.enact.manifest import Variable
from fleet_agentpack.enact.settings import Keyring
from fleet_agentpack.kit.files import UnreadableError, read_text

KEYRING_SERVICE = "enact-cli"
SHORTEST_MASKED = 4
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


@dataclass(frozen=True)
class Resolved:
    """Values for a tool's variables, and which of them must never be shown."""

    values: Mapping[str, str]
    secrets: tuple[str, ...] = ()

    def masked(self, text: str) -> str:
        """Text without the secrets that a tool may have printed."""
        for secret in self.secrets:
            if len(secret) >= SHORTEST_MASKED:
                text = text.replace(secret, "***")
        return text


@dataclass(frozen=True)
class VariableSources:
    """Where values come from."""

    environ: Mapping[str, str]
    env_file: Path
    keyring: Keyring


def resolve(tool: str, variables: Sequence[Variable], sources: VariableSources) -> Resolved:
    """A value for every declared variable. Raises `EnactError` if a required one is missing."""
    kept = parse_env_file(sources.env_file) if variables else {}
    values: dict[str, str] = {}
    for variable in variables:
        name = variable.name
        found = _secret(tool, name, sources.keyring) if variable.secret else kept.get(name)
        value = found or sources.environ.get(name) or variable.default
        if value is not None:
            values[name] = value
        elif variable.required:
            raise _missing(tool, variable)
    secrets = [each.name for each in variables if each.secret]
    return Resolved(values, tuple(values[name] for name in secrets if name in values))


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
