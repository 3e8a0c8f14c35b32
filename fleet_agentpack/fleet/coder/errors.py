"""What can go wrong when talking to Coder, as one tree; uncaught, each is a 503 of the fleet.

    CoderError
      Unreachable          no answer: the connection broke
        NotConnected       nothing was sent: refused, no such host
        TimedOut           no answer in time
      Unauthorized         the session token is invalid or expired
      Forbidden            the token's user may not do this
      NotFound             no such object, or none that we may see
      RouteMissing         no such feature in this version of Coder
      Conflict             not now: a name is taken, a build is active
      Invalid              the request itself is wrong
      RateLimited
      Broken               an invalid answer: 5xx, HTML, half a document
        TooLarge           more bytes than we take

No error ever contains the token: it is removed from texts that come from outside.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.http import Answer, BodyTooLarge, ConnectFailed, HttpError, NoAnswerInTime

API = "/api/"  # below it Coder itself answers; elsewhere, it may be an app of a workspace
# Only this text tells a missing route from a missing object: both are 404.
ROUTE_MISSING = "Route not found."
MAX_ERROR = 100_000  # bytes of an answer that can be Coder's own error
MAX_TEXT = 500  # characters of each of its parts


@dataclass(eq=False)
class CoderError(FleetError):
    """A request to Coder that failed, with what Coder answered."""

    cause: ClassVar[str] = ""  # what it means for a person, where that is clear
    method: str
    path: str
    message: str
    status: int | None = None
    detail: str = ""
    validations: list[dict[str, str]] = field(default_factory=list)
    request_id: str = ""

    def __post_init__(self) -> None:
        told = f"{self.cause}: {self.report}" if self.cause else self.report
        super().__init__("unavailable", told, **self.answer)

    @property
    def report(self) -> str:
        """What Coder said, and to which request."""
        rows = "; ".join(f"{row['field']}: {row['detail']}" for row in self.validations)
        told = " ".join(part for part in (self.message, self.detail, rows) if part)
        return f"{told} ({self.method} {self.path}{f' → {self.status}' if self.status else ''})"

    @property
    def answer(self) -> dict[str, int | str | list[dict[str, str]]]:
        """What Coder answered, for the details of an error."""
        known: dict[str, int | str | list[dict[str, str]] | None] = {
            "coder_status": self.status,
            "coder_message": self.message,
            "validations": self.validations,
            "request_id": self.request_id,
        }
        return {key: value for key, value in known.items() if value}


def unavailable(error: CoderError, about: str = "", **details: object) -> FleetError:
    """The 503 for an error of Coder, with what was being done where that helps."""
    told = f"{about}: {error}" if about else str(error)
    return FleetError.unavailable(told, **details, **error.answer)


class Unreachable(CoderError):
    """No answer."""

    cause = "Coder is unavailable"


class NotConnected(Unreachable):
    """No connection, so nothing was sent."""


class TimedOut(Unreachable):
    """No answer in time."""


class Unauthorized(CoderError):
    """The session token is not accepted."""

    cause = (
        "Coder does not accept the session token; sign in again (coder login) or set a new"
        " CODER_SESSION_TOKEN"
    )


class Forbidden(CoderError):
    """The token's user may not do this."""

    cause = "Coder does not allow the token's user to do this"


class NotFound(CoderError):
    """No such object."""


class RouteMissing(CoderError):
    """No such route: the feature is not in this version."""

    cause = (
        "This version of Coder lacks a feature that is needed, or CODER_URL is not Coder's address"
    )


class Conflict(CoderError):
    """Not possible now."""


class Invalid(CoderError):
    """The request itself is wrong."""


class RateLimited(CoderError):
    """Too many requests."""

    cause = "Coder limits the rate of requests; try again later"


class Broken(CoderError):
    """An invalid answer."""

    cause = "Coder gave an invalid answer"


class TooLarge(Broken):
    """More bytes than we take."""


_BY_STATUS: dict[int, type[CoderError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    412: Conflict,
    429: RateLimited,
}


def of_exception(error: HttpError, method: str, path: str) -> CoderError:
    """The error for a request that got no answer."""
    if isinstance(error, ConnectFailed):
        return NotConnected(method, path, f"Coder cannot be reached: {error}")
    if isinstance(error, NoAnswerInTime):
        return TimedOut(method, path, "Coder did not answer in time")
    if isinstance(error, BodyTooLarge):
        return TooLarge(method, path, f"Coder sent {error}")
    return Unreachable(method, path, f"The connection to Coder broke: {error}")


def of_answer(answer: Answer, method: str, path: str, secret: str) -> CoderError:
    """The error for an answer with an error status."""
    status = answer.status
    said = _said(answer.body)
    message = _clean(said.message, secret)
    kind = _BY_STATUS.get(status, Broken if status >= 500 or status < 400 else Invalid)
    if status == 404 and message == ROUTE_MISSING:
        kind = RouteMissing
    if kind is Unauthorized and not path.startswith(API):
        kind = Broken  # whatever answers inside a workspace: Coder itself would redirect
    if 300 <= status < 400:
        where = answer.headers.get("location", "")
        kind = Unauthorized if "/login" in where else Broken
        message = "signed out" if kind is Unauthorized else "Coder answered with a redirect"
    if kind is RateLimited and (pause := answer.headers.get("retry-after", "")).isdecimal():
        message += f" Try again in {pause[:9]} seconds."
    return kind(
        method,
        path,
        message or f"Coder answered {status} {answer.reason}".rstrip(),
        status=status,
        detail=_clean(said.detail, secret),
        validations=[
            {key: _clean(row.get(key) or "", secret) for key in ("field", "detail")}
            for row in said.validations
        ],
        request_id=_clean(answer.headers.get("x-coder-request-id", ""), secret)[:80],
    )


@dataclass(frozen=True)
class _Said:
    message: str = ""
    detail: str = ""
    validations: Sequence[Mapping[str, Any]] = ()


def _said(content: bytes) -> _Said:
    """What an error says: Coder's and AgentAPI's JSON, or the title of an HTML page."""
    content = content[:MAX_ERROR]
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        page = content.decode("utf-8", "replace")
        return _Said(_element(page, "title"), _element(page, "p"))
    if not isinstance(body, dict):
        return _Said()
    # Coder's `detail`, or the messages of an AgentAPI problem.
    told = "; ".join(str(row["message"]) for row in _objects(body, "errors") if row.get("message"))
    message = str(body.get("message") or body.get("title") or "")
    return _Said(message, told or str(body.get("detail") or ""), _objects(body, "validations"))


def _objects(body: Mapping[str, object], key: str) -> list[dict[str, Any]]:
    listed = body.get(key)
    return [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []


def _element(page: str, name: str) -> str:
    """The text of a page's first element of a name."""
    _, is_there, rest = page.partition(f"<{name}>")
    text, is_closed, _ = rest.partition("<")
    return html.unescape(text) if is_there and is_closed else ""


def _clean(text: Any, secret: str) -> str:
    """Text from outside: short, on one line, and without the token."""
    line = " ".join(str(text).split())
    return (line.replace(secret, "***") if secret else line)[:MAX_TEXT]
