"""One HTTP stack: retries, limits, redirects, credentials, deadlines, proxies."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import logging
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from traceback import format_exception
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fleet_agentpack.kit import background, http
from fleet_agentpack.kit.http import ConnectFailed, Http, HttpError, Limits

HOST = "https://h.test"
SECRET = "s3cret-value"
Step = Callable[[], httpx.Response] | httpx.Response | Exception


class Script(httpx.AsyncBaseTransport):
    """Answers in turn; stays on the last."""

    def __init__(self, *steps: Step) -> None:
        self.steps, self.requests = list(steps), list[httpx.Request]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        step = self.steps[min(len(self.requests), len(self.steps) - 1)]
        self.requests.append(request)
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step


class Pauses(list[float]):
    """A sleep that takes no time and remembers how long it should have."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def status(code: int, body: bytes = b"", **headers: str) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(code, headers=headers, content=body)


def scripted(*steps: Step, **limits: Any) -> tuple[Http, Script, Pauses]:
    script, pauses = Script(*steps), Pauses()
    return Http(Limits(**limits), sleep=pauses, transport=script), script, pauses


OK = status(200, b"yes")


async def test_a_server_out_of_reach_is_tried_once_where_that_is_asked_for() -> None:
    made, script, _ = scripted(httpx.ConnectTimeout("slow"), OK, connect_attempts=1)
    with pytest.raises(ConnectFailed):
        await made.request("GET", HOST)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("method", "trouble", "attempts"),
    [
        ("GET", httpx.ConnectError("refused"), 2),
        ("POST", httpx.ConnectError("refused"), 2),
        ("DELETE", httpx.ConnectTimeout("slow"), 2),
        ("POST", httpx.PoolTimeout("busy"), 2),
        ("POST", httpx.ProxyError("502 from the proxy"), 2),
        ("GET", httpx.ReadTimeout("slow"), 2),
        ("GET", httpx.RemoteProtocolError("cut"), 2),
        ("GET", status(502), 2),
        ("GET", status(503), 2),
        ("GET", status(504), 2),
        ("GET", status(429), 2),
        ("POST", status(429, **{"retry-after": "1"}), 2),
        ("POST", httpx.ReadTimeout("slow"), 1),
        ("POST", httpx.WriteError("cut"), 1),
        ("POST", status(503), 1),
        ("GET", httpx.UnsupportedProtocol("x"), 1),
        ("GET", status(500), 1),
        ("GET", status(404), 1),
    ],
)
async def test_requests_are_repeated_only_where_that_is_safe(
    method: str, trouble: Step, attempts: int
) -> None:
    made, script, pauses = scripted(trouble, OK)
    try:
        answer = await made.request(method, HOST)
        assert (answer.status == 200) == (attempts == 2)
    except HttpError:
        assert attempts == 1
    assert (len(script.requests), len(pauses)) == (attempts, attempts - 1)
    await made.close()


async def test_three_attempts_with_growing_pauses_and_then_what_there_is() -> None:
    made, script, pauses = scripted(status(503))
    assert (await made.request("GET", HOST)).status == 503
    assert len(script.requests) == 3
    assert 0.1 <= pauses[0] <= 0.2 <= pauses[1] <= 0.4
    await made.close()


async def test_a_body_that_breaks_off_is_asked_for_again() -> None:
    async def cut() -> AsyncIterator[bytes]:
        yield b"ye"
        raise httpx.ReadError("cut")

    made, script, _ = scripted(lambda: httpx.Response(200, content=cut()), OK)
    assert (await made.request("GET", HOST)).body == b"yes"
    assert len(script.requests) == 2
    await made.close()


@pytest.mark.parametrize(
    ("told", "low", "high"),
    [("3", 3, 3), ("0", 0, 0), ("soon", 0.1, 0.2), ("-1", 0.1, 0.2), ("date", 1, 4)],
)
async def test_retry_after_is_honoured_as_seconds_and_as_a_date(
    told: str, low: float, high: float
) -> None:
    given = email.utils.formatdate(time.time() + 4, usegmt=True) if told == "date" else told
    made, _, pauses = scripted(status(429, **{"retry-after": given}), OK)
    assert (await made.request("POST", HOST)).status == 200
    assert low <= pauses[0] <= high
    await made.close()


