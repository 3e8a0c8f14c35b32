"""Keeps a connection to a Dagger engine and carries out tasks on it, one at a time.

Requests and answers are lines of JSON on standard input and output. The process ends when its input
does, or after a while without a request; what it is doing then is stopped.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from fleet_agentpack.enact.backends.child import LARGEST_OUTPUT
from fleet_agentpack.enact.backends.dagger_messages import (
    CLEAN_S,
    CONNECT_S,
    RUNNER,
    START_S,
    Answer,
    Request,
)
from fleet_agentpack.enact.backends.dagger_session import LackError, Session

IDLE_S = 300.0
LONGEST_EXCERPT = 16 * 1024  # of what a build prints
T = TypeVar("T")


class Lines:
    """Lines of standard input, and whether there may be more."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        tell = asyncio.get_running_loop().call_soon_threadsafe
        threading.Thread(target=self._read, args=[tell], daemon=True).start()

    async def next(self) -> str:
        """The next one; empty where there is none, or none for too long."""
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._waiting.get(), IDLE_S)
        return ""

    def _read(self, tell: Callable[..., object]) -> None:
        for line in sys.stdin:
            tell(self._waiting.put_nowait, line)
        tell(self.ended.set)
        tell(self._waiting.put_nowait, "")
        time.sleep(CLEAN_S)
        os._exit(1)


class Server:
    """Answers requests, each task on a session of its own.

    An engine prunes nothing that a session has seen while that is open: after a task, the next
    session is opened, and prunes what the last one has left.
    """

    def __init__(self, dagger: Any, lines: Lines) -> None:
        self._dagger, self._lines = dagger, lines

    async def serve(self) -> None:
        """Answer until there are no more requests."""
        session: Session | None = await self._opened()
        say({"ready": True})
        while line := await self._lines.next():
            session = session or await self._opened()
            request: Request = json.loads(line)
            if answer := await self._unless_ended(self._answer(session, request)):
                say(answer)
            if request["kind"] != "image":
                session = await self._renewed(session)
        if session:
            await session.close()

    async def _answer(self, session: Session, request: Request) -> Answer:
        try:
            return await answered(session, request)
        except LackError as lack:
            return {"lacks": lack.part, "reason": str(lack)}
        except self._dagger.DaggerError as error:
            return {"lacks": "engine", "reason": f"the engine failed: {error}"[:4000]}

    async def _renewed(self, session: Session) -> Session | None:
        """The next session; None where the engine does not open one."""
        fresh = None
        with contextlib.suppress(self._dagger.DaggerError, OSError, LackError):
            fresh = await self._opened()
            await self._unless_ended(fresh.take_over(session))
        with contextlib.suppress(self._dagger.DaggerError, OSError):
            await session.close()
        if fresh:
            await fresh.prune()
        return fresh

    async def _unless_ended(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What comes of some work; it is stopped once nobody waits for it any more."""
        task = asyncio.ensure_future(work)
        waiting = asyncio.ensure_future(self._lines.ended.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        is_done = task.done()
        for each in (task, waiting):
            each.cancel()
        await asyncio.wait([task, waiting])
        return task.result() if is_done else None

    async def _opened(self) -> Session:
        seconds = CONNECT_S if RUNNER in os.environ else START_S
        watch = threading.Timer(seconds, give_up, [f"no answer within {seconds:.0f} s"])
        watch.daemon = True
        watch.start()
        async with contextlib.AsyncExitStack() as held:
            dag = await held.enter_async_context(self._dagger.Connection())
            await dag.version()
            watch.cancel()
            return Session(self._dagger, dag, held.pop_all())


async def answered(session: Session, request: Request) -> Answer:
    """The answer to one request. Raises `LackError`."""
    if request["kind"] == "image":
        return {"image": (await session.image(request["image"])).reference}
    if request["kind"] == "prune":  # as after everything else
        return {"code": 0}
    if request["kind"] == "build":
        ending, most = await session.build(request), LONGEST_EXCERPT
    else:
        ending, most = await session.run(request), LARGEST_OUTPUT
    return {
        "code": ending.code,
        "stdout": base64.b64encode(ending.stdout[-most:]).decode(),
        "stderr": base64.b64encode(ending.stderr[-most:]).decode(),
        "kept": list(ending.kept),
        "reason": ending.reason,
    }


def say(answer: Answer) -> None:
    """Write an answer."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def give_up(reason: str) -> NoReturn:
    """End, since there is no engine."""
    say({"lacks": "engine", "reason": f"no Dagger engine can be reached: {reason}"})
    os._exit(1)


async def serve(dagger: Any) -> None:
    """Connect and serve."""
    try:
        await Server(dagger, Lines()).serve()
    except (dagger.DaggerError, OSError) as error:
        give_up(str(error)[-2000:])


def main() -> int:
    """Serve until standard input ends."""
    # gql prefers httpx2 where it is installed, and the SDK hands it objects of httpx.
    sys.modules["httpx2"] = None  # type: ignore[assignment]
    asyncio.run(serve(importlib.import_module("dagger")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
