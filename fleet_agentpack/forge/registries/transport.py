"""Fetches URLs concurrently within a hard deadline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet_agentpack.forge.config.addresses import local_path, masked_url
from fleet_agentpack.forge.errors import ForgeError, run
from fleet_agentpack.forge.files import MAX_MANIFEST_BYTES
from fleet_agentpack.kit import background, http

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3.0
DEADLINE_S = 10.0
MAX_REDIRECTS = 5
AT_ONCE = 10


@dataclass(frozen=True)
class Request:
    """One thing to fetch; the headers are kept to the URL's own server."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limit: int = MAX_MANIFEST_BYTES


class Transport:
    """Answers requests with bytes, or with the error that explains why there are none."""

    def __init__(
        self, *, connect_timeout_s: float = CONNECT_TIMEOUT_S, deadline_s: float = DEADLINE_S
    ):
        self._deadline_s = deadline_s
        self._limits = http.Limits(
            connect_s=connect_timeout_s,
            read_s=deadline_s,
            deadline_s=deadline_s,
            connect_attempts=1,  # a registry out of reach must not hold up a list
            redirects=MAX_REDIRECTS,
        )

    def fetch(self, request: Request) -> bytes:
        """The body of one answer. Raises `ForgeError`."""
        answer = self.fetch_all([request])[0]
        if isinstance(answer, ForgeError):
            raise answer
        return answer

    def fetch_all(self, requests: Sequence[Request]) -> list[bytes | ForgeError]:
        """The bodies of several answers, fetched concurrently, in the order of the requests."""
        remote = [each for each in requests if not each.url.startswith("file:")]
        answers = iter(background.run(self._gather(remote)) if remote else [])
        return [
            _from_file(each) if each.url.startswith("file:") else next(answers) for each in requests
        ]

    async def _gather(self, requests: Sequence[Request]) -> list[bytes | ForgeError]:
        client, turns = http.Http(self._limits), asyncio.Semaphore(AT_ONCE)
        try:
            return await asyncio.gather(*(self._answer(client, turns, each) for each in requests))
        finally:
            await client.close()

    async def _answer(
        self, client: http.Http, turns: asyncio.Semaphore, request: Request
    ) -> bytes | ForgeError:
        shown = masked_url(request.url)
        try:
            async with asyncio.timeout(self._deadline_s), turns:
                answer = await client.request(
                    "GET",
                    request.url,
                    headers={"Accept-Encoding": "identity"},
                    credentials=request.headers,
                    limit=request.limit,
                )
        except (TimeoutError, http.NoAnswerInTime):
            return ForgeError.network(f"{shown} did not answer in time", url=shown)
        except http.BodyTooLarge:
            return _too_large(request)
        except http.RedirectRefused as error:
            return ForgeError.network(f"{shown} {error}", url=shown)
        except http.HttpError as error:
            return ForgeError.network(f"{shown} cannot be reached: {error}", url=shown)
        if answer.status != 200:
            return _refusal(answer.status, request)
        logger.debug("fetched %s: %d bytes", shown, len(answer.body))
        return answer.body


def _refusal(status: int, request: Request) -> ForgeError:
    shown, sent = masked_url(request.url), bool(request.headers)
    if status in (401, 403):
        return ForgeError(
            "AUTH_FAILED" if sent else "AUTH_REQUIRED",
            f"{shown} {'refused the token' if sent else 'asks for a token'} (HTTP {status})",
            run("Log in: {}", "login", "REGISTRY"),
            "Or set FRACTARY_REGISTRY_TOKEN, or the registry's auth.token_env",
            url=shown,
            status=status,
        )
    message, advice = f"{shown} answered HTTP {status}", "Check the address"
    if status in (404, 410):
        message = f"there is nothing at {shown} (HTTP {status})"
        advice = "Check the address; a repository is added as owner/repo"
    elif status >= 500:
        message = f"{shown} has a problem of its own (HTTP {status})"
        advice = "Try again later"
    return ForgeError.network(message, advice, url=shown, status=status)


def _too_large(request: Request) -> ForgeError:
    shown = masked_url(request.url)
    message = f"the answer of {shown} is larger than the limit of {request.limit:,} bytes"
    return ForgeError.network(message, url=shown)


def _no_file(url: str, path: Path) -> ForgeError:
    what = "is not a file" if path.exists() else "does not exist"
    advice = "Correct the path in the registry's file:// URL, or put the file there"
    return ForgeError.network(f"{path} {what}", advice, url=url, path=str(path), status=404)


def _from_file(request: Request) -> bytes | ForgeError:
    path = local_path(request.url)
    try:
        if not path.is_file():
            return _no_file(request.url, path)
        with path.open("rb") as stream:
            body = stream.read(request.limit + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        return ForgeError.network(f"{request.url} cannot be read: {reason}", url=request.url)
    return _too_large(request) if len(body) > request.limit else body
