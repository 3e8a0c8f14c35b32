"""Tools that come and go while clients are connected, on both transports and in both eras."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from pathlib import Path
from typing import Any

from tests.rig import EXAMPLE, Http, Stdio, modern_meta

CHANGED = "notifications/tools/list_changed"


def names(result: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in result["tools"]}


def drop_tool(work: Path, name: str) -> None:
    (work / "dynamic").mkdir(exist_ok=True)
    (work / "dynamic" / name).write_text("")


def test_a_tool_from_another_process_appears_and_goes_on_stdio(work: Path) -> None:
    with Stdio(EXAMPLE) as server:
        assert server.hello()["capabilities"]["tools"]["listChanged"] is True
        assert "fresh" not in names(server.ask("tools/list")["result"])
        drop_tool(work, "fresh")
        server.wait_for_notification(CHANGED)
        (tool,) = [t for t in server.ask("tools/list")["result"]["tools"] if t["name"] == "fresh"]
        assert tool["inputSchema"]["$defs"] == {"n": {"type": "integer"}}
        assert tool["outputSchema"] == {"type": "object"}
        assert server.call("fresh", n=1)["structuredContent"] == {
            "tool": "fresh",
            "arguments": {"n": 1},
        }
        server.notifications.clear()
        (work / "dynamic" / "fresh").unlink()
        server.wait_for_notification(CHANGED)
        assert server.call("fresh")["structuredContent"]["error"] == "unknown_tool"


def test_our_own_change_is_told_at_once() -> None:
    with Stdio(EXAMPLE) as server:
        server.hello()
        server.call("add_tool", name="mine")
        assert CHANGED in [note["method"] for note in server.notifications]


def test_a_subscriber_without_handshake_is_told_on_stdio(work: Path) -> None:
    with Stdio(EXAMPLE) as server:
        server.send(
            "subscriptions/listen", notifications={"toolsListChanged": True}, _meta=modern_meta()
        )
        server.wait_for_notification("notifications/subscriptions/acknowledged")
        drop_tool(work, "fresh")
        server.wait_for_notification(CHANGED)
        assert server.close() == 0


def listen(server: Http, method: str, body: Any, **headers: str) -> queue.Queue[str]:
    """The events of a stream, as they arrive."""
    found: queue.Queue[str] = queue.Queue()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection.request(method, "/mcp", body and json.dumps(body).encode(), head | headers)
    answer = connection.getresponse()

    def read() -> None:
        try:
            for line in answer:
                if line.startswith(b"data: {"):
                    found.put(json.loads(line[6:]).get("method", ""))
        except OSError:
            pass
        finally:
            connection.close()

    threading.Thread(target=read, daemon=True).start()
    return found


def test_a_session_is_told_over_http(work: Path) -> None:
    with Http(command=EXAMPLE) as server:
        session = server.hello()
        events = listen(server, "GET", None, **{"Mcp-Session-Id": session})
        drop_tool(work, "fresh")
        assert events.get(timeout=15) == CHANGED
        assert server.call(session, "fresh", {})["structuredContent"]["tool"] == "fresh"
        assert server.end() in (0, -15)


def test_a_subscriber_without_handshake_is_told_over_http(work: Path) -> None:
    with Http(command=EXAMPLE) as server:
        params = {"notifications": {"toolsListChanged": True}, "_meta": modern_meta()}
        body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
        events = listen(server, "POST", body, **headers)
        assert events.get(timeout=15) == "notifications/subscriptions/acknowledged"
        drop_tool(work, "fresh")
        assert events.get(timeout=15) == CHANGED


def test_a_session_that_ends_is_told_to_its_domain(work: Path) -> None:
    with Http(command=EXAMPLE) as server:
        session = server.hello()
        server.call(session, "echo", {"text": "x"})
        server.request(None, session=session, method="DELETE")
        for _ in range(100):
            if (work / "ended").exists():
                break
            threading.Event().wait(0.05)
        assert (work / "ended").read_text() == session
