"""HTTP to one registry: limits, retries, and its errors as ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from fleet_agentpack.enact.errors import CALL_LATER, FIND_NAME, EnactError, then_again
from fleet_agentpack.enact.registries.registry import shown
from fleet_agentpack.kit import background, mappings
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.http import Answer, BodyTooLarge, Http, HttpError, Limits, Sleep
from fleet_agentpack.kit.proxies import is_loopback
from fleet_agentpack.kit.secret import Secret

LARGEST_ANSWER = 8 * 1024 * 1024
ANSWER_DEADLINE_S = 30.0
LIMITS = Limits(write_s=15.0, deadline_s=ANSWER_DEADLINE_S, retry_after_s=10.0)
_CODES = {
    401: "REGISTRY_UNAUTHORIZED",
    403: "REGISTRY_UNAUTHORIZED",
    404: "NOT_FOUND",
    409: "REGISTRY_CONFLICT",
    413: "BUNDLE_TOO_LARGE",
    429: "RATE_LIMITED",
}


class RegistryRefusal(EnactError):
    """An unsuccessful answer of the registry."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(self.details["status"])


class RegistryHttp:
    """Sends requests to one registry and turns its errors into ours."""

    def __init__(self, url: str, token: Secret | None = None, sleep: Sleep = asyncio.sleep) -> None:
        parts = urlsplit(url)
        if parts.username or parts.password:
            raise EnactError.bad_argument(
                "registry.url", "put the token in registry.authToken, not in the address"
            )
        if token and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise EnactError.bad_argument(
                "registry.url", "a token is sent over https only; use an https address"
            )
        self.url = url.rstrip("/")
        self._token = token
        self._http = Http(LIMITS, sleep=sleep)

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
        """One answer, after waiting as often as a busy registry asks to.

        `tick` is called at once and then twice a second; it may raise to cancel.

        Raises `RegistryRefusal`, or `EnactError` when there is no answer.
        """
        token = self._token
        work = self._http.request(
            method,
            self.url + path,
            params=params,
            content=content,
            headers={"Accept": "application/json", **(headers or {})},
            credentials={"Authorization": f"Bearer {token.reveal()}"} if token else None,
            limit=limit,
            deadline_s=deadline_s,
        )
        try:
            answer = background.run(work, tick)
        except BodyTooLarge as error:
            message = f"the registry sent {error} for {path}"
            raise EnactError.registry_error(self.url, message) from error
        except HttpError as error:
            raise EnactError.registry_unavailable(self.url, str(error)) from error
        if answer.is_success or answer.status == 304:
            return answer
        raise _refusal(self.url, path, answer)

    def close(self) -> None:
        """Close the connections."""
        background.run(self._http.close())


def parse_object(body: bytes, registry: str) -> dict[str, object]:
    """A JSON object. Raises `EnactError` for anything else, such as a proxy's HTML."""
    try:
        return mappings.parse_object(body)
    except mappings.UnparsableError as error:
        message = f"the registry's answer cannot be used: {error}"
        raise EnactError.registry_error(registry, message) from error


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
    code = _CODES.get(answer.status, "REGISTRY_ERROR")
    message = f"the registry answered {answer.status} for {path}{said and f': {said}'}"
    return RegistryRefusal(code, message, _NEXT.get(answer.status, CALL_LATER), **details)


_NEXT: Mapping[int, Action | str] = {
    401: "set registry.authToken in ~/.enact/config.yaml",
    403: "ask the registry's owner for access",
    404: FIND_NAME,
    429: then_again("wait a minute"),
}


def _yanked_answer(given: Mapping[str, Any], said: str, details: dict[str, Any]) -> RegistryRefusal:
    reason = shown(given.get("yank_reason") or given.get("reason")) or said
    replacement = shown(given.get("replacement_version") or given.get("replacement"))
    step = f"use version {replacement} instead" if replacement else "use another version"
    message = f"this version was withdrawn: {reason}"
    details = {**details, "reason": reason, "replacement": replacement or None}
    return RegistryRefusal("VERSION_YANKED", message, step, **details)
