"""This package's server with one no-op tool more, started the way the command line starts it."""

import gc
import sys


def main() -> int:
    from fleet_agentpack.wire.descriptors import ClaimedStdio

    port = int(sys.argv[1]) if len(sys.argv) > 1 else None
    wire = None if port else ClaimedStdio.claim()
    gc.disable()
    from fastmcp.dependencies import Depends

    from fleet_agentpack import domains
    from fleet_agentpack.settings import HttpSettings, Settings
    from fleet_agentpack.wire.logs import configure
    from fleet_agentpack.wire.provider import READS, DomainTools
    from fleet_agentpack.wire.server import assemble

    configure("warning")
    chosen = domains.select()
    extra = DomainTools(
        "noop",
        server_name="noop",
        instructions="noop",
        error=chosen[0].error,
        open_service=lambda _settings: None,
    )

    @extra.tool(annotations=READS)
    async def noop(*, service: object = Depends(extra.service), text: str = "") -> dict[str, str]:
        """Do nothing."""
        return {"text": text}

    mcp = assemble(Settings.read(), [*chosen, extra])
    gc.enable()
    gc.freeze()
    if wire:
        from fleet_agentpack.wire.stdio import run_stdio

        return run_stdio(mcp, wire)
    import asyncio

    from fleet_agentpack.wire.http import listen, serve_http

    http = HttpSettings(port=port)
    asyncio.run(serve_http(mcp, http, "warning", listen(http)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
