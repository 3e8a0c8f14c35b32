"""Claude Code: commands, and skills where asked for, for the user and the project."""

from __future__ import annotations

from collections.abc import Iterator

from fleet_agentpack.deploy.targets.contents import single_files, skills
from fleet_agentpack.deploy.targets.target import Area, Target, TargetContext


def areas(context: TargetContext) -> Iterator[Area]:
    """Skills are off unless their option says otherwise."""
    if context.user("write_user_commands"):
        yield Area(context.user_dir(".claude", "commands"), "command", single_files())
    if context.in_project("write_repo_commands"):
        yield Area(context.project_dir(".claude", "commands"), "command", single_files())
    if context.user("write_user_skills", default=False):
        yield Area(context.user_dir(".claude", "skills"), "skill", skills)
    if context.in_project("write_repo_skills", default=False):
        yield Area(context.project_dir(".claude", "skills"), "skill", skills)


TARGET = Target(
    "claude_code",
    areas,
    options={
        "write_repo_commands": True,
        "write_user_commands": True,
        "write_repo_skills": False,
        "write_user_skills": False,
    },
)
