"""Fetches URLs side by side within a hard deadline; the only module of forge that uses HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from fleet_agentpack.forge.config_files import is_registry_url
from fleet_agentpack.forge.credentials import is_same_origin
from fleet_agentpack.forge.errors import SEE_REGISTRIES, ForgeError, run
from fleet_agentpack.forge.masking import masked_url
from fleet_agentpack.forge.parsing import MAX_MANIFEST_BYTES
from fleet_agentpack.version import __version__

if TYPE_CHECKING:
    import ssl

    import httpx

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3.0
DEADLINE_S = 10.0
MAX_REDIRECTS = 5
AT_ONCE = 10
RETRIED = (502, 503, 504)
RETRY_DELAYS_S = (0.2, 0.5)


@dataclass(frozen=True)
class Request:
    """One thing to fetch; the headers are kept to the URL's own server."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limit: int = MAX_MANIFEST_BYTES


class Transport:
    """Answers requests with bytes or with the error that says why not."""

    def __init__(
        self, *, connect_timeout_s: float = CONNECT_TIMEOUT_S, deadline_s: float = DEADLINE_S
    ):
        self._connect_timeout_s = connect_timeout_s
        self._deadline_s = deadline_s
        self._tls: ssl.SSLContext | None = None

    def fetch(self, request: Request) -> bytes:
        """The body of one answer. Raises `ForgeError`."""
        answer = self.fetch_all([request])[0]
        if isinstance(answer, ForgeError):
            raise answer
        return answer

    def fetch_all(self, requests: Sequence[Request]) -> list[bytes | ForgeError]:
        """The bodies of several answers, asked for side by side, in the order of the requests."""
        remote = [each for each in requests if not each.url.startswith("file:")]
        answers = iter(self._over_http(remote) if remote else [])
        return [
            _from_file(each) if each.url.startswith("file:") else next(answers) for each in requests
        ]

    def _over_http(self, requests: Sequence[Request]) -> list[bytes | ForgeError]:
        # A loop of our own rather than asyncio.run, which would wait for a hanging name lookup.
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(self._gather(requests))
        finally:
            loop.close()

    async def _gather(self, requests: Sequence[Request]) -> list[bytes | ForgeError]:
        import httpx

        timeout = httpx.Timeout(self._deadline_s, connect=self._connect_timeout_s)
        async with httpx.AsyncClient(timeout=timeout, verify=self._tls_context()) as client:
            turns = asyncio.Semaphore(AT_ONCE)
            return await asyncio.gather(*(self._answer(client, turns, each) for each in requests))

    async def _answer(
        self, client: httpx.AsyncClient, turns: asyncio.Semaphore, request: Request
    ) -> bytes | ForgeError:
        import httpx

        shown = masked_url(request.url)
        try:
            async with asyncio.timeout(self._deadline_s), turns:
                body = await _get(client, request)
        except ForgeError as error:
            return error
        except (TimeoutError, httpx.TimeoutException):
            return ForgeError.network(f"{shown} did not answer in time", url=shown)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            reason = type(error).__name__
            return ForgeError.network(f"{shown} cannot be reached ({reason})", url=shown)
        logger.debug("fetched %s: %d bytes", shown, len(body))
        return body

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            import httpx

            self._tls = httpx.create_ssl_context()
        return self._tls


async def _get(client: httpx.AsyncClient, request: Request) -> bytes:
    url, delays = request.url, list(RETRY_DELAYS_S)
    redirects = 0
    while True:
        headers = {"User-Agent": f"fleet-agentpack/{__version__}", "Accept-Encoding": "identity"}
        if is_same_origin(request.url, url):
            headers |= request.headers
        async with client.stream("GET", url, headers=headers) as response:
            if response.status_code in RETRIED and delays:
                await asyncio.sleep(delays.pop(0))
                continue
            if not response.is_redirect:
                return await _body(response, request)
            url = _redirected(url, response.headers.get("location", ""))
        redirects += 1
        if redirects > MAX_REDIRECTS:
            raise ForgeError.network(f"{masked_url(request.url)} redirects without end")


def _redirected(url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
    except ValueError:
        target = ""
    scheme = target.partition(":")[0]
    if not is_registry_url(target) or scheme not in ("https", urlsplit(url).scheme):
        raise ForgeError.network(f"{masked_url(url)} redirects to a URL that is not followed")
    return target


async def _body(response: httpx.Response, request: Request) -> bytes:
    if response.status_code != 200:
        raise _refusal(response.status_code, request)
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > request.limit:
            raise _too_large(request)
    return bytes(body)


def _refusal(status: int, request: Request) -> ForgeError:
    shown = masked_url(request.url)
    if status in (401, 403):
        sent = bool(request.headers)
        return ForgeError(
            "AUTH_FAILED" if sent else "AUTH_REQUIRED",
            f"{shown} {'refused the token' if sent else 'asks for a token'} (HTTP {status})",
            details={"url": shown, "status": status},
            suggestions=[
                run("Log in: {}", "login", "REGISTRY"),
                "Or set FRACTARY_REGISTRY_TOKEN, or the registry's auth.token_env",
            ],
        )
    return ForgeError.network(f"{shown} answered HTTP {status}", url=shown, status=status)


def _too_large(request: Request) -> ForgeError:
    shown = masked_url(request.url)
    return ForgeError.network(f"{shown} sent more than {request.limit:,} bytes", url=shown)


def _no_file(url: str, path: Path) -> ForgeError:
    what = "is not a file" if path.exists() else "does not exist"
    return ForgeError(
        "NETWORK_ERROR",
        f"{path} {what}",
        details={"url": url, "path": str(path), "status": 404},
        suggestions=[
            "Correct the path in the registry's file:// URL, or put the file there",
            SEE_REGISTRIES,
        ],
    )


def _from_file(request: Request) -> bytes | ForgeError:
    path = Path(unquote(urlsplit(request.url).path))
    try:
        if not path.is_file():
            return _no_file(request.url, path)
        with path.open("rb") as stream:
            body = stream.read(request.limit + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        return ForgeError.network(f"{request.url} cannot be read: {reason}", url=request.url)
    return _too_large(request) if len(body) > request.limit else body
