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
    allow_mass_delete: bool = False  # a person has said so: on the command line, or in a form
    dry_run: bool = False
    only: tuple[str, ...] = ()
    session: str | None = None  # whose last plan an apply is compared with
