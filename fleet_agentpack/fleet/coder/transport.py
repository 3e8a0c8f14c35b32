"""One pooled HTTP connection to Coder: credentials, retries, deadlines; no redirects, no cookies.

The token goes in a header to `/api`, where Coder reads it, and in a cookie to app paths, where
Coder's proxy strips cookies but hands headers on into the workspace.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from fleet_agentpack.fleet.coder import errors
from fleet_agentpack.kit.secret import Secret

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """How long to wait, and how often to try."""

    connect_s: float = 5.0
    read_s: float = 15.0
    write_s: float = 10.0
    pool_s: float = 5.0
    deadline_s: float = 20.0  # for one call with all its attempts
    attempts: int = 3
    backoff_s: float = 0.2
    patience_s: float = 5.0  # the longest `Retry-After` that is waited for

    def timeout(self) -> httpx.Timeout:
        """The limits of each wait inside one attempt."""
        return httpx.Timeout(
            connect=self.connect_s, read=self.read_s, write=self.write_s, pool=self.pool_s
        )


class Retrying(httpx.AsyncBaseTransport):
    """Repeats a request where that is safe, so that nothing above needs a loop."""

    def __init__(self, inner: httpx.AsyncBaseTransport, limits: Limits, sleep: Sleep) -> None:
        self._inner, self._limits, self._sleep = inner, limits, sleep

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One request with up to three attempts."""
        for attempt in range(1, self._limits.attempts + 1):
            last = attempt == self._limits.attempts
            try:
                response = await self._inner.handle_async_request(request)
            except httpx.TransportError as error:
                if last or not _repeatable(error, request.method):
                    raise
                await self._sleep(self._pause(attempt))
                continue
            pause = None if last else self._pause_after(response, request.method, attempt)
            if pause is None:
                return response
            await response.aclose()
            await self._sleep(pause)
        raise AssertionError("at least one attempt is made")

    async def aclose(self) -> None:
        """Close the pool."""
        await self._inner.aclose()

    def _pause_after(self, response: httpx.Response, method: str, attempt: int) -> float | None:
        """How long to wait before the next attempt; None when the answer has to do."""
        if response.status_code == 429:  # refused before it was looked at: safe for any method
            told = response.headers.get("retry-after", "")
            pause = float(told) if told.isdigit() else self._pause(attempt)
            return pause if pause <= self._limits.patience_s else None
        if response.status_code in (502, 503, 504) and method == "GET":
            return self._pause(attempt)
        return None

    def _pause(self, attempt: int) -> float:
        spread = random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        return self._limits.backoff_s * 2.0 ** (attempt - 1) * spread


def _repeatable(error: httpx.TransportError, method: str) -> bool:
    never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return never_sent or method == "GET"


class Connection:
    """Sends requests to one Coder server as one user."""

    def __init__(
        self,
        url: str,
        token: Secret,
        *,
        limits: Limits | None = None,
        sleep: Sleep = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._token = token
        self._limits = limits or Limits()
        inner = transport or httpx.AsyncHTTPTransport(retries=0)
        self._http = httpx.AsyncClient(
            base_url=url,
            transport=Retrying(inner, self._limits, sleep),
            timeout=self._limits.timeout(),
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )

    async def close(self) -> None:
        """Close the pool."""
        await self._http.aclose()

    async def request(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None
    ) -> bytes:
        """The JSON text that Coder answers with. Raises `CoderError`."""
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                response = await self._http.request(
                    method, path, params=params, json=body, headers=self._credentials(path)
                )
        except TimeoutError as error:
            raise errors.TimedOut(method, path, "Coder did not answer in time") from error
        except httpx.HTTPError as error:
            raise errors.of_exception(error, method, path) from error
        if not response.is_success:
            raise errors.of_response(response, method, path, self._token.reveal())
        if "json" not in response.headers.get("content-type", ""):
            raise errors.Broken(
                method,
                path,
                "Coder answered with something that is not JSON; is a proxy or a login page in"
                " front of it?",
                status=response.status_code,
            )
        return response.content

    async def first_event(self, path: str, within_s: float) -> str:
        """The data of the first event of a stream, which is then hung up. Raises `CoderError`."""
        try:
            async with (
                asyncio.timeout(within_s),
                self._http.stream("GET", path, headers=self._credentials(path)) as response,
            ):
                if not response.is_success:
                    await response.aread()
                    raise errors.of_response(response, "GET", path, self._token.reveal())
                return await _first_data(response.aiter_lines(), path)
        except TimeoutError as error:
            raise errors.TimedOut("GET", path, "The stream stayed silent") from error
        except httpx.HTTPError as error:
            raise errors.of_exception(error, "GET", path) from error

    def _credentials(self, path: str) -> dict[str, str]:
        if path.startswith("/api/"):
            return {"Coder-Session-Token": self._token.reveal()}
        return {"Cookie": f"coder_session_token={self._token.reveal()}"}


async def _first_data(lines: AsyncIterator[str], path: str) -> str:
    event = ""
    async for line in lines:
        if line.startswith("event:"):
            event = line.removeprefix("event:").strip()
        elif line.startswith("data:") and event == "data":
            return line.removeprefix("data:").strip()
        elif line.startswith("data:") and event == "error":
            raise errors.Broken("GET", path, "The stream reported an error")
    raise errors.Broken("GET", path, "The stream ended without an event")
