"""Where each tool keeps what a pack can hold: the areas that a target writes, read back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.manifest import Scope, TargetConfig
from fleet_agentpack.deploy.project import Project
from fleet_agentpack.deploy.targets import ALL
from fleet_agentpack.deploy.targets.target import Area, Target

Shape = Literal["one_file", "named_file", "taken_in", "files", "nested_files", "directories"]


@dataclass(frozen=True)
class Reading:
    """How to find the members of an area: by a name, or by an ending."""

    shape: Shape
    pattern: str = ""
    is_second_choice: bool = False  # for files that the place before could not take


_SKILLS = Reading("directories")
_COMMANDS = Reading("nested_files", ".md")
_BARE_COMMANDS = Reading("nested_files", ".md", is_second_choice=True)  # without front matter
_READINGS: dict[tuple[str, str], Reading] = {
    ("codex", "write_agents_global"): Reading("one_file", "AGENTS.md"),
    ("codex", "write_agents_repo_root"): Reading("one_file", "AGENTS.md"),
    ("codex", "write_user_prompts"): Reading("files", ".md"),
    ("codex", "write_user_skills"): _SKILLS,
    ("codex", "write_repo_skills"): _SKILLS,
    ("claude_code", "write_claude_md"): Reading("one_file", "CLAUDE.md"),
    ("claude_code", "write_user_commands"): _COMMANDS,
    ("claude_code", "write_repo_commands"): _COMMANDS,
    ("claude_code", "write_user_prompts"): _BARE_COMMANDS,
    ("claude_code", "write_repo_prompts"): _BARE_COMMANDS,
    ("claude_code", "write_claude_files"): Reading("taken_in", "CLAUDE.md .claude/CLAUDE.md"),
    ("claude_code", "write_user_skills"): _SKILLS,
    ("claude_code", "write_repo_skills"): _SKILLS,
    ("cursor", "write_rules"): Reading("nested_files", ".mdc"),
    ("cursor", "write_cursorrules"): Reading("named_file", ".cursorrules"),
    ("cursor", "write_commands"): _COMMANDS,
    ("vscode", "write_instructions"): Reading("one_file", "copilot-instructions.md"),
    ("vscode", "write_prompts"): Reading("files", ".prompt.md"),
    ("vscode", "write_rule_files"): Reading("nested_files", ".instructions.md"),
    ("agents", "write_user_skills"): _SKILLS,
    ("agents", "write_repo_skills"): _SKILLS,
    ("gemini", "write_gemini_md"): Reading("one_file", "GEMINI.md"),
    ("gemini", "write_commands"): Reading("nested_files", ".toml"),
}


@dataclass(frozen=True)
class Place:
    """A directory of a tool, and how to read what is in it."""

    target: str
    area: Area
    directory: str
    reading: Reading

    @property
    def scope(self) -> Scope:
        """Whose directory it is."""
        return self.area.scope


def places(
    home: Home,
    project: Project | None,
    configured: dict[str, TargetConfig],
    targets: tuple[str, ...],
    scopes: tuple[Scope, ...],
) -> Iterator[Place]:
    """Every place to look at, with the directories that the configuration names."""
    for target in ALL:
        if target.name not in targets:
            continue
        config = configured.get(target.name) or TargetConfig("files", "both")
        tops = {"user": target.user_dir(config, home), "project": project.root if project else ""}
        for area in target.areas:
            top = tops[area.scope].rstrip("/")
            reading = _READINGS.get((target.name, area.option))
            if top and area.scope in scopes and reading is not None:
                yield Place(target.name, area, f"{top}/{area.dir}".rstrip("/"), reading)


def unread_areas() -> list[tuple[str, str]]:
    """Areas that nobody can import from; a target that is added must say how it is read."""
    return [
        (target.name, area.option)
        for target in ALL
        for area in target.areas
        if (target.name, area.option) not in _READINGS
    ]


def target_called(name: str) -> Target:
    """A target by its name."""
    return next(target for target in ALL if target.name == name)
