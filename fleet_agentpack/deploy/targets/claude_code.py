"""Claude Code: commands, and skills where asked for, for the user and the project."""

from __future__ import annotations

from collections.abc import Iterator

from fleet_agentpack.deploy.targets.contents import single_files, skills
from fleet_agentpack.deploy.targets.target import Area, Scene, Target


def areas(scene: Scene) -> Iterator[Area]:
    """Skills are off unless their option says otherwise."""
    if scene.user("write_user_commands"):
        yield Area(scene.user_dir(".claude", "commands"), "command", single_files())
    if scene.in_project("write_repo_commands"):
        yield Area(scene.project_dir(".claude", "commands"), "command", single_files())
    if scene.user("write_user_skills", default=False):
        yield Area(scene.user_dir(".claude", "skills"), "skill", skills)
    if scene.in_project("write_repo_skills", default=False):
        yield Area(scene.project_dir(".claude", "skills"), "skill", skills)


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