@pytest.mark.parametrize("limits", [{"retry_after_s": 5.0}, {"deadline_s": 2.0}])
async def test_a_wait_that_is_too_long_is_not_begun(limits: dict[str, float]) -> None:
    told = "10" if "retry_after_s" in limits else "4"
    made, script, pauses = scripted(status(429, **{"retry-after": told}), OK, **limits)
    answer = await made.request("GET", HOST)
    assert (answer.status, len(script.requests), pauses) == (429, 1, [])
    await made.close()


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (httpx.ConnectError("refused"), http.ConnectFailed),
        (httpx.ReadTimeout("slow"), http.NoAnswerInTime),
        (httpx.ReadError("cut"), http.ConnectionLost),
        (httpx.DecodingError("bad gzip"), http.ConnectionLost),
        (httpx.UnsupportedProtocol("ftp"), http.BadAddress),
    ],
)
async def test_every_failure_has_its_class(trouble: Exception, kind: type[HttpError]) -> None:
    made, _, _ = scripted(trouble)
    with pytest.raises(HttpError) as caught:
        await made.request("GET", HOST)
    assert type(caught.value) is kind
    await made.close()


@pytest.mark.parametrize("url", ["https://[::1/", "https://h:port/", "https://\udcff.test/", "//h"])
async def test_an_address_that_cannot_be_asked_is_an_error_of_ours(url: str) -> None:
    made = Http(Limits(attempts=1))
    for params in (None, {"q": "x"}):
        with pytest.raises(http.BadAddress):
            await made.request("GET", url, params=params)
    await made.close()


async def test_a_body_is_cut_off_at_its_limit() -> None:
    made, script, _ = scripted(status(200, b"x" * 100))
    assert len((await made.request("GET", HOST, limit=100)).body) == 100
    with pytest.raises(http.BodyTooLarge, match="more than 99 bytes"):
        await made.request("GET", HOST, limit=99)
    assert len(script.requests) == 2
    await made.close()


async def drip() -> AsyncIterator[bytes]:
    while True:
        yield b"x"
        await asyncio.sleep(0.005)


async def test_the_whole_call_has_a_deadline_even_when_bytes_keep_coming() -> None:
    made, _, _ = scripted(lambda: httpx.Response(200, content=drip()))
    started = time.monotonic()
    with pytest.raises(http.NoAnswerInTime):
        await made.request("GET", HOST, deadline_s=0.1)
    assert time.monotonic() - started < 2
    await made.close()


async def test_reading_stops_when_it_is_enough() -> None:
    made, _, _ = scripted(lambda: httpx.Response(200, content=drip()))
    answer = await made.request("GET", HOST, enough=lambda body: len(body) >= 3)
    assert answer.body == b"xxx"
    await made.close()


async def test_cookies_are_neither_kept_nor_sent() -> None:
    made, script, _ = scripted(status(200, **{"set-cookie": "a=b; Path=/"}), OK)
    await made.request("GET", HOST)
    await made.request("GET", HOST)
    assert "cookie" not in script.requests[1].headers
    await made.close()


async def test_parameters_are_added_and_the_path_stays_as_it_is_written() -> None:
    made, script, _ = scripted(OK)
    await made.request("GET", f"{HOST}/a%2Fb", params={"q": "x y", "limit": 5})
    await made.request("POST", f"{HOST}/a?b=1", json={"c": 2})
    first, second = script.requests
    assert first.url.raw_path == b"/a%2Fb?q=x+y&limit=5"
    assert (second.url.raw_path, second.content) == (b"/a?b=1", b'{"c":2}')
    assert first.headers["user-agent"].startswith("fleet-agentpack/")
    await made.close()


