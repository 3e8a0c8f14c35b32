"""HTTP to one registry: limits, waiting, and its errors turned into ours."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fleet_agentpack.enact.errors import CALL_LATER, FIND_NAME, EnactError
from fleet_agentpack.enact.registries.registry import shown
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.version import __version__

if TYPE_CHECKING:
    import httpx

LARGEST_ANSWER = 8 * 1024 * 1024
MOST_TRIES = 3
LONGEST_WAIT_S = 10.0
ANSWER_DEADLINE_S = 30.0
TICK_S = 0.5
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CODES = {
    401: "REGISTRY_UNAUTHORIZED",
    403: "REGISTRY_UNAUTHORIZED",
    404: "NOT_FOUND",
    409: "REGISTRY_CONFLICT",
    410: "VERSION_YANKED",
    413: "BUNDLE_TOO_LARGE",
    429: "RATE_LIMITED",
}


class RegistryRefusal(EnactError):
    """An answer of the registry other than success."""

    status: int = 0


@dataclass(frozen=True)
class Answer:
    """A successful answer, or one that says that nothing has changed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RegistryHttp:
    """Sends requests to one registry and turns its errors into ours."""

    def __init__(
        self, url: str, token: Secret | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        parts = urlsplit(url)
        if parts.username or parts.password:
            raise EnactError.bad_argument(
                "registry.url", "put the token in registry.authToken, not in the address"
            )
        if token and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise EnactError.bad_argument(
                "registry.url", "a token is sent over https only; use an https address"
            )
        self.url = url.rstrip("/")
        self._token = token
        self._sleep = sleep
        self._opened: httpx.Client | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        limit: int = LARGEST_ANSWER,
        deadline_s: float = ANSWER_DEADLINE_S,
        tick: Callable[[], None] = lambda: None,
    ) -> Answer:
        """One answer, after waiting as often as a busy registry asks for it.

        `tick` is called twice a second while bytes arrive and may raise to give up.

        Raises `RegistryRefusal`, or `EnactError` when there is no answer.
        """
        import httpx

        ends = time.monotonic() + deadline_s
        for attempt in range(1, MOST_TRIES + 1):
            try:
                answer = self._once(method, path, params, content, headers, limit, ends, tick)
            except httpx.HTTPError as error:
                reason = str(error) or type(error).__name__
                raise EnactError.registry_unavailable(self.url, reason) from error
            if answer.status == 429 and attempt < MOST_TRIES:
                wait = _retry_after(answer.headers.get("retry-after"), attempt)
                if time.monotonic() + wait < ends:
                    self._sleep(wait)
                    continue
            break
        if answer.status < 300 or answer.status == 304:
            return answer
        raise _refusal(self.url, path, answer)

    def json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """An answer that must be a JSON object."""
        return parse_object(self.request(method, path, **options).body, self.url)

    def close(self) -> None:
        """Give the connections back."""
        if self._opened is not None:
            self._opened.close()

    def _client(self) -> httpx.Client:
        import httpx

        if self._opened is None:
            self._opened = httpx.Client(
                verify=self.url.startswith("https:"),  # plain HTTP needs no certificates loaded
                timeout=httpx.Timeout(connect=5.0, read=15.0, write=15.0, pool=5.0),
                headers={
                    "User-Agent": f"fleet-agentpack/{__version__}",
                    "Accept": "application/json",
                },
            )
        return self._opened

    def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None,
        content: bytes | None,
        headers: Mapping[str, str] | None,
        limit: int,
        ends: float,
        tick: Callable[[], None],
    ) -> Answer:
        sent = dict(headers or {})
        if self._token:
            sent["Authorization"] = f"Bearer {self._token.reveal()}"
        with self._client().stream(
            method, self.url + path, params=params, content=content, headers=sent
        ) as response:
            body = bytearray()
            next_tick = time.monotonic()
            for chunk in response.iter_bytes():
                body += chunk
                if time.monotonic() >= next_tick:
                    tick()
                    next_tick = time.monotonic() + TICK_S
                if len(body) > limit:
                    raise EnactError.registry_error(
                        "REGISTRY_ERROR",
                        f"the registry sent more than {limit} bytes for {path}",
                        registry=self.url,
                    )
                if time.monotonic() > ends:
                    raise EnactError.registry_unavailable(self.url, "it answers too slowly")
            lowered = {key.lower(): value for key, value in response.headers.items()}
            return Answer(response.status_code, lowered, bytes(body))


def parse_object(body: bytes, registry: str) -> dict[str, Any]:
    """A JSON object. Raises `EnactError` for anything else, such as a proxy's HTML."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise EnactError.registry_error(
            "REGISTRY_ERROR", "the registry answered with something that is not JSON",
            registry=registry,
        ) from error  # fmt: skip
    if not isinstance(found, dict):
        raise EnactError.registry_error(
            "REGISTRY_ERROR", "the registry answered in an unknown shape", registry=registry
        )
    return found


def _refusal(url: str, path: str, answer: Answer) -> RegistryRefusal:
    try:
        error = json.loads(answer.body).get("error")
    except (ValueError, AttributeError, RecursionError):
        error = None
    error = error if isinstance(error, dict) else {}
    said = shown(error.get("message")) or shown(answer.body[:300].decode("utf-8", "replace"))
    details: dict[str, Any] = {"registry": url, "status": answer.status}
    if isinstance(error.get("code"), str):
        details["registry_code"] = shown(error["code"])
    if answer.status == 410:
        given = error.get("details")
        return _yanked_answer(given if isinstance(given, dict) else {}, said, details)
    refusal = RegistryRefusal(
        _CODES.get(answer.status, "REGISTRY_ERROR"),
        f"the registry answered {answer.status} for {path}: {said}",
        details=details,
        actions=[_NEXT.get(answer.status, CALL_LATER)],
    )
    refusal.status = answer.status
    return refusal


_NEXT: Mapping[int, Action | str] = {
    401: "set registry.authToken in ~/.enact/config.yaml",
    403: "ask the registry's owner for access",
    404: FIND_NAME,
    429: Action.instruction("wait a minute, then call again", "wait a minute, then try again"),
}


def _yanked_answer(given: Mapping[str, Any], said: str, details: dict[str, Any]) -> RegistryRefusal:
    reason = shown(given.get("yank_reason") or given.get("reason")) or said
    replacement = shown(given.get("replacement_version") or given.get("replacement"))
    refusal = RegistryRefusal(
        "VERSION_YANKED",
        f"this version was withdrawn: {reason}",
        details={**details, "reason": reason, "replacement": replacement or None},
        actions=[f"ask for version {replacement}" if replacement else "ask for another version"],
    )
    refusal.status = 410
    return refusal


def _retry_after(value: str | None, attempt: int) -> float:
    if value and value.strip().isdigit():
        return min(float(value), LONGEST_WAIT_S)
    if value:
        try:
            until = email.utils.parsedate_to_datetime(value).timestamp()
        except (ValueError, TypeError):
            return float(attempt)
        return min(max(until - time.time(), 0.0), LONGEST_WAIT_S)
    return float(attempt)
