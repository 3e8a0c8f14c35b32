"""A model that says one sentence, and keeps what it was asked."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tests.loopback_model import Answer, LoopbackModel, listening, text_block

SAYS = "Done."


class ScriptedModel(LoopbackModel):
    """Every request gets the same answer."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []

    def for_claude(self, request: dict[str, Any]) -> Answer:
        """The sentence."""
        self.requests.append(request)
        return text_block(SAYS)

    def tools_offered(self) -> list[list[str]]:
        """The names of the tools in each request that came with any."""
        offered = [request["tools"] for request in self.requests if request.get("tools")]
        return [[tool["name"] for tool in tools] for tools in offered]


def scripted_model() -> AbstractContextManager[ScriptedModel]:
    """A model that listens until the block ends."""
    return listening(ScriptedModel())
