"""VS Code: Copilot instructions and prompt files, in the project."""

from __future__ import annotations

from collections.abc import Iterator

from fleet_agentpack.deploy.targets.contents import combined, single_files
from fleet_agentpack.deploy.targets.target import Area, Target, TargetContext

_SUFFIX = ".prompt.md"


def areas(context: TargetContext) -> Iterator[Area]:
    """The project's `.github` directory."""
    if context.in_project("write_instructions"):
        contents = combined("copilot-instructions.md")
        yield Area(context.project_dir(".github"), "instructions", contents, scan_extras=False)
    if context.in_project("write_prompts"):
        yield Area(context.project_dir(".github", "prompts"), "prompt", single_files(prompt_name))


def prompt_name(name: str) -> str:
    """VS Code finds prompts by their double ending."""
    return name if name.endswith(_SUFFIX) else name.removesuffix(".md") + _SUFFIX


TARGET = Target(
    "vscode",
    areas,
    project_only=True,
    checks=("instructions",),
    options={"write_instructions": True, "write_prompts": True},
)
