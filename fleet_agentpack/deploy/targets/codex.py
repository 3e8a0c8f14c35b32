"""Codex: AGENTS.md and skills for the user and the project, prompts for the user."""

from __future__ import annotations

from collections.abc import Iterator

from fleet_agentpack.deploy.targets.contents import combined, single_files, skills
from fleet_agentpack.deploy.targets.target import Area, Target, TargetContext


def areas(context: TargetContext) -> Iterator[Area]:
    """The option names its home first, then `CODEX_HOME`, then `~/.codex`."""
    given = context.text("codex_home") or context.home.environ.get("CODEX_HOME", "").strip()
    home = context.home.expand(given or "~/.codex").rstrip("/")
    agents = combined("AGENTS.md")
    if context.user("write_agents_global"):
        yield Area(home or "/", "instructions", agents, scan_extras=False)
    if context.user("write_user_prompts"):
        yield Area(f"{home}/prompts", "prompt", single_files())
    if context.user("write_user_skills"):
        yield Area(f"{home}/skills", "skill", skills)
    if context.in_project("write_agents_repo_root"):
        yield Area(context.project_dir(), "instructions", agents, scan_extras=False)
    if context.in_project("write_repo_skills"):
        yield Area(context.project_dir(".codex", "skills"), "skill", skills)


TARGET = Target(
    "codex",
    areas,
    checks=("instructions", "skill"),
    options={
        "codex_home": "~/.codex",
        "write_repo_skills": True,
        "write_user_skills": True,
        "write_user_prompts": True,
        "write_agents_global": True,
        "write_agents_repo_root": True,
    },
)
