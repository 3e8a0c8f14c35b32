"""What clients may send: valid, odd, hostile, out of order, in halves; in both protocol eras."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.rig import modern_meta

LISTINGS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
CLIENT = {"name": "c", "version": "0"}


@dataclass(frozen=True)
class Script:
    name: str
    chunks: Sequence[bytes]
    argv: Sequence[str] = ()
    closed: Sequence[int] = ()
    deaf: bool = False


def request(number: Any, method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": number, "method": method, **more}
    return message if params is None else {**message, "params": params}


def hello(version: Any = "2025-11-25", number: Any = 0, **changes: Any) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT} | changes
    return request(number, "initialize", params)


def enveloped(number: Any, method: str, meta: Any = None, **params: Any) -> dict[str, Any]:
    return request(number, method, {**params, "_meta": {**modern_meta(), **(meta or {})}})


READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
CALL = {"name": "fractary_forge_config_get", "arguments": {"key": "x"}}
TASK_REQUESTS = {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}
CHECK = [
    request("end-1", "ping"),
    request("end-2", "tools/list"),
    request("e3", "tools/call", CALL),
]
MODERN_CHECK = [enveloped("end-2", "tools/list"), enveloped("e3", "tools/call", **CALL)]

# How a session begins, and how it is looked at in the end.
BEGINNINGS: dict[str, tuple[list[Any], list[Any]]] = {
    "nothing": ([], CHECK),
    "handshake": ([hello(), READY], CHECK),
    "ping": ([request("p", "ping")], CHECK),
    "modern": ([enveloped("d", "server/discover")], MODERN_CHECK),
}


def capabilities(value: Any) -> dict[str, Any]:
    return hello(capabilities=value, number="i")


def client(**fields: Any) -> dict[str, Any]:
    return hello(clientInfo=fields, number="i")


MESSAGES: dict[str, Any] = {
    **{f"list {method}": request(1, method) for method in LISTINGS},
    **{f"list {method} empty params": request(1, method, {}) for method in LISTINGS},
    **{f"modern {method}": enveloped(1, method) for method in LISTINGS},
    **{f"hello {v}": hello(v, "i") for v in ("2024-11-05", "2025-03-26", "2025-06-18", "1999", "")},
    "hello of the modern version": hello("2026-07-28", "i"),
    "hello with a number as version": hello(5, "i"),
    "hello without params": request("i", "initialize"),
    "hello with a list": request("i", "initialize", []),
    "hello without client": request("i", "initialize", {"protocolVersion": "2025-11-25"}),
    "hello with more": hello(number="i", more=1),
    "hello with meta": hello(number="i", _meta={"progressToken": 3}),
    "hello in an envelope": hello(number="i", _meta=modern_meta()),
    "roots": capabilities({"roots": {"listChanged": True}}),
    "roots as a text": capabilities({"roots": {"listChanged": "yes"}}),
    "roots null": capabilities({"roots": None}),
    "sampling": capabilities({"sampling": {}}),
    "sampling with tools": capabilities({"sampling": {"tools": {}, "context": {}}}),
    "elicitation": capabilities({"elicitation": {"form": {}, "url": {}}}),
    "elicitation wrong": capabilities({"elicitation": []}),
    "experimental": capabilities({"experimental": {"a": {"b": [1, None, "x"]}}}),
    "experimental wrong": capabilities({"experimental": {"a": 5}}),
    "extensions": capabilities({"extensions": {"io.modelcontextprotocol/ui": {"m": ["a"]}}}),
    "unknown capability": capabilities({"flying": {}}),
    "tasks": capabilities({"tasks": {"list": {}, "cancel": {}, "requests": TASK_REQUESTS}}),
    "tasks with more": capabilities({"tasks": {"requests": {"tools": {"call": {}}}}}),
    "tasks wrong": capabilities({"tasks": {"list": True}}),
    "flags": capabilities({"tools": True, "prompts": True, "resources": True, "logging": False}),
    "flags with more": capabilities({"tools": {"listChanged": True}, "logging": None}),
    "capabilities null": capabilities(None),
    "capabilities list": capabilities([]),
    "full client": client(name="a", version="1", title="A", description="d", websiteUrl="not one"),
    "client with icons": client(name="a", version="1", icons=[{"src": "x"}]),
    "client without version": client(name="a"),
    "client with a number": client(name=1, version="1"),
    "client with umlauts": client(name="Grüße ☃", version="1"),
    "client with half a character": b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":'
    b'{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":'
    b'{"name":"\\ud83d","version":"0"}}}',
    "ready": READY,
    "ready with params": {**READY, "params": {}},
    "ready with odd params": {**READY, "params": {"a": 1}},
    "ready with a list": {**READY, "params": []},
    "ready with an id": {**READY, "id": 4},
    "ready twice": [READY, READY],
    "ping": request("q", "ping"),
    "ping with params": request("q", "ping", {}),
    "ping with meta": request("q", "ping", {"_meta": {"progressToken": "t"}}),
    "ping with a list": request("q", "ping", []),
    "ping with odd meta": request("q", "ping", {"_meta": 5}),
    "ping in an envelope": enveloped("q", "ping"),
    "ping with more": request("q", "ping", {}, more=1),
    **{
        f"id {text}": f'{{"jsonrpc":"2.0","id":{text},"method":"ping"}}'.encode()
        for text in (
            "null",
            "true",
            "1.0",
            "1e2",
            "-3",
            "0",
            "-0",
            "[]",
            "{}",
            '""',
            '"a\\"b"',
            '"\\u0041"',
            '"\\\\"',
            '"\\/"',
            '"é"',
            '"\x7f"',
            "9007199254740993",
            "123456789012345678901234567890",
            '"fleet-agentpack:handshake"',
        )
    },
    "cursor": request(1, "tools/list", {"cursor": "x"}),
    "cursor null": request(1, "tools/list", {"cursor": None}),
    "cursor number": request(1, "tools/list", {"cursor": 5}),
    "params null": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}',
    "params list": request(1, "tools/list", [1]),
    "params text": request(1, "tools/list", "x"),
    "list with more": request(1, "tools/list", {"more": 1}),
    "list with token": request(1, "tools/list", {"_meta": {"progressToken": 1}}),
    "list with odd token": request(1, "tools/list", {"_meta": {"progressToken": 1.5}}),
    "list with a true token": request(1, "tools/list", {"_meta": {"progressToken": True}}),
    "list with other meta": request(1, "tools/list", {"_meta": {"x/y": 1}}),
    "discover bare": request(1, "server/discover"),
    "discover": enveloped(1, "server/discover"),
    "discover with more": enveloped(1, "server/discover", more=1),
    "envelope of another version": enveloped(
        1, "tools/list", {"io.modelcontextprotocol/protocolVersion": "2030-01-01"}
    ),
    "envelope with a token": enveloped(1, "tools/list", {"progressToken": "t"}),
    "envelope with more": enveloped(1, "tools/list", {"a/b": {}}),
    "envelope without client": request(
        1,
        "tools/list",
        {"_meta": {k: v for k, v in modern_meta().items() if "clientInfo" not in k}},
    ),
    "envelope with capabilities": enveloped(
        1, "tools/list", {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    ),
    "envelope with odd capabilities": enveloped(
        1, "tools/list", {"io.modelcontextprotocol/clientCapabilities": 5}
    ),
    "unknown method": request(1, "no/such"),
    "unknown notification": {"jsonrpc": "2.0", "method": "no/such"},
    "method missing": {"jsonrpc": "2.0", "id": 1},
    "method number": {"jsonrpc": "2.0", "id": 1, "method": 5},
    "other jsonrpc": {"jsonrpc": "1.0", "id": 1, "method": "ping"},
    "no jsonrpc": {"id": 1, "method": "ping"},
    "an answer": {"jsonrpc": "2.0", "id": 1, "result": {}},
    "an error": {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}},
    "cancel": {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0}},
    "cancel oddly": {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}},
    "log level": request(1, "logging/setLevel", {"level": "info"}),
    "unknown tool": request(1, "tools/call", {"name": "nothing", "arguments": {}}),
    "call": request(1, "tools/call", CALL),
    "resource": request(1, "resources/read", {"uri": "agentpack://snapshots"}),
    "batch": b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]',
    "empty batch": b"[]",
    "batch of rubbish": b'[1,{"jsonrpc":"2.0","id":7,"method":"ping"},null]',
    "rubbish": b"rubbish",
    "text": b'"text"',
    "number": b"5",
    "null": b"null",
    "object": b"{}",
    "blank": b"  \t ",
    "vertical tab": b"\x0b\x0c",
    "other space": "\u00a0\u2003".encode(),
    "bytes": b"\xff\xfe\x00",
    "byte order mark": b"\xef\xbb\xbf" + b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "zero in a text": b'{"jsonrpc":"2.0","id":"a\x00b","method":"ping"}',
    "bad bytes in a text": b'{"jsonrpc":"2.0","id":"a\xff","method":"ping"}',
    "carriage return": b'{"jsonrpc":"2.0","id":1,"method":"ping"}\r',
    "space around": b'  {"jsonrpc" : "2.0", "id":1 ,\t"method":"ping"}  ',
    "key twice": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    "method twice": b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}',
    "nan": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":NaN}}}',
    "comma": b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
    "two on a line": b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2}',
    "escaped method": b'{"jsonrpc":"2.0","id":1,"method":"p\\u0069ng"}',
    "deep": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 300 + b"]" * 300 + b"}",
    "deeper": b"[" * 9000,
    "deep in an object": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":'
    + b'{"_meta":' * 2000
    + b"1"
    + b"}" * 2001,
    "deep capabilities": b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocol'
    b'Version":"2025-11-25","clientInfo":{"name":"c","version":"0"},"capabilities":{"experimental":'
    + b'{"a":' * 40
    + b"{}"
    + b"}" * 43,
    "zero byte": b"\x00",
    "zero before a message": b'\x00{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "zero in a method": b'{"jsonrpc":"2.0","id":1,"method":"ping\x00"}',
    "lone carriage returns": b'\r\r{"jsonrpc":"2.0","id":1,"method":"ping"}\r{"jsonrpc":"2.0"}',
    "line separator": '{"jsonrpc":"2.0","id":"a\u2028b","method":"ping"}'.encode(),
    "other encoding": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    "overlong bytes": b'{"jsonrpc":"2.0","id":"\xc0\xaf","method":"ping"}',
    "half a character in bytes": b'{"jsonrpc":"2.0","id":"\xed\xa0\x80","method":"ping"}',
    "method with a space": request(1, "ping "),
    "method in capitals": request(1, "Tools/List"),
    "hello in a batch": [b"[" + json.dumps(hello(number="i")).encode() + b"]"],
    "list and call at once": [request(1, "tools/list"), request(2, "tools/call", CALL)],
    "call and list at once": [request(1, "tools/call", CALL), request(2, "tools/list")],
    "call twice with one id": [request(1, "tools/call", CALL), request(1, "tools/call", CALL)],
    "two handshakes": [hello("2025-06-18", "i"), READY, hello("2025-11-25", "j"), READY],
    "infinity": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":'
    b"Infinity}}}",
    "number without end": b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
    "cancel before": [
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}},
        request(7, "tools/call", CALL),
    ],
    "progress": {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": 1, "progress": 1},
    },
    "subscribe": request(1, "resources/subscribe", {"uri": "agentpack://snapshots"}),
    "complete": request(1, "completion/complete", {"ref": {}, "argument": {}}),
    "read with no address": request(1, "resources/read", {}),
    "prompt": request(1, "prompts/get", {"name": "nothing"}),
    "long": b'{"jsonrpc":"2.0","id":"' + b"x" * 70_000 + b'","method":"ping"}',
    "large params": request(1, "ping", {"_meta": {"progressToken": "x" * 30_000}}),
}


def as_bytes(message: Any) -> bytes:
    """A message, or several, as lines."""
    if isinstance(message, bytes):
        return message + b"\n"
    if isinstance(message, list):
        return b"".join(map(as_bytes, message))
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def scripts() -> Iterator[Script]:
    """Every message after every beginning, and some that are special."""
    for beginning, (first, last) in BEGINNINGS.items():
        for name, message in MESSAGES.items():
            yield Script(
                f"{beginning}: {name}", [as_bytes(first), as_bytes(message), as_bytes(last)]
            )
    yield from _special()


def _special() -> Iterator[Script]:
    whole = as_bytes([hello(), READY, request(1, "tools/list"), request(2, "prompts/list")])
    half = as_bytes(request(9, "ping")).rstrip()
    yield Script("nothing at all", [])
    yield Script("an empty line", [b"\n"])
    yield Script("all at once", [whole])
    yield Script("byte by byte", [whole[n : n + 1] for n in range(60)] + [whole[60:]])
    yield Script("in halves", [whole[:100], whole[100:250], whole[250:]])
    yield Script("no last newline", [whole + half])
    yield Script("no last newline, unknown", [whole + b'{"jsonrpc":"2.0","id":'])
    yield Script("a half that is completed", [whole + half[:10], half[10:] + b"\n"])
    yield Script("input closed", [], closed=[0])
    yield Script("output closed", [whole], closed=[1])
    yield Script("errors closed", [whole, as_bytes(CHECK)], closed=[2])
    yield Script("all closed", [], closed=[0, 1, 2])
    yield Script("nobody reads", [whole, as_bytes(CHECK)], deaf=True)
    yield Script("nobody reads an answer of the server", [as_bytes(CHECK)], deaf=True)
    yield Script("many lists", [as_bytes([request(n, "tools/list") for n in range(40)])])
    yield Script("many pings", [as_bytes([request(n, "ping") for n in range(3000)])])
    yield Script("the same id", [as_bytes([hello(), READY, *(request(0, "ping") for _ in "abc")])])
    yield Script("the same id later", [whole, as_bytes(request(0, "tools/call", CALL))])
    yield Script("call and cancel", [
        whole,
        as_bytes(request(5, "tools/call", CALL)),
        as_bytes({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 6}}),  # noqa: E501
    ])  # fmt: skip
    yield Script(
        "list before ready", [as_bytes([hello(), request(1, "tools/list"), READY, *CHECK])]
    )
    yield Script("both eras", [as_bytes([enveloped(1, "tools/list"), hello(), *CHECK])])
    yield Script("both eras turned", [as_bytes([hello(), enveloped(1, "tools/list"), *CHECK])])
    yield Script(
        "bare, then modern", [as_bytes([request(1, "tools/list"), enveloped(2, LISTINGS[1])])]
    )
    yield Script("bare, then hello", [as_bytes([request(1, "tools/list"), hello(), READY, *CHECK])])
    yield Script("line ends of another system", [whole.replace(b"\n", b"\r\n")])
    yield Script("no line ends but those", [whole.replace(b"\n", b"\r"), as_bytes(CHECK)])
    yield Script("call, then the end", [as_bytes([hello(), READY, request(1, "tools/call", CALL)])])
    yield Script(
        "call, then the end without a newline", [as_bytes(request(1, "tools/call", CALL)).rstrip()]
    )
    yield Script("only half a handshake", [as_bytes(hello())[:80]])
    yield Script("a handshake in two writes", [as_bytes(hello())[:80], as_bytes(hello())[80:]])
    yield Script("blank lines between", [whole.replace(b"\n", b"\n\n \n"), as_bytes(CHECK)])
    yield Script("nobody writes, nobody reads", [], deaf=True)
    for closed in ([0, 1], [0, 2], [1, 2]):
        yield Script(f"closed {closed}", [whole, as_bytes(CHECK)], closed=closed)
    yield Script("rubbish first", [b"rubbish\n", whole])
    yield Script("a long half line", [b"x" * 200_000, b"\n", whole])
    for argv in (
        ["--only", "fleet"],
        ["--only=enact,climpt"],
        ["--read-only"],
        ["--only", "climpt"],
        ["--only", "forge", "--read-only"],
        ["--only", "agentpack,mars"],
        ["--only", "fleet,fleet,,"],
        ["--only=", "--read-only"],
        ["--read-only", "--read-only"],
        ["--read-only=yes"],
        ["--log-level", "debug"],
        ["--log-level=error", "--only=enact"],
        ["--prefix", "our"],
        ["--tools", "plan,status,execute", "--ask=risky"],
        ["--without=rollback", "--project", "/", "--no-extras"],
    ):
        yield Script(f"options {' '.join(argv)}", [whole, as_bytes(CHECK)], argv)
    yield Script("no such domain", [whole], ["--only", "mars"])
    yield Script("no such option", [whole], ["--mars"])
    yield Script("no such tool", [whole], ["--tools", "plam"])
    yield Script("no tool left", [whole], ["--tools", "rollback", "--read-only"])
    yield Script("option without value", [whole], ["--only"])
