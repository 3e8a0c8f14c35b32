"""Which requests are still waited for when the input has ended."""

from __future__ import annotations

import asyncio

from mcp_types import JSONRPCRequest, JSONRPCResponse

from fleet_agentpack.wire.stdio import Pending


async def test_two_requests_under_one_id_want_two_answers() -> None:
    pending = Pending()
    for _ in range(2):
        pending.received(JSONRPCRequest(jsonrpc="2.0", id="same", method="ping"))
    drained = asyncio.create_task(pending.drained())
    pending.sent(JSONRPCResponse(jsonrpc="2.0", id="same", result={}))
    for _ in range(10):  # every turn that the loop needs to notice
        await asyncio.sleep(0)
    assert not drained.done()
    pending.sent(JSONRPCResponse(jsonrpc="2.0", id="same", result={}))
    await drained
