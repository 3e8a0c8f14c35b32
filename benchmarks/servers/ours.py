"""This package's server with one no-op tool more, started the way the command line starts it."""

import gc
import sys


async def noop(_service: object, *, text: str = "") -> dict[str, str]:
    """Do nothing."""
    return {"text": text}


def main() -> int:
    from fleet_agentpack.wire.descriptors import Wire

    port = int(sys.argv[1]) if len(sys.argv) > 1 else None
    wire = None if port else Wire.claim()
    gc.disable()
    from fleet_agentpack import domains
    from fleet_agentpack.settings import HttpSettings, Settings
    from fleet_agentpack.wire.logs import configure
    from fleet_agentpack.wire.params import READS
    from fleet_agentpack.wire.register import Domain, Spec
    from fleet_agentpack.wire.server import assemble

    configure("warning")
    chosen = domains.select()
    extra = Domain(
        name="noop",
        server_name="noop",
        instructions="noop",
        error=chosen[0].error,
        open=lambda _settings: None,
        tools=[Spec(noop, READS)],
    )
    mcp = assemble(Settings.read(), [*chosen, extra])
    gc.enable()
    gc.freeze()
    if wire:
        from fleet_agentpack.wire.stdio import run_stdio

        return run_stdio(mcp, wire)
    import asyncio

    from fleet_agentpack.wire.http import serve_http

    asyncio.run(serve_http(mcp, HttpSettings(port=port), "warning"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
