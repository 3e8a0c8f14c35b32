"""What a deploy command was asked for; without imports, because the tools load it at start-up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """The arguments of a command, with the contract's defaults."""

    repo: str | None = None
    profile: str = "default"
    target: str = "all"
    machine: str | None = None
    adopt: bool = False
    dry_run: bool = False
    only: tuple[str, ...] = ()
