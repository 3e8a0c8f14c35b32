"""Asks the person at the client, in both eras of the protocol, before a change is made."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import anyio
from fastmcp.dependencies import CurrentContext, Depends
from fastmcp.server.context import Context
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from fleet_agentpack.console.text import printable
from fleet_agentpack.kit.approval import (
    Group,
    NotApprovedError,
    PlanChangedError,
    Question,
    Refusal,
)
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.results import clean
from fleet_agentpack.settings import Ask
from fleet_agentpack.wire.call import in_thread
from fleet_agentpack.wire.provider import SERVICES, Services

ANSWER_S = 120.0  # how long a person has; clients end a call soon after that
ROUNDS = 3  # how often the same call asks, if what it would do changes meanwhile
NAMES = 15  # shown in all, and at least three of each group
LONGEST = 160  # of a line
ANSWER, AGREED = "approve", "agreed"

T = TypeVar("T")
Unanswered = InputRequiredResult  # a tool returns it as it is; the client asks and calls again
Propose = Callable[[], Awaitable[Question]]
Act = Callable[[str | None], Awaitable[T]]  # gets the digest of what was approved, if asked for


class Approval:
    """The approval of one tool call: asked for at most once for exactly what is then done."""

    def __init__(self, context: Context, ask: Ask) -> None:
        self._context = context
        self._ask = ask

    async def carry_out(self, propose: Propose, act: Act[T]) -> T | Unanswered:
        """Do something, if nobody has to agree to it or the person at the client does.

        `propose` looks and changes nothing. `act` is given the digest of what was proposed, and
        raises `PlanChangedError` before it changes anything if it would now do something else.
        What comes back without having acted is the question itself; the client answers by calling
        again. Raises `NotApprovedError`.
        """
        if self._ask == "never" or (self._ask != "require" and not self._can_ask):
            return await act(None)
        for _ in range(ROUNDS):
            question = await propose()
            if self._concerns_a_person(question):
                unanswered = await self._ask_about(question)
                if unanswered is not None:
                    return unanswered
            try:
                return await act(question.digest)
            except PlanChangedError:
                continue
        raise NotApprovedError(Refusal.UNSTABLE)

    @property
    def asks(self) -> bool:
        """Whether a person is asked about risky things, and can be."""
        return self._ask != "never" and self._can_ask

    def _concerns_a_person(self, question: Question) -> bool:
        return bool(question.groups) if self._ask == "always" else question.risky

    @property
    def _can_ask(self) -> bool:
        """Whether the client shows forms: `elicitation: {}` says so, `url` alone does not."""
        session = self._context.session
        declared = session.client_capabilities
        elicitation = declared and declared.elicitation
        if not elicitation or (elicitation.url is not None and elicitation.form is None):
            return False
        return self._is_modern or session.can_send_request

    @property
    def _is_modern(self) -> bool:
        return self._context.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def _ask_about(self, question: Question) -> Unanswered | None:
        """None once the person has agreed, else the question for the client to bring back."""
        if not self._can_ask:
            raise NotApprovedError(Refusal.NOBODY)
        form = _form(question)
        if not self._is_modern:
            _check(await self._answer(form))
            return None
        asked = _Asked.read(self._context.request_state)
        answer = (self._context.input_responses or {}).get(ANSWER)
        if asked.digest != question.digest or not isinstance(answer, ElicitResult):
            if asked.times == ROUNDS:
                raise NotApprovedError(Refusal.UNSTABLE)
            state = _Asked(question.digest, asked.times + 1, time.time())
            requests = {ANSWER: ElicitRequest(params=form)}
            return Unanswered(input_requests=requests, request_state=state.write())
        if time.time() - asked.at > ANSWER_S:
            raise NotApprovedError(Refusal.UNANSWERED)
        _check(answer)
        return None

    async def _answer(self, form: ElicitRequestFormParams) -> ElicitResult:
        """What the person says to a question that is sent while the call waits."""
        session, call = self._context.session, self._context.request_id
        try:
            with anyio.fail_after(ANSWER_S):
                return await session.elicit_form(form.message, form.requested_schema, call)
        except TimeoutError as error:
            raise NotApprovedError(Refusal.UNANSWERED) from error
        except (MCPError, ValidationError) as error:  # the client is gone, or cannot ask after all
            raise NotApprovedError(Refusal.CLOSED) from error


class _Asked(NamedTuple):
    """What a client brings back with its answer; sealed on the wire and bound to this very call."""

    digest: str = ""
    times: int = 0
    at: float = 0.0

    def write(self) -> str:
        return f"{self.digest} {self.times} {self.at}"

    @classmethod
    def read(cls, state: str | None) -> _Asked:
        if state is None:
            return cls()
        digest, times, at = state.split()
        return cls(digest, int(times), float(at))


def approval_of(context: Context = CurrentContext()) -> Approval:
    """The approval of the call under way."""
    services: Services = context.lifespan_context[SERVICES]
    return Approval(context, services.settings.ask)


async def remedied(
    error: AppError, context: Context, again: Callable[[], Awaitable[ToolResult]]
) -> ToolResult | None:
    """A refused call's result once the person has agreed to what it lacked; None if not asked.

    Raises `NotApprovedError`.
    """
    remedy, approval = error.remedy, approval_of(context)
    if remedy is None or not approval.asks:
        return None

    async def propose() -> Question:
        return remedy.question

    async def act(_: str | None) -> ToolResult:
        await in_thread(remedy.carry_out)()
        return await again()

    result = await approval.carry_out(propose, act)
    return InputRequiredToolResult(result) if isinstance(result, Unanswered) else result


def CurrentApproval() -> Approval:
    """A tool's parameter default that brings the call's `Approval`."""
    return Depends(approval_of)


def _check(answer: ElicitResult) -> None:
    """Only a form that was sent with the box ticked is a yes. Raises `NotApprovedError`."""
    if answer.action == "cancel":
        raise NotApprovedError(Refusal.CLOSED)
    if answer.action != "accept" or (answer.content or {}).get(AGREED) is not True:
        raise NotApprovedError(Refusal.DECLINED)


def _form(question: Question) -> ElicitRequestFormParams:
    agreed = {"type": "boolean", "title": question.agree, "default": False}
    schema = {"type": "object", "properties": {AGREED: agreed}, "required": [AGREED]}
    return ElicitRequestFormParams(message=_text(question), requested_schema=schema)


def _text(question: Question) -> str:
    """The question as a person reads it: a sentence, then what is touched, within bounds."""
    share = max(3, NAMES // max(1, len(question.groups)))
    return "\n".join([_line(question.summary), *_listed(question.groups, share)])


def _listed(groups: Sequence[Group], share: int) -> Iterator[str]:
    for group in groups:
        yield f"{group.title}:"
        yield from (f"  {_line(name)}" for name in group.names[:share])
        if len(group.names) > share:
            yield f"  … and {len(group.names) - share} more"


def _line(text: str) -> str:
    """Text from outside on one line, not too long, its control characters visible."""
    shown = printable(clean(text)).replace("\n", "\\n").replace("\t", "\\t")
    half = LONGEST // 2
    return shown if len(shown) <= LONGEST else f"{shown[:half]}…{shown[-half:]}"
