"""Cursor: one rule file per instructions module, in the project."""

from __future__ import annotations

from collections.abc import Iterator

from fleet_agentpack.deploy.targets.contents import rules
from fleet_agentpack.deploy.targets.target import Area, Target, TargetContext


def areas(context: TargetContext) -> Iterator[Area]:
    """The project's rules directory."""
    if context.in_project("write_rules"):
        yield Area(context.project_dir(".cursor", "rules"), "instructions", rules)


TARGET = Target("cursor", areas, project_only=True, options={"write_rules": True})
