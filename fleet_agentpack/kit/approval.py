"""What a person is asked to agree to; who asks, and how, is the wire's business."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleet_agentpack.kit.results import jsonable, to_text


@dataclass(frozen=True)
class Group:
    """Files, or agents, that the same would happen to."""

    title: str
    names: Sequence[str]


@dataclass(frozen=True)
class Question:
    """A change before it is made: what a person is shown, and the digest of exactly this."""

    summary: str
    groups: Sequence[Group]  # none when nothing would change
    agree: str  # what saying yes means, in a few words
    risky: bool  # whether something would be lost or taken over
    digest: str

    def check(self, approved: str) -> None:
        """Raises `PlanChangedError` if something else was approved."""
        if approved != self.digest:
            raise PlanChangedError


@dataclass(frozen=True)
class Remedy:
    """What a person may agree to so that a call that was refused succeeds."""

    question: Question
    carry_out: Callable[[], object]


class PlanChangedError(Exception):
    """What would be done now is not what was approved."""


class Refusal(enum.Enum):
    """Why nobody has said yes; the value is the reason in one word, `told` a sentence."""

    DECLINED = "declined"
    CLOSED = "closed"
    UNANSWERED = "unanswered"
    NOBODY = "unavailable"
    UNSTABLE = "plan_unstable"

    @property
    def told(self) -> str:
        """What happened, and what to do next."""
        return _TOLD[self]


_TOLD = {
    Refusal.DECLINED: "the person at the client said no; ask them what they want instead",
    Refusal.CLOSED: "the client closed the question without an answer, as it does where nobody is"
    " there to answer; ask the person, then call again",
    Refusal.UNANSWERED: "the person at the client was asked and did not answer in time;"
    " call again when they are there",
    Refusal.NOBODY: "a person has to agree to this, and this client cannot ask one; leave it to"
    " the person, on the command line or in a client that shows forms",
    Refusal.UNSTABLE: "what would be done kept changing while the person was asked;"
    " call again when nothing else is changing it",
}


class NotApprovedError(Exception):
    """A person was to agree, and has not. The tool's domain makes its own error of it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.told)
        self.refusal = refusal


def digest_of(*parts: object) -> str:
    """A digest of what would be done, down to the contents."""
    return hashlib.sha256(to_text(jsonable(parts)).encode()).hexdigest()
