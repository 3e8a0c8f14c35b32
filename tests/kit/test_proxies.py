"""Which proxy a URL is asked through."""

from __future__ import annotations

import pytest

from fleet_agentpack.kit.proxies import is_loopback, proxy_for

WEB, SAFE, ANY = "http://web:1", "http://safe:2", "http://any:3"
BOTH = {"HTTP_PROXY": WEB, "HTTPS_PROXY": SAFE}


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("http://h.test/x", {}, None),
        ("http://h.test/x", BOTH, WEB),
        ("https://h.test/x", BOTH, SAFE),
        ("https://h.test/x", {"HTTP_PROXY": WEB}, None),
        ("https://h.test/x", {"ALL_PROXY": ANY}, ANY),
        ("http://h.test/x", {"HTTP_PROXY": WEB, "ALL_PROXY": ANY}, WEB),
        ("http://h.test/x", {"HTTP_PROXY": "", "ALL_PROXY": " "}, None),
        ("http://h.test/x", {"http_proxy": ANY, "HTTP_PROXY": WEB}, ANY),
        ("http://h.test/x", {"http_proxy": "web:1"}, WEB),
        ("http://[::1/x", BOTH, None),
        ("http://h:port/x", BOTH, None),
    ],
)
def test_the_variable_for_the_scheme_decides(
    url: str, environ: dict[str, str], proxy: str | None
) -> None:
    assert proxy_for(url, environ) == proxy


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "localhost:80"])
def test_this_machine_is_never_behind_a_proxy(host: str) -> None:
    assert proxy_for(f"http://{host}/x", {"ALL_PROXY": ANY}) is None


@pytest.mark.parametrize(
    ("host", "exempt", "direct"),
    [
        ("h.test", "*", True),
        ("h.test", "h.test", True),
        ("h.test", " other.test , H.TEST ", True),
        ("a.h.test", "h.test", True),
        ("a.h.test", ".h.test", True),
        ("a.h.test", "*.h.test", True),
        ("ah.test", "h.test", False),
        ("h.test", "", False),
        ("h.test", ",", False),
        ("h.test:8080", "h.test:8080", True),
        ("h.test:8080", "h.test:80", False),
        ("h.test", "h.test:8080", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.0.0.0/99", False),
        ("[fd00::1]", "fd00::/8", True),
        ("[fd00::1]", "fd00::1", True),
        ("[fd00::1]", "[fd00::1]", True),
    ],
)
def test_no_proxy_names_hosts_domains_ports_and_networks(
    host: str, exempt: str, direct: bool
) -> None:
    environ = {"ALL_PROXY": ANY, "NO_PROXY": exempt}
    assert proxy_for(f"http://{host}/", environ) == (None if direct else ANY)


def test_loopback_is_this_machine_and_nothing_else() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "::1", "[::1]", "127.1.2.3"]))
    assert not any(map(is_loopback, ["", "0.0.0.0", "10.0.0.1", "localhost.evil.test", "h"]))
