"""The plan that each session was shown last, so that an apply which differs from it says so."""

from __future__ import annotations

from dataclasses import dataclass

from fleet_agentpack.deploy.results import PlanData

_SESSIONS = 256


@dataclass(frozen=True)
class _Shown:
    """As much of a plan as is worth keeping."""

    id: str
    counts: str

    @classmethod
    def of(cls, plan: PlanData) -> _Shown:
        found = plan.summary
        return cls(plan.plan_id, f"+{found.create} ~{found.update} -{found.delete}")


class PlanMemory:
    """One plan per session; of too many sessions the oldest are forgotten."""

    def __init__(self) -> None:
        self._shown: dict[str | None, _Shown] = {}

    def show(self, session: str | None, plan: PlanData) -> None:
        """Remember what a session was shown."""
        self._shown.pop(session, None)
        self._shown[session] = _Shown.of(plan)
        while len(self._shown) > _SESSIONS:
            del self._shown[next(iter(self._shown))]

    def differences(self, session: str | None, plan: PlanData) -> list[str]:
        """A warning when a session applies something else than it was shown; asked once."""
        shown, now = self._shown.pop(session, None), _Shown.of(plan)
        if shown is None or shown == now:
            return []
        return [
            f"this is not the plan that was shown last: that was {shown.id} ({shown.counts}), this"
            f" is {now.id} ({now.counts})"
        ]
