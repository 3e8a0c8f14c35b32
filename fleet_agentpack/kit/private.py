"""Every use of another library's private parts, each with what it earns and what it falls back to.

A library may rename these in any release. Then the fallback here serves: slower or with one nicety
less, never with a failing call. `tests/kit/test_private.py` fails as soon as a fallback is in use.

Measured as CPU time from start to `tools/list`, and per call over stdio.

| part | what it earns | when it is gone |
|---|---|---|
| pydantic's configuration defaults | 5 % of start-up: 200 models not built | built at once |
| FastMCP's state store | 2 % of start-up: no key-value library | FastMCP's own store |
| FastMCP's inner server and lifespan | 0.7 of a call's time, odd lines answered | its own stdio |
| the same, `subscriptions/listen` | 2026-07-28 clients hear of new tools | they list again |
| the same, `resources/subscribe` | clients hear of agents' progress | they read again |
| the same, its table of methods | no `logging` that would never log | it is advertised |
| a session's connection | news of tools, installs per session | no news, one shared store |
| sigstore's shipped trust root | verification offline | the user has to name a trust root |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

SIGSTORE_PRODUCTION = "https://tuf-repo-cdn.sigstore.dev"
_GONE = (AttributeError, ImportError, KeyError, TypeError)


@contextmanager
def models_built_on_first_use() -> Iterator[None]:
    """Put off what pydantic does for every model defined inside this block."""
    try:
        from pydantic._internal._config import config_defaults as defaults

        before = defaults["defer_build"]
        defaults["defer_build"] = True  # type: ignore[typeddict-unknown-key,unused-ignore]
    except _GONE:
        yield
        return
    try:
        yield
    finally:
        defaults["defer_build"] = before


class MemoryState:
    """The three operations that FastMCP uses of its per-session state, on a dictionary."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    async def get(self, key: str, **_: Any) -> object:
        """The value of a key, or None."""
        return self._values.get(key)

    async def put(self, key: str, value: Any, **_: Any) -> None:
        """Keep a value."""
        self._values[key] = value

    def __getattr__(self, _name: str) -> Callable[..., Awaitable[None]]:
        """An operation that FastMCP did not use yet: it finds nothing and fails nothing."""
        return _nothing

    async def delete(self, key: str, **_: Any) -> bool:
        """Forget a key; says whether it was there."""
        return self._values.pop(key, None) is not None


async def _nothing(*_: Any, **__: Any) -> None:
    return None


def install_memory_state(server: Any) -> None:
    """Put a store of ours where FastMCP would import one; it looks there on every `tools/list`."""
    if hasattr(server, "_FastMCP__state_store"):
        server._FastMCP__state_store = MemoryState()


class ProtocolServer(Protocol):
    """What we use of the SDK's server."""

    async def run(self, reading: Any, writing: Any, options: Any, /) -> None:
        """Serve one client."""

    def add_request_handler(self, method: str, params: type, handler: Any, /) -> None:
        """Serve one more kind of request."""

    def create_initialization_options(self) -> object:
        """What `run` asks for."""


class ClientConnection(Protocol):
    """What we use of a client's connection."""

    @property
    def session_id(self) -> str | None:
        """The HTTP session."""

    @property
    def exit_stack(self) -> AsyncExitStack:
        """What is done when it ends."""

    async def send_tool_list_changed(self) -> None:
        """Tell the client that there are other tools now."""

    async def send_prompt_list_changed(self) -> None:
        """Tell the client that there are other prompts now."""

    async def send_resource_updated(self, uri: str, /) -> None:
        """Tell the client that a resource is another one now."""


def protocol_server(server: Any) -> ProtocolServer | None:
    """The SDK's server inside a FastMCP server; None when it cannot be reached any longer."""
    found = getattr(server, "_mcp_server", None)
    wanted = ("run", "add_request_handler", "create_initialization_options")
    return found if all(hasattr(found, name) for name in wanted) else None


def advertise_no_logging(server: Any) -> None:
    """Take back FastMCP's promise of log messages: we send none, whatever level is asked for."""
    handlers = getattr(protocol_server(server), "_request_handlers", None)
    if isinstance(handlers, dict):
        handlers.pop("logging/setLevel", None)


def can_serve_streams(server: Any) -> bool:
    """Whether `serve_streams` works with this FastMCP."""
    return protocol_server(server) is not None and hasattr(server, "_lifespan_manager")


async def serve_streams(server: Any, reading: Any, writing: Any) -> None:
    """Serve one client on two streams of ours, within the server's lifespan."""
    inner = protocol_server(server)
    assert inner is not None  # noqa: S101 - the caller has asked `can_serve_streams`
    async with server._lifespan_manager():
        await inner.run(reading, writing, inner.create_initialization_options())


def connection_of(context: Any) -> ClientConnection | None:
    """The connection behind a request; None where there is no client, or none to be seen."""
    try:
        connection = context.session._connection
    except (AttributeError, RuntimeError):
        return None
    return connection if hasattr(connection, "session_id") else None


def sigstore_trust_root() -> Path | None:
    """The production trust root that ships with the sigstore library; nothing is fetched."""
    try:
        from importlib.resources import files

        store = files("sigstore") / "_store" / quote(SIGSTORE_PRODUCTION, safe="")
    except ImportError:
        return None
    path = Path(str(store / "trusted_root.json"))
    return path if path.is_file() else None