async def test_redirects_are_not_followed_unless_asked_for() -> None:
    made, script, _ = scripted(status(302, location="/b"), OK)
    assert (await made.request("GET", HOST)).status == 302
    assert len(script.requests) == 1
    await made.close()


async def test_redirects_are_followed_and_credentials_stay_with_their_server() -> None:
    away = [f"{HOST}/b", "https://other.test/c", f"{HOST}:444/d", f"{HOST}/e"]
    steps = [status(302, location=target) for target in away]
    made, script, _ = scripted(*steps, OK, redirects=5)
    credentials = {"Authorization": f"Bearer {SECRET}"}
    answer = await made.request("GET", f"{HOST}/a", headers={"X": "y"}, credentials=credentials)
    assert answer.body == b"yes"
    assert [str(request.url) for request in script.requests] == [f"{HOST}/a", *away]
    sent = ["authorization" in request.headers for request in script.requests]
    assert sent == [True, True, False, False, True]
    assert all(request.headers["x"] == "y" for request in script.requests)
    await made.close()


@pytest.mark.parametrize("target", ["http://h.test/", "file:///etc/passwd", "ftp://h.test/"])
async def test_a_redirect_to_a_weaker_or_odd_address_is_refused(target: str) -> None:
    made, script, _ = scripted(status(302, location=target), OK, redirects=5)
    with pytest.raises(http.RedirectRefused, match="not allowed"):
        await made.request("GET", HOST)
    assert len(script.requests) == 1
    await made.close()


@pytest.mark.parametrize("target", ["https://h:port/", "https://[::1/"])
@pytest.mark.parametrize("redirects", [0, 5])
async def test_a_redirect_to_what_is_no_address_is_an_error(target: str, redirects: int) -> None:
    made, script, _ = scripted(status(302, location=target), redirects=redirects)
    with pytest.raises(HttpError):
        await made.request("GET", HOST)
    assert {str(request.url) for request in script.requests} == {HOST}
    await made.close()


async def test_an_endless_redirect_is_given_up() -> None:
    made, script, _ = scripted(status(307, location="/again"), redirects=5)
    with pytest.raises(http.RedirectRefused, match="too many times"):
        await made.request("GET", HOST)
    assert len(script.requests) == 6
    await made.close()


async def test_only_a_question_is_sent_on() -> None:
    made, script, _ = scripted(status(307, location="/b"), OK, redirects=5)
    assert (await made.request("POST", HOST, json={})).status == 307
    assert len(script.requests) == 1
    await made.close()


async def test_a_credential_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("httpcore").setLevel(logging.WARNING)
    caplog.set_level(logging.DEBUG, "fleet_agentpack")
    with serving() as (url, _):
        made = Http()
        with pytest.raises(http.BadAddress) as caught:
            await made.request("GET", url, credentials={"X-Token": f"{SECRET}\r\nX-Evil: 1"})
        await made.close()
    assert SECRET not in "".join(format_exception(caught.value)) + caplog.text


