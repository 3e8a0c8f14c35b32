"""Checks what callers pass before anything is asked of an engine; each raises 400."""

from __future__ import annotations

import re

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.models import Choices, NewAgent

MAX_NAME = 20
MAX_EXISTING_NAME = 32  # Coder's limit: agents made elsewhere may have longer names than ours
MAX_TEXT_BYTES = 100_000  # less than one argument or variable of a process may hold

# Coder's own rule, stricter than the contract's "alphanumeric and hyphens".
NAME = re.compile(r"[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*\Z")
RESERVED = ("new", "create")


def check_new_name(name: str) -> None:
    """Check the name of an agent that is to be created."""
    if len(name) > MAX_NAME or not NAME.match(name) or name.lower() in RESERVED:
        raise FleetError.bad_request(
            f"'{plain(name, 'name')[:80]}' is not a valid agent name: use 1 to {MAX_NAME} letters"
            " and digits with single hyphens between them, but not 'new' or 'create'.",
            field="name",
        )


def new_agent(name: str, project: str, role: str, spec: str, choices: Choices) -> NewAgent:
    """An agent that is to be created, once its name and texts are checked."""
    check_new_name(name)
    given = {"project": project, "role": role, "spec": spec}
    texts = {field: required(text, field) for field, text in given.items()}
    return NewAgent(name, **texts, choices=choices)


def check_existing_name(name: str) -> None:
    """Check that an agent could have this name. Raises 404 if not."""
    if len(name) > MAX_EXISTING_NAME or not NAME.match(name):
        raise FleetError.no_such_agent(plain(name, "agent_name"))


def required(value: str, field: str) -> str:
    """Text that is not empty, without surrounding space."""
    text = plain(value, field).strip()
    if not text:
        raise FleetError.bad_request(f"{field} must not be empty.", field=field)
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise FleetError.bad_request(
            f"{field} is too long: {size:,} bytes, the limit is {MAX_TEXT_BYTES:,}.", field=field
        )
    return text


def plain(value: str, field: str) -> str:
    """Text that can be sent and stored: JSON can carry lone surrogates and NUL."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise FleetError.bad_request(f"{field} is not valid text.", field=field) from error
    if "\x00" in value:
        raise FleetError.bad_request(f"{field} must not contain a NUL character.", field=field)
    return value
