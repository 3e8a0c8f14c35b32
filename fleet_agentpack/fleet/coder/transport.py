"""Requests to one Coder server as one user; a redirect is never followed.

The token goes in a header to `/api`, where Coder reads it, and in a cookie to app paths, where
Coder's proxy strips cookies but passes headers on into the workspace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleet_agentpack.fleet.coder import errors
from fleet_agentpack.kit.http import MIB, Answer, Http, HttpError, Limits, Sleep
from fleet_agentpack.kit.secret import Secret

if TYPE_CHECKING:
    from fleet_agentpack.kit.http import Transport

LARGEST_ANSWER = 64 * MIB
LARGEST_EVENT = MIB


class Connection:
    """Sends requests to one Coder server as one user."""

    def __init__(
        self,
        url: str,
        token: Secret,
        *,
        limits: Limits | None = None,
        sleep: Sleep = asyncio.sleep,
        transport: Transport | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._http = Http(limits, sleep=sleep, transport=transport)

    async def close(self) -> None:
        """Close the pool."""
        await self._http.close()

    async def request(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None
    ) -> bytes:
        """The JSON text that Coder answers with. Raises `CoderError`."""
        answer = await self._answer(method, path, params=params, json=body)
        if "json" not in answer.headers.get("content-type", ""):
            raise errors.Broken(
                method,
                path,
                "Coder answered with something that is not JSON; is a proxy or a login page in"
                " front of it?",
                status=answer.status,
            )
        return answer.body

    async def first_event(self, path: str, within_s: float) -> str:
        """The data of the first event of a stream, which is then closed. Raises `CoderError`."""
        answer = await self._answer(
            "GET",
            path,
            deadline_s=within_s,
            enough=lambda body: _first_event(body) is not None,
            limit=LARGEST_EVENT,
        )
        event, data = _first_event(answer.body) or ("", "")
        if event != "data":
            told = "reported an error" if event else "ended without an event"
            raise errors.Broken("GET", path, f"The stream {told}")
        return data

    async def _answer(
        self, method: str, path: str, *, limit: int | None = None, **options: Any
    ) -> Answer:
        try:
            answer = await self._http.request(
                method,
                self._url + path,
                credentials=self._credentials(path),
                limit=limit or LARGEST_ANSWER,
                **options,
            )
        except HttpError as error:
            raise errors.of_exception(error, method, path) from error
        if not answer.is_success:
            raise errors.of_answer(answer, method, path, self._token.reveal())
        return answer

    def _credentials(self, path: str) -> dict[str, str]:
        if path.startswith(errors.API):
            return {"Coder-Session-Token": self._token.reveal()}
        return {"Cookie": f"coder_session_token={self._token.reveal()}"}


def _first_event(body: bytes) -> tuple[str, str] | None:
    """The kind and the data of the first event that is data or an error, once its line is whole."""
    event = ""
    for line in body.decode("utf-8", "replace").split("\n")[:-1]:
        field, _, value = line.partition(":")
        if field == "event":
            event = value.strip()
        elif field == "data" and event in ("data", "error"):
            return event, value.strip()
    return None
