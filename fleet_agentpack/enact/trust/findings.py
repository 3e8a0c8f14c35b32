"""What the registry last said of installed tools, and when: facts, judged by today's policy."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.trust.identity import Signer
from fleet_agentpack.enact.trust.state_file import Content, StateFile
from fleet_agentpack.kit.results import jsonable
from fleet_agentpack.kit.shapes import objects


@dataclass(frozen=True)
class Finding:
    """What the registry said of one installed bundle."""

    digest: str
    checked_at: float
    auditors: tuple[str, ...] = ()  # whom the user trusted then; signers count for these only
    signers: tuple[Signer, ...] = ()
    withdrawn: str = ""  # in which words, if it was
    unreadable: str = ""  # which attestation could not be read, and why

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Finding:
        """A stored finding. Raises `ValueError`, `KeyError` or `TypeError`."""
        return cls(
            str(row["digest"]),
            float(row["checked_at"]),
            tuple(map(str, row["auditors"])),
            tuple(map(Signer.from_json, objects(row["signers"]))),
            str(row["withdrawn"]),
            str(row["unreadable"]),
        )


@dataclass(frozen=True)
class Attempt:
    """When the registry was last asked, and what it did not tell."""

    tried_at: float = 0.0
    reached: bool = True
    problem: str = ""


class Findings:
    """The findings of one user, by `name@version`."""

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path)

    def of(self, label: str, digest: str) -> Finding | None:
        """What was found about exactly these bytes. Raises `EnactError` for a corrupt file."""
        with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
            found = Finding.from_json(self._file.read()["tools"][label])
            return found if found.digest == digest else None
        return None  # or one of another release, which the next check replaces

    def last_attempt(self) -> Attempt:
        """When all tools were last looked at."""
        return _attempt(self._file.read())

    def claim(self, attempt: Attempt, after: float) -> bool:
        """Record an attempt, unless another process has begun one after that time."""
        begun = self._file.change(
            lambda known: (
                known if _attempt(known).tried_at > after else {**known, **jsonable(attempt)}
            )
        )
        return begun and self.last_attempt() == attempt

    def end(self, problem: str = "", *, reached: bool = True) -> None:
        """Record how the attempt under way went."""
        ended = partial(replace, reached=reached, problem=problem)
        self._file.change(lambda known: {**known, **jsonable(ended(_attempt(known)))})

    def keep(self, label: str, finding: Finding) -> None:
        """Record what was found."""
        row = jsonable(finding)
        self._file.change(
            lambda known: {**known, "tools": {**(known.get("tools") or {}), label: row}}
        )


def _attempt(known: Content) -> Attempt:
    tried = known.get("tried_at")
    at = float(tried) if isinstance(tried, int | float) else 0.0
    return Attempt(at, known.get("reached") is not False, str(known.get("problem", "")))
