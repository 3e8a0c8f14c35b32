"""Turns errors of the Coder client into the fleet's own errors, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fleet_agentpack.fleet.coder import errors
from fleet_agentpack.fleet.errors import FleetError

_CAUSES: dict[type[errors.CoderError], str] = {
    errors.Unauthorized: "Coder does not accept the session token; sign in again (coder login) or"
    " set a new CODER_SESSION_TOKEN",
    errors.Forbidden: "Coder does not allow the token's user to do this",
    errors.RateLimited: "Coder limits the rate of requests; try again later",
    errors.RouteMissing: "This version of Coder lacks a feature that is needed, or CODER_URL is not"
    " Coder's address",
    errors.Broken: "Coder gave an invalid answer",
    errors.Unreachable: "Coder is unavailable",
}


@contextmanager
def as_fleet_errors() -> Iterator[None]:
    """Turn a `CoderError` raised in the block into a 503 that names its cause."""
    try:
        yield
    except errors.CoderError as error:
        raise unavailable(error) from error


def unavailable(error: errors.CoderError, about: str = "", **details: object) -> FleetError:
    """The 503 for an error of Coder, with what was being done where that helps."""
    cause = next((text for kind, text in _CAUSES.items() if isinstance(error, kind)), None)
    told = ": ".join(part for part in (about, cause, str(error)) if part)
    return FleetError.unavailable(told, **details, **described(error))


def described(error: errors.CoderError) -> dict[str, object]:
    """What Coder answered, for the details of an error."""
    known = {
        "coder_status": error.status,
        "coder_message": error.message,
        "validations": error.validations,
        "request_id": error.request_id,
    }
    return {key: value for key, value in known.items() if value}
