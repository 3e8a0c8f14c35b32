"""HTTP for every room: retries, limits, redirects, one deadline, proxies; the only user of httpx.

    HttpError            no usable answer
      ConnectFailed      nothing was sent: refused, no such host, no connection in time
      NoAnswerInTime     the answer, or the whole of it, took too long
      ConnectionLost     cut off on the way
      BodyTooLarge       more bytes than the caller takes
      RedirectRefused    an endless redirect, or one to where none is followed
      BadAddress         a URL that cannot be asked

An answer with an unhappy status is an answer. Cookies are neither kept nor sent. The rooms add
their own credentials and turn these errors into theirs.
"""

from __future__ import annotations

import asyncio
import email.utils
import functools
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode, urljoin, urlsplit

from fleet_agentpack.kit import background
from fleet_agentpack.kit.proxies import proxy_for
from fleet_agentpack.version import __version__

if TYPE_CHECKING:
    import ssl
    from http.cookiejar import CookieJar

    import httpx

    Transport: TypeAlias = httpx.AsyncBaseTransport  # what a test puts in place of the network

Sleep = Callable[[float], Awaitable[None]]

BUSY = (502, 503, 504)
REDIRECTS = (301, 302, 303, 307, 308)
MIB = 1024 * 1024
AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # instead of the usual ones, as httpx does it
MORE_AUTHORITIES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")


@dataclass(frozen=True)
class Limits:
    """How long to wait, how often to try, how much to take."""

    connect_s: float = 5.0
    read_s: float = 15.0
    write_s: float = 10.0
    pool_s: float = 5.0
    deadline_s: float = 20.0  # for one call with all its attempts
    attempts: int = 3
    connect_attempts: int = 3  # of these, how many where no connection is made
    backoff_s: float = 0.2
    retry_after_s: float = 5.0  # the longest `Retry-After` that is waited for
    redirects: int = 0
    body_bytes: int = 8 * MIB


