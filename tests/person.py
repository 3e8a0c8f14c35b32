"""Someone at an MCP client who is asked, and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp_types import ElicitRequestFormParams, ElicitResult

YES = ElicitResult(action="accept", content={"agreed": True})
Answer = ElicitResult | Callable[[], Awaitable[ElicitResult]]


class Person:
    """Someone at the client: gives prepared answers and remembers what was shown."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.seen: list[ElicitRequestFormParams] = []

    async def __call__(self, _text: str, _kind: Any, params: Any, _context: Any) -> ElicitResult:
        return await self.answer(None, params)

    async def answer(self, _context: Any, params: Any) -> ElicitResult:
        """The same, as the SDK's own client asks for it."""
        self.seen.append(params)
        answer = self.answers.pop(0)
        return answer if isinstance(answer, ElicitResult) else await answer()
