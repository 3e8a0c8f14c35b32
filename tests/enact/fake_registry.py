"""A registry on loopback that answers like the real one, and lies wherever a test wants it to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.enact.kit import digest_of


@dataclass
class Lie:
    """An answer that stands in for the honest one."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class FakeRegistry:
    """Bundles, attestations and lies, served over HTTP."""

    url: str = ""
    bundles: dict[str, dict[str, bytes]] = field(default_factory=dict)
    attestations: dict[str, list[tuple[str, bytes]]] = field(
        default_factory=dict
    )  # by name@version
    lies: dict[str, Lie] = field(default_factory=dict)  # by path, with its query or without
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    delay_s: float = 0.0
    search_etag: str | None = None
    page_size: int | None = None  # of a list of attestations
    withdrawn: dict[str, str] = field(default_factory=dict)  # why, by name@version

    def publish(self, name: str, version: str, bundle: bytes) -> str:
        """Offer a bundle; gives its hash."""
        self.bundles.setdefault(name, {})[version] = bundle
        return digest_of(bundle)

    def attest(self, name: str, version: str, auditor: str, bundle: bytes) -> None:
        """List an attestation under an auditor's name."""
        self.attestations.setdefault(f"{name}@{version}", []).append((auditor, bundle))

    def withdraw(self, name: str, version: str, reason: str) -> None:
        """Yank a version."""
        self.withdrawn[f"{name}@{version}"] = reason

    def paths(self) -> list[str]:
        """What was asked for so far."""
        return [path for path, _ in self.requests]

    def answer(self, target: str, headers: Mapping[str, str]) -> Lie:
        """The answer to a request."""
        parts = urlsplit(target)
        path = unquote(parts.path)
        for asked in (target, path):
            if asked in self.lies:
                return self.lies[asked]
        if path == "/tools/search":
            return self._search(parse_qs(parts.query), headers)
        name, _, rest = path.removeprefix("/tools/").partition("/versions/")
        if name not in self.bundles:
            return _missing()
        if not rest:
            return self._tool(name)
        version, _, rest = rest.partition("/")
        if version not in self.bundles[name]:
            return _missing()
        if rest == "download":
            data = self.bundles[name][version]
            return Lie(body=data, headers={"etag": f'"sha256:{digest_of(data)}"'})
        if rest == "attestations":
            return self._attestations(f"{name}@{version}", parse_qs(parts.query))
        if rest.startswith("trust/attestations/"):
            wanted = rest.removeprefix("trust/attestations/")
            for auditor, data in self.attestations.get(f"{name}@{version}", []):
                if auditor == wanted:
                    return Lie(body=data)
            return _missing()
        return self._version(name, version) if not rest else _missing()

    def _search(self, query: Mapping[str, list[str]], headers: Mapping[str, str]) -> Lie:
        if self.search_etag and headers.get("if-none-match") == self.search_etag:
            return Lie(304)
        words = " ".join(query.get("q", [""])).lower().split()
        rows = [
            {"name": name, "description": f"The tool {name}", "version": max(versions), "tags": []}
            for name, versions in self.bundles.items()
            if not words or any(word in name for word in words)
        ]
        headers = {"etag": self.search_etag} if self.search_etag else {}
        return _json({"tools": rows[: int(query["limit"][0])], "total": len(self.bundles)}, headers)

    def _attestations(self, label: str, query: Mapping[str, list[str]]) -> Lie:
        rows = [
            {"auditor": auditor, "verification": {"verified": True}}
            for auditor, _ in self.attestations.get(label, [])
        ]
        begin = int(query.get("offset", ["0"])[0])
        end = begin + self.page_size if self.page_size else None
        return _json({"attestations": rows[begin:end], "total": len(rows)})

    def _tool(self, name: str) -> Lie:
        versions = [
            {
                "version": version,
                "bundle_hash": f"sha256:{digest_of(data)}",
                "yanked": f"{name}@{version}" in self.withdrawn,
            }
            for version, data in self.bundles[name].items()
        ]
        return _json({"name": name, "latest_version": "0.0.1", "versions": versions})

    def _version(self, name: str, version: str) -> Lie:
        data = self.bundles[name][version]
        bundle = {"hash": f"sha256:{digest_of(data)}", "size": len(data)}
        reason = self.withdrawn.get(f"{name}@{version}")
        yanked = {"yanked": reason is not None, "yank_reason": reason}
        return _json({"name": name, "version": version, **yanked, "bundle": bundle})


@contextmanager
def serving(registry: FakeRegistry) -> Iterator[FakeRegistry]:
    """Serve it on a free port."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client that hangs up is nothing to report."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            headers = {key.lower(): value for key, value in self.headers.items()}
            registry.requests.append((self.path, headers))
            time.sleep(registry.delay_s)
            found = registry.answer(self.path, headers)
            self.send_response(found.status)
            for key, value in found.headers.items():
                self.send_header(key, value)
            if "content-length" not in {key.lower() for key in found.headers}:
                self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)
            if "content-length" in {key.lower() for key in found.headers}:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _json(data: Any, headers: Mapping[str, str] | None = None) -> Lie:
    return Lie(
        200, json.dumps(data).encode(), {"content-type": "application/json", **(headers or {})}
    )


def _missing() -> Lie:
    error = {"error": {"code": "NOT_FOUND", "message": "not found"}}
    return Lie(404, json.dumps(error).encode(), {"content-type": "application/json"})