@dataclass(frozen=True)
class Answer:
    """What a server answered; names of headers are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        """Whether the status says that all went well."""
        return 200 <= self.status < 300


class HttpError(Exception):
    """No usable answer."""


class ConnectFailed(HttpError):
    """No connection, so nothing was sent."""


class NoAnswerInTime(HttpError):
    """No answer, or not the whole of it, in time."""


class ConnectionLost(HttpError):
    """Cut off on the way."""


class BodyTooLarge(HttpError):
    """More bytes than the caller takes."""


class RedirectRefused(HttpError):
    """Too many redirects, or a redirect to a URL that is not allowed."""


class BadAddress(HttpError):
    """An invalid or unsupported URL."""


@dataclass(frozen=True)
class _Ask:
    method: str
    url: str
    headers: Mapping[str, str]
    credentials: Mapping[str, str] = field(repr=False)
    limit: int
    enough: Callable[[bytes], bool] | None
    body: Mapping[str, Any] = field(repr=False)  # what httpx calls `json` and `content`


class Http:
    """Sends requests; connections are pooled until `close`."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        transport: Transport | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._sleep = sleep
        self._transport = transport
        self._clients: dict[tuple[bool, str | None], httpx.AsyncClient] = {}

    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str | int] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        credentials: Mapping[str, str] | None = None,
        limit: int | None = None,
        deadline_s: float | None = None,
        enough: Callable[[bytes], bool] | None = None,
    ) -> Answer:
        """The answer to one request. Raises `HttpError`.

        `credentials` are headers that go to this URL's own server and to no other. `enough` is
        asked about the body read so far; once it returns true, the rest is not read.
        """
        if params:
            url = f"{url}{'&' if '?' in url else '?'}{urlencode(params)}"
        ask = _Ask(
            method,
            url,
            headers or {},
            credentials or {},
            self._limits.body_bytes if limit is None else limit,
            enough,
            {"json": json, "content": content},
        )
        seconds = self._limits.deadline_s if deadline_s is None else deadline_s
        try:
            async with asyncio.timeout(seconds) as deadline:
                return await self._attempts(ask, deadline.when() or 0.0)
        except TimeoutError as error:
            raise NoAnswerInTime("no answer in time") from error

    async def close(self) -> None:
        """Close the connections."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()

    async def _attempts(self, ask: _Ask, ends: float) -> Answer:
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await self._followed(ask)
            except HttpError as error:
                pause = self._backoff(attempt) if self._repeatable(error, ask, attempt) else None
                if pause is None or not self._may_repeat(attempt, pause, ends):
                    raise
            else:
                pause = self._pause_after(answer, ask.method, attempt)
                if pause is None or not self._may_repeat(attempt, pause, ends):
                    return answer
            await self._sleep(pause)

    def _repeatable(self, error: HttpError, ask: _Ask, attempt: int) -> bool:
        if isinstance(error, ConnectFailed):
            return attempt < self._limits.connect_attempts
        return isinstance(error, NoAnswerInTime | ConnectionLost) and ask.method == "GET"

    def _may_repeat(self, attempt: int, pause: float, ends: float) -> bool:
        in_time = asyncio.get_running_loop().time() + pause < ends
        return in_time and attempt < self._limits.attempts

    def _pause_after(self, answer: Answer, method: str, attempt: int) -> float | None:
        """How long to wait before the next attempt; None to accept this answer."""
        if answer.status == 429:  # refused before it was looked at: safe for any method
            told = _retry_after(answer.headers.get("retry-after", ""))
            pause = self._backoff(attempt) if told is None else told
            return pause if pause <= self._limits.retry_after_s else None
        return self._backoff(attempt) if answer.status in BUSY and method == "GET" else None

    def _backoff(self, attempt: int) -> float:
        spread = random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        return self._limits.backoff_s * 2.0 ** (attempt - 1) * spread

    async def _followed(self, ask: _Ask) -> Answer:
        url = ask.url
        for _ in range(self._limits.redirects + 1):
            answer = await self._once(ask, url)
            target = answer.headers.get("location")
            follows = self._limits.redirects and ask.method in ("GET", "HEAD")
            if not follows or answer.status not in REDIRECTS or not target:
                return answer
            url = _redirected(url, target)
        raise RedirectRefused("redirects too many times")

    async def _once(self, ask: _Ask, url: str) -> Answer:
        is_own = url == ask.url or is_same_origin(ask.url, url)
        headers = {**ask.headers, **(ask.credentials if is_own else {})}
        with _translated():
            client = self._client(url)
            request = client.build_request(ask.method, url, headers=headers, **ask.body)
            response = await client.send(request, stream=True)
            try:
                body = await _read(response, ask.limit, ask.enough)
            finally:
                await response.aclose()
        told = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, response.reason_phrase, told, body)

    def _client(self, url: str) -> httpx.AsyncClient:
        import httpx

        key = is_tls, proxy = url.lower().startswith("https:"), proxy_for(url, os.environ)
        if key not in self._clients:
            limits = self._limits
            self._clients[key] = httpx.AsyncClient(
                transport=self._transport or _transport(proxy, is_tls=is_tls),
                timeout=httpx.Timeout(
                    connect=limits.connect_s,
                    read=limits.read_s,
                    write=limits.write_s,
                    pool=limits.pool_s,
                ),
                headers={"User-Agent": f"fleet-agentpack/{__version__}"},
                cookies=_no_cookies(),
                trust_env=False,
            )
        return self._clients[key]


def is_reachable(url: str, within_s: float = 5.0) -> bool:
    """Whether a server answers at a URL, whatever it answers."""

    async def ask() -> bool:
        http = Http(Limits(attempts=1, deadline_s=within_s))
        try:
            await http.request("GET", url, enough=lambda _: True)
        except HttpError:
            return False
        finally:
            await http.close()
        return True

    return background.run(ask())


def is_same_origin(one: str, other: str) -> bool:
    """Whether two URLs lead to the same server."""
    try:
        first, second = ((to.scheme, to.hostname, to.port) for to in map(urlsplit, (one, other)))
    except ValueError:
        return False
    return first == second


def _retry_after(text: str) -> float | None:
    """The seconds that a `Retry-After` asks for, as a number or as a date; None for neither."""
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None


def _redirected(url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
        parts = urlsplit(target)
    except ValueError as error:
        raise RedirectRefused("redirects to a URL that is not allowed") from error
    allowed = ("https",) if urlsplit(url).scheme == "https" else ("http", "https")
    if parts.scheme not in allowed or not parts.hostname or not target.isprintable():
        raise RedirectRefused("redirects to a URL that is not allowed")
    return target


async def _read(
    response: httpx.Response, limit: int, enough: Callable[[bytes], bool] | None
) -> bytes:
    if enough and enough(b""):
        return b""
    chunks, size = [], 0  # joined once: a large answer comes in many chunks
    async for chunk in response.aiter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(f"more than {limit:,} bytes")
        if enough and enough(b"".join(chunks)):
            break
    return b"".join(chunks)


@contextmanager
def _translated() -> Iterator[None]:
    """Let the errors of httpx leave the block as ours."""
    import httpx

    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
        raise ConnectFailed(str(error) or "no connection in time") from error
    except httpx.TimeoutException as error:
        raise NoAnswerInTime("no answer in time") from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
        raise BadAddress("not a usable address") from error
    except httpx.LocalProtocolError:  # its text quotes the header that it refuses
        raise BadAddress("the request holds characters that HTTP does not allow") from None
    except httpx.HTTPError as error:
        raise ConnectionLost(str(error) or type(error).__name__) from error


def _transport(proxy: str | None, *, is_tls: bool) -> Transport:
    import httpx

    verify = _tls_context() if is_tls else False  # plain HTTP needs no certificates loaded
    try:
        return httpx.AsyncHTTPTransport(verify=verify, proxy=proxy, trust_env=False)
    except (ImportError, ValueError) as error:
        kind = (proxy or "").partition(":")[0]
        raise ConnectFailed(f"a proxy of the kind {kind} cannot be used") from error


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Whom we trust: the usual authorities or those of SSL_CERT_FILE, and those added to them."""
    import httpx

    variable = next((name for name in AUTHORITIES if os.environ.get(name)), "certifi")
    try:
        context = httpx.create_ssl_context()
        for variable in filter(os.environ.get, MORE_AUTHORITIES):
            path = os.environ[variable]
            kind = "capath" if Path(path).is_dir() else "cafile"
            context.load_verify_locations(**{kind: path})
    except OSError as error:
        told = f"{variable} has no certificates that can be read: {error}"
        raise ConnectFailed(told) from error
    return context


def _no_cookies() -> CookieJar:
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))
