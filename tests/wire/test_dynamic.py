"""Tools that come and go while clients are connected, on both transports and in both eras."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from pathlib import Path
from typing import Any

from tests.rig import EXAMPLE, Http, Stdio, eventually, modern_meta

CHANGED = "notifications/tools/list_changed"


def names(result: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in result["tools"]}


def drop_tool(work: Path, name: str) -> None:
    (work / "dynamic").mkdir(exist_ok=True)
    (work / "dynamic" / name).write_text("")


def test_a_tool_from_another_process_appears_and_goes_on_stdio(example: Stdio) -> None:
    assert example.hello()["capabilities"]["tools"]["listChanged"] is True
    assert "fresh" not in names(example.ask("tools/list")["result"])
    example.notifications.clear()
    drop_tool(example.folder, "fresh")
    example.wait_for_notification(CHANGED)
    (tool,) = [t for t in example.ask("tools/list")["result"]["tools"] if t["name"] == "fresh"]
    assert tool["inputSchema"]["$defs"] == {"n": {"type": "integer"}}
    assert tool["outputSchema"] == {"type": "object"}
    assert example.call("fresh", n=1)["structuredContent"] == {
        "tool": "fresh",
        "arguments": {"n": 1},
    }
    example.notifications.clear()
    (example.folder / "dynamic" / "fresh").unlink()
    example.wait_for_notification(CHANGED)
    assert example.call("fresh")["structuredContent"]["error"] == "unknown_tool"


def test_our_own_change_is_told_at_once(example: Stdio) -> None:
    example.notifications.clear()
    example.call("add_tool", name="mine")
    assert CHANGED in [note["method"] for note in example.notifications]


def test_a_change_that_changes_nothing_is_not_told(example: Stdio) -> None:
    example.call("add_tool", name="again")
    example.notifications.clear()
    example.call("add_tool", name="again")
    assert example.notifications == []


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


def test_clients_of_both_eras_are_told_over_http(work: Path) -> None:
    with Http(command=EXAMPLE) as server:
        session = server.hello()
        told = listen(server, "GET", None, **{"Mcp-Session-Id": session})
        params = {"notifications": {"toolsListChanged": True}, "_meta": modern_meta()}
        body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
        events = listen(server, "POST", body, **headers)
        assert events.get(timeout=15) == "notifications/subscriptions/acknowledged"
        drop_tool(work, "fresh")
        assert events.get(timeout=15) == CHANGED
        assert told.get(timeout=15) == CHANGED
        assert server.call(session, "fresh", {})["structuredContent"]["tool"] == "fresh"

        # A session that ends is told to its domain.
        server.request(None, session=session, method="DELETE")
        ended = work / "ended"
        eventually(lambda: ended.exists() and ended.read_text() == session)
        assert server.end() in (0, -15)