@contextmanager
def serving(
    answer: int = 200, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A server on the loopback, its address, and the request lines that it got."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            asked.append(f"{self.requestline} | {self.headers.get('Proxy-Authorization', '')}")
            self.send_response(answer)
            self.send_header("Content-Length", "3")
            self.end_headers()
            self.wfile.write(b"yes")

        do_CONNECT = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass

    server = Quiet(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_a_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as (proxy, asked):
        monkeypatch.setenv("HTTP_PROXY", proxy.replace("//", "//me:pw@"))
        made = Http()
        assert (await made.request("GET", "http://far.test/x")).body == b"yes"
        assert asked == ["GET http://far.test/x HTTP/1.1 | Basic bWU6cHc="]
        await made.close()


async def test_an_encrypted_connection_goes_through_a_tunnel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(403) as (proxy, asked):
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        made = Http(Limits(attempts=1))
        with pytest.raises(http.ConnectFailed, match="403"):
            await made.request("POST", "https://far.test/x", credentials={"X-Token": SECRET})
        assert asked == ["CONNECT far.test:443 HTTP/1.1 | "]
        await made.close()


async def test_this_machine_and_exempt_hosts_are_asked_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving() as (proxy, asked), serving() as (url, _):
        monkeypatch.setenv("ALL_PROXY", proxy)
        monkeypatch.setenv("NO_PROXY", "near.test")
        made = Http(Limits(attempts=1))
        assert (await made.request("GET", url)).body == b"yes"
        with pytest.raises(http.ConnectFailed):
            await made.request("GET", "http://near.test/")
        assert asked == []
        await made.close()


async def test_a_kind_of_proxy_that_cannot_be_used_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for proxy, kind in (("socks5://127.0.0.1:9", "socks5"), ("gopher://127.0.0.1", "gopher")):
        monkeypatch.setenv("ALL_PROXY", proxy)
        made = Http(Limits(attempts=1))
        with pytest.raises(http.ConnectFailed, match=kind):
            await made.request("GET", "http://far.test/")
        await made.close()


async def test_certificates_are_loaded_once_and_only_for_https(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_contexts: list[Any] = []
    create = httpx.create_ssl_context
    monkeypatch.setattr(
        httpx, "create_ssl_context", lambda: made_contexts.append(create()) or made_contexts[-1]
    )
    http._tls_context.cache_clear()
    with serving() as (url, _):
        made = Http(Limits(attempts=1, deadline_s=1.0))
        await made.request("GET", url)
        assert made_contexts == []
        for _ in range(2):
            other = Http(Limits(attempts=1, deadline_s=1.0))
            for path in ("/a", "/b"):
                with pytest.raises(HttpError):
                    await other.request("GET", url.replace("http:", "https:") + path)
            await other.close()
        assert len(made_contexts) == 1
        await made.close()


def certificate_of_localhost(folder: Path) -> Path:
    """A certificate that vouches for itself, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = folder / "server.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


async def test_a_certificate_counts_only_if_somebody_vouches_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate_of_localhost(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with serving(tls=context) as (url, asked):
        url = url.replace("http://127.0.0.1", "https://localhost")
        http._tls_context.cache_clear()
        made = Http(Limits(attempts=1))
        with pytest.raises(http.ConnectFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await made.request("GET", url)
        await made.close()
        for variable in (*http.AUTHORITIES[:1], *http.MORE_AUTHORITIES):
            with monkeypatch.context() as trusting:
                trusting.setenv(variable, str(path))
                http._tls_context.cache_clear()
                made = Http()
                assert (await made.request("GET", url)).body == b"yes"
                await made.close()
                trusting.setenv(variable, str(path / "missing"))
                http._tls_context.cache_clear()
                with pytest.raises(http.ConnectFailed, match=variable):
                    await Http(Limits(attempts=1)).request("GET", url)
        assert len(asked) == 4
    http._tls_context.cache_clear()


def test_a_synchronous_caller_keeps_its_connection() -> None:
    with serving() as (url, asked):
        made = Http()
        for path in ("/a", "/b"):
            assert background.run(made.request("GET", url + path)).body == b"yes"
        background.run(made.close())
        assert len(asked) == 2


def test_a_name_lookup_that_hangs_does_not_hold_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        release.wait(20)
        raise socket.gaierror("gave up")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    made = Http(Limits(attempts=1))
    started = time.monotonic()
    with pytest.raises(http.NoAnswerInTime):
        background.run(made.request("GET", "http://slow.test/", deadline_s=0.2))
    assert time.monotonic() - started < 5
    release.set()
    background.run(made.close())


def test_a_server_is_reachable_whatever_it_answers() -> None:
    with serving(500) as (url, asked):
        assert http.is_reachable(url)
        assert len(asked) == 1
    assert not http.is_reachable(url)
    assert not http.is_reachable("http://[::1/")


def test_httpx_is_imported_on_first_use() -> None:
    code = (
        "import sys, fleet_agentpack.kit.http\n"
        "sys.exit(any(name in sys.modules for name in ('httpx', 'httpcore', 'certifi')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
