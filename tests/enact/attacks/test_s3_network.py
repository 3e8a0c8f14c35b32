"""S3: a tool that uses the network to reach this machine, or a host that nobody granted."""

from __future__ import annotations

import http.server
import ipaddress
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact import network
from fleet_agentpack.enact.network import Host, HostError, Reach
from fleet_agentpack.enact.permissions import Permissions
from fleet_agentpack.enact.results import RunResult
from fleet_agentpack.kit.results import UNKNOWN
from tests.enact.attacks.publisher import NAME, publish
from tests.enact.kit import needs_bwrap, refused

NETWORK = {"x-network": True}
# Ignores the proxy: connects by itself, to an address and a port of this machine.
CONNECTS = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", {port}), 3).close()
    print("connected")
except OSError as error:
    print("refused")
"""
FETCHES = """
import sys, urllib.request, urllib.error
for address in {addresses}:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            print(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
    except OSError as error:
        print(type(error).__name__, error)
"""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.path} for {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def here() -> Iterator[int]:
    """A server on this machine; its port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def run(home: Path, code: str, *hosts: str, **fields: Any) -> RunResult:
    service = publish(home, code, **{**NETWORK, **fields})
    service.install(NAME)
    service.grants.allow(NAME, Permissions(network=hosts))
    return service.run(NAME)


@needs_bwrap
@pytest.mark.parametrize("hosts", [("*",), ("127.0.0.1",), ("localhost",)])
def test_the_network_of_this_machine_is_not_the_tools(
    home: Path, here: int, hosts: tuple[str, ...]
) -> None:
    assert run(home, CONNECTS.format(port=here), *hosts).output == "refused\n"


@needs_bwrap
def test_nor_is_it_through_the_proxy(home: Path, here: int) -> None:
    addresses = [f"http://{each}:{here}/mcp" for each in ("127.0.0.1", "localhost", "[::1]", "0")]
    code = f"import os; os.environ['no_proxy'] = ''\n{FETCHES.format(addresses=addresses)}"
    result = run(home, code, "*")
    assert [line[:3] for line in str(result.output).splitlines()] == ["403"] * 4
    assert "may not reach 127.0.0.1" in str(result.warnings)


@needs_bwrap
def test_a_granted_host_is_reached_and_no_other(
    home: Path, here: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"api.example.test": "127.0.0.1", "evil.example.test": "127.0.0.1"}
    monkeypatch.setattr(network, "_resolve", lambda name, _: [ipaddress.ip_address(known[name])])
    hosts = (f"api.example.test:{here}", f"127.0.0.1:{here}")
    addresses = [f"http://{each}.example.test:{here}/x?y=1" for each in ("api", "evil")]
    result = run(home, FETCHES.format(addresses=addresses), *hosts)
    fetched, denied = str(result.output).splitlines()
    assert fetched == f"200 /x?y=1 for api.example.test:{here}"
    assert denied.startswith("403 ") and "it was not granted" in denied
    assert f"tool allow {NAME} --network evil.example.test:{here}" in str(result.warnings)


@needs_bwrap
def test_a_program_that_ignores_the_proxy_is_told_so(home: Path, here: int) -> None:
    code = f"import socket; socket.create_connection(('127.0.0.1', {here}), 3)"
    with refused("EXECUTION_FAILED") as refusal:
        run(home, code, "*")
    assert any("ignores these variables" in each for each in refusal.error.next_actions)


@needs_bwrap
def test_a_tunnel_carries_both_directions(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def echo() -> None:
            client, _ = server.accept()
            with client:
                client.sendall(client.recv(100)[::-1])

        threading.Thread(target=echo, daemon=True).start()
        code = f"""
import os, socket
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTPS_PROXY"])
with socket.create_connection((proxy.hostname, proxy.port)) as way:
    way.sendall(b"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n")
    assert way.recv(100).startswith(b"HTTP/1.1 200")
    way.sendall(b"hello")
    print(way.recv(100).decode())
"""
        assert run(home, code, f"127.0.0.1:{port}").output == "olleh\n"


@needs_bwrap
def test_no_socket_of_the_host_is_left_to_the_tool(home: Path) -> None:
    code = "import os, json; print(json.dumps(sorted(map(int, os.listdir('/proc/self/fd')))))"
    assert json.loads(json.dumps(run(home, code, "*").output))[:3] == [0, 1, 2]
    assert len(run(home / "again", code, "*").output) == 4  # and the directory itself


@pytest.mark.parametrize(
    ("granted", "name", "port", "fine"),
    [
        (["api.example.test"], "api.example.test", 443, True),
        (["api.example.test"], "API.example.test.", 80, True),
        (["api.example.test"], "api.example.test", 22, False),
        (["api.example.test:22"], "api.example.test", 22, True),
        (["api.example.test:22"], "api.example.test", 443, False),
        (["api.example.test"], "xapi.example.test", 443, False),
        (["api.example.test"], "api.example.test.evil.test", 443, False),
        (["*.example.test"], "api.example.test", 443, True),
        (["*.example.test"], "example.test", 443, False),
        (["*"], "anything.test", 8443, True),
        ([], "api.example.test", 443, False),
    ],
)
def test_hosts_are_compared_whole(
    granted: list[str], name: str, port: int, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_resolve", lambda *_: [ipaddress.ip_address("1.1.1.1")])
    if fine:
        assert Reach.of(granted).addresses(name, port) == ["1.1.1.1"]
    else:
        with pytest.raises(HostError, match="not granted"):
            Reach.of(granted).addresses(name, port)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "10.1.2.3", "172.16.0.1"),
        *("192.168.1.1", "100.64.0.1", "224.0.0.1", "::1", "fe80::1", "fc00::1"),
        "::ffff:127.0.0.1",
    ],
)
def test_a_name_that_leads_here_is_refused_unless_the_address_was_granted(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_resolve", lambda *_: [ipaddress.ip_address(address)])
    for granted in (["*"], ["rebound.example.test"]):
        with pytest.raises(HostError, match="has to be granted too"):
            Reach.of(granted).addresses("rebound.example.test", 443)
    plain = address.removeprefix("::ffff:")
    both = Reach.of(["rebound.example.test", plain if ":" not in plain else f"[{plain}]"])
    assert both.addresses("rebound.example.test", 443)


@pytest.mark.parametrize("text", ["", "a b", "http://x", "x:99999", "x/y", "-x", "a..b"])
def test_what_is_no_host_cannot_be_granted(text: str) -> None:
    with pytest.raises(HostError):
        Host.parse(text)


def test_only_hosts_that_a_tool_asks_for_can_be_granted(home: Path) -> None:
    service = publish(home, "", **{"x-network": ["api.example.test", "*.cdn.test"]})
    service.install(NAME)
    with refused("INVALID_ARGUMENTS"):
        service.grants.allow(NAME, Permissions(network=("evil.example.test",)))
    with refused("INVALID_ARGUMENTS"):
        service.grants.allow(NAME, Permissions(network=("*",)))
    service.grants.allow(NAME, Permissions(network=("api.example.test", "a.cdn.test")))


@needs_bwrap
def test_what_a_tool_asks_the_proxy_for_is_told_briefly_and_visibly(home: Path) -> None:
    """A host is the tool's own text: it must not carry words past a person or flood an answer."""
    code = """
import os, socket
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTPS_PROXY"])
for number in range(60):
    with socket.create_connection((proxy.hostname, proxy.port)) as way:
        name = b"x" * (8000 if number % 2 else 100) + b"%d.\\x1b]0;obey\\x9b" % number
        way.sendall(b"CONNECT " + name + b":443 HTTP/1.1\\r\\n\\r\\n")
        way.recv(100)
"""
    result = run(home, code, "*.example.test")
    assert result.warnings is not UNKNOWN
    told = "".join(result.warnings)
    assert "may not reach" in told
    assert len(told) < 5_000
    assert told.isprintable()


@needs_bwrap
@pytest.mark.parametrize("port", ["0", "70000", "9" * 5_000, "-1", "80x"])
def test_a_port_that_is_none_is_refused(
    home: Path, port: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = f"""
import os, socket
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTPS_PROXY"])
for line in (b"CONNECT 1.1.1.1:{port}", b"GET http://1.1.1.1:{port}/"):
    with socket.create_connection((proxy.hostname, proxy.port)) as way:
        way.sendall(line + b" HTTP/1.1\\r\\n\\r\\n")
        print(way.recv(100).decode()[:12])
"""
    result = run(home, code, "*")
    assert result.output == "HTTP/1.1 400\n" * 2
    assert "Traceback" not in capfd.readouterr().err


@needs_bwrap
@pytest.mark.parametrize(
    "field",
    ["Host : evil.test", "X: 1\\nHost: evil.test", "X: 1\\r\\n Host: evil.test", "X: 1\\rHost: e"],
    ids=["space", "line feed", "folded", "carriage return"],
)
def test_a_request_that_servers_read_in_two_ways_is_refused(
    home: Path, here: int, field: str
) -> None:
    code = f"""
import os, socket
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTP_PROXY"])
with socket.create_connection((proxy.hostname, proxy.port)) as way:
    way.sendall(b"GET http://127.0.0.1:{here}/ HTTP/1.1\\r\\n{field}\\r\\n\\r\\n")
    print(way.recv(100).decode()[:12])
"""
    assert run(home, code, f"127.0.0.1:{here}").output == "HTTP/1.1 400\n"


@pytest.mark.parametrize(
    "address",
    [
        *("2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a00:1"),
        *("::127.0.0.1", "::ffff:0:127.0.0.1", "fec0::1", "2001:0:7f00:1::", "ff02::1"),
    ],
)
def test_an_address_that_carries_one_of_here_is_one(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_resolve", lambda *_: [ipaddress.ip_address(address)])
    with pytest.raises(HostError, match="has to be granted too"):
        Reach.of(["*"]).addresses("rebound.example.test", 443)


def test_a_public_address_of_this_machine_is_this_machine() -> None:
    """Its other services listen there as well."""
    code = """
import ipaddress
from fleet_agentpack.enact import network
network._resolve = lambda *_: [ipaddress.ip_address("8.8.4.4")]
try:
    print(network.Reach.of(["*"]).addresses("rebound.example.test", 443))
except network.HostError as error:
    print(error)
"""
    inner = f'ip addr add 8.8.4.4/32 dev lo && ip link set lo up && {sys.executable} -c "$0"'
    argv = ["unshare", "-rn", "sh", "-c", inner, code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no network namespace can be made here")
    assert "has to be granted too" in done.stdout


@pytest.mark.parametrize("name", ["127.0.0.1\0.example.test", "a b.example.test", "é.example.test"])
def test_a_name_that_a_resolver_reads_in_another_way_is_refused(name: str) -> None:
    """Some resolvers stop at a NUL, so that the granted part of the name is not what is reached."""
    for granted in (["*.example.test", "127.0.0.1"], ["*", "127.0.0.1"]):
        with pytest.raises(HostError, match="is no name of a host"):
            Reach.of(granted).addresses(name, 443)


@needs_bwrap
def test_nor_does_the_proxy_connect_to_the_first_part_of_such_a_name(home: Path, here: int) -> None:
    code = f"""
import os, socket
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTPS_PROXY"])
for line in (b"CONNECT 127.0.0.1\\0.example.test:{here}", b"GET http://127.0.0.1\\0.example.test:{here}/"):
    with socket.create_connection((proxy.hostname, proxy.port)) as way:
        way.sendall(line + b" HTTP/1.1\\r\\n\\r\\n")
        print(way.recv(100).decode()[:12])
"""
    hosts = (f"*.example.test:{here}", f"127.0.0.1:{here}")
    assert set(str(run(home, code, *hosts).output).splitlines()) <= {"HTTP/1.1 403", "HTTP/1.1 400"}


@pytest.mark.parametrize("address", ["168.63.129.16", "192.0.0.192", "::ffff:168.63.129.16"])
def test_what_a_cloud_tells_its_machines_at_public_addresses_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_resolve", lambda *_: [ipaddress.ip_address(address)])
    with pytest.raises(HostError, match="has to be granted too"):
        Reach.of(["*"]).addresses("metadata.example.test", 80)


@needs_bwrap
@pytest.mark.parametrize("given", ["127.0.0.1", "127.0.0.1:{port}", "user:word@127.0.0.1:{port}"])
def test_a_server_is_told_the_host_that_was_checked(home: Path, here: int, given: str) -> None:
    code = f"""
import os, socket
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTP_PROXY"])
with socket.create_connection((proxy.hostname, proxy.port)) as way:
    way.sendall(b"GET http://{given.format(port=here)}/x HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n")
    said = b""
    while more := way.recv(1000):
        said += more
    print(said.decode().splitlines()[-1])
"""
    result = run(home, code, f"127.0.0.1:{here}")
    expected = f"/x for 127.0.0.1:{here}" if ":" in given else "fleet-agentpack: "
    assert str(result.output).startswith(expected)
