"""Entry points: the whole product, and the contracts' names for one domain alone."""

from __future__ import annotations

import gc
import os
import signal
import sys

INTERRUPTED = 130


def main() -> None:
    """`fleet-agentpack`"""
    sys.exit(_run("fleet-agentpack"))


def enact() -> None:
    """`enact-mcp`: the tool registry alone."""
    sys.exit(_run("enact-mcp", "enact"))


def forge() -> None:
    """`fractary-forge-mcp`: the definitions alone."""
    sys.exit(_run("fractary-forge-mcp", "forge"))


def _run(prog: str, domain: str = "") -> int:
    """Begin at once where that is possible, with the command line imported only when needed."""
    _end_quietly_when_interrupted(prog)
    from fleet_agentpack.wire.quick_start import quick_start

    argv = sys.argv[1:]
    start = quick_start(argv, os.environ, domain)
    listing = None
    if start is not None:
        from fleet_agentpack.wire.recorded import RecordedListing

        listing = RecordedListing.read(start.selection, start.project.sentence)
    if start is None or listing is None:
        from fleet_agentpack import cli

        return cli.run_single(domain, prog, argv) if domain else cli.run(argv)
    from fleet_agentpack.wire.descriptors import ClaimedStdio
    from fleet_agentpack.wire.front import serve_known

    wire = ClaimedStdio.claim()
    left = serve_known(wire, listing, start.home, start.cache, start.project.path)
    if left is None:
        return 0
    gc.disable()  # until the server is built, see `cli`
    from fleet_agentpack import cli

    return cli.take_over(prog, argv, domain, wire, left)


def _end_quietly_when_interrupted(prog: str) -> None:
    """Until the work begins, Ctrl-C just ends the process.

    An exception would not do: raised in the middle of an import, it may be printed and swallowed.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: _end(prog))


def _end(prog: str) -> None:
    if os.isatty(2):  # a person pressed the keys; a client that ends its server needs no word
        os.write(2, f"{prog}: interrupted\n".encode())
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
