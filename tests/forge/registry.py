"""A registry and a stockyard on the loopback, scripted by a table of answers."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Site:
    """What a test server answers, and what it was asked."""

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    next: dict[str, Answer] = field(default_factory=dict)  # what takes over after one answer
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def put(self, path: str, body: Any, status: int = 200, **headers: str) -> bytes:
        """Answer a path with JSON, or with bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[path] = (status, headers, data)
        return data

    def put_plugin(
        self, manifest: dict[str, Any], files: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Offer a plugin with its files; returns its entry for a registry manifest."""
        base = f"/{manifest['name']}/{manifest['version']}"
        whole = dict(manifest)
        for path, text in (files or {}).items():
            kind, _, file_name = path.partition("/")
            data = self.put(f"{base}/{path}", text.encode())
            item = {
                "name": file_name.rpartition(".")[0],
                "version": manifest["version"],
                "description": "A part",
                "source": f"{self.url}{base}/{path}",
                "checksum": checksum(data),
                "size": len(data),
            }
            whole[kind] = [*whole.get(kind, []), item]
        body = self.put(f"{base}/plugin.json", whole)
        return {
            "name": manifest["name"],
            "version": manifest["version"],
            "description": manifest.get("description", ""),
            "manifest_url": f"{self.url}{base}/plugin.json",
            "repository": "https://example.test/repo",
            "license": "MIT",
            "tags": manifest.get("tags", []),
            "checksum": checksum(body),
        }

    def put_registry(self, *plugins: dict[str, Any], path: str = "/registry.json") -> str:
        """Offer a registry manifest; returns its URL."""
        self.put(
            path,
            {
                "name": "test",
                "version": "1.0.0",
                "description": "Test registry",
                "updated": "2025-12-01T00:00:00Z",
                "plugins": list(plugins),
            },
        )
        return f"{self.url}{path}"


def checksum(data: bytes) -> str:
    """A checksum as registries write it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def serving(site: Site | None = None) -> Iterator[Site]:
    """A running server on the loopback."""
    site = site or Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path)
            site.asked.append(path)
            site.headers.append(dict(self.headers))
            status, headers, body = site.answers.get(path, (404, {}, b"{}"))
            if path in site.next:
                site.answers[path] = site.next.pop(path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
