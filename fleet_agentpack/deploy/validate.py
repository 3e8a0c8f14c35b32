"""What a module of each type must look like with its overlays applied."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.manifest import Module
from fleet_agentpack.deploy.model import Blob
from fleet_agentpack.deploy.trees import Tree
from fleet_agentpack.kit import yaml12

INSTRUCTIONS = "AGENTS.md"
TOML = ".toml"
# Instructions in a tool's own format.
_RULE_FILES = {
    "claude_code": (".md",),
    "cursor": (".mdc", ".cursorrules"),
    "vscode": (".instructions.md",),
}

_SKILL_FIELDS = ("name", "description")
_PLAIN_LINE = re.compile(r"([A-Za-z][A-Za-z0-9_-]*): ([A-Za-z][A-Za-z0-9 ,.;()/_-]*)\Z")
_OPENING = re.compile(r"---\r?\n")
_CLOSING = re.compile(r"\n---\r?(?:\n|\Z)")
_NOT_TEXT = ("true", "false", "null")


def validate(module: Module, tree: Tree) -> None:
    """Raises `DeployError` when a module lacks what its type needs."""
    check = {
        "instructions": _instructions,
        "skill": _skill,
        "prompt": _prompt,
        "command": _command,
    }[module.type]
    check(module, tree)


def relevant(module: Module, tree: Tree) -> tuple[str, ...]:
    """The part of a tree that the verdict depends on, as hashes."""
    if module.type == "skill":
        return ("skill", tree["SKILL.md"].sha256) if "SKILL.md" in tree else ("skill",)
    return (module.type, *sorted(f"{name} {blob.sha256}" for name, blob in tree.items()))


def only_file(tree: Tree) -> tuple[str, Blob]:
    """The name and content of a prompt or command."""
    ((path, blob),) = tree.items()
    return path.rpartition("/")[2], blob


def _instructions(module: Module, tree: Tree) -> None:
    if INSTRUCTIONS in tree:
        return
    endings = [_RULE_FILES.get(name) for name in module.targets]
    known = tuple(ending for each in endings if each for ending in each)
    if not known or not all(endings) or not tree or not all(n.endswith(known) for n in tree):
        raise _unusable(
            module,
            f"must have an {INSTRUCTIONS} file at its root, or only rule files for the targets that"
            " it names (claude_code: *.md, cursor: *.mdc, vscode: *.instructions.md)",
        )


def _prompt(module: Module, tree: Tree) -> None:
    names = sorted(tree)
    if len(names) != 1 or not names[0].endswith(".md") or names[0].rpartition("/")[2] == ".md":
        found = f"found {len(names)}: {', '.join(names[:4])}"
        raise _unusable(module, f"must be exactly one *.md file; {found}")


def _command(module: Module, tree: Tree) -> None:
    if len(tree) == 1 and module.targets == ("gemini",) and next(iter(tree)).endswith(TOML):
        _toml_command(module, tree)
        return
    _prompt(module, tree)
    name, blob = next(iter(tree.items()))
    text = _text(module, name, blob)
    try:
        fields = front_matter(text)
    except ValueError as error:
        raise _unusable(module, f"{name}: {error}") from error
    if not _filled(fields.get("description")):
        raise _unusable(module, f"{name}: the front matter needs a `description`")
    runs_bash = "!bash" in text or "!`bash`" in text
    if runs_bash and not _allows_bash(fields.get("allowed-tools")):
        raise _unusable(module, f"{name}: uses bash, so `allowed-tools` must list Bash(…)")


def _toml_command(module: Module, tree: Tree) -> None:
    name, blob = next(iter(tree.items()))
    try:
        fields = tomllib.loads(_text(module, name, blob))
    except ValueError as error:
        raise _unusable(module, f"{name}: {error}") from error
    if not _filled(fields.get("prompt")):
        raise _unusable(module, f"{name}: a command for Gemini needs a `prompt`")


def _skill(module: Module, tree: Tree) -> None:
    if "SKILL.md" not in tree:
        raise _bad_skill(module, "must have a SKILL.md file at its root", missing="SKILL.md")
    text = _text(module, "SKILL.md", tree["SKILL.md"])
    try:
        fields = front_matter(text)
    except ValueError as error:
        raise _bad_skill(
            module,
            f"SKILL.md: {error}",
            error=str(error),
            required_fields=list(_SKILL_FIELDS),
        ) from error
    for name in _SKILL_FIELDS:
        if not _filled(fields.get(name)):
            raise _bad_skill(
                module,
                f"SKILL.md: the front matter needs a `{name}` that is not empty",
                field=name,
                expected="non-empty string",
                required_fields=list(_SKILL_FIELDS),
            )


def front_matter(text: str) -> dict[Any, Any]:
    """The mapping between the `---` fences at the start. Raises `ValueError`."""
    opening = _OPENING.match(text)
    if opening is None:
        raise ValueError("the front matter is missing: the first line must be ---")
    closing = _CLOSING.search(text, opening.end() - 1)
    if closing is None:
        raise ValueError("the front matter has no closing line ---")
    header = text[opening.end() : closing.start() + 1]
    found = _simple(header.split("\n")[:-1]) or yaml12.load(header)
    if not isinstance(found, dict):
        raise ValueError("the front matter must be a mapping")
    return found


def _simple(lines: list[str]) -> dict[str, str] | None:
    """The usual header, plain text after plain keys, read without the cost of a YAML parser."""
    matches = [_PLAIN_LINE.match(line) for line in lines]
    found = {match[1]: match[2].rstrip() for match in matches if match}
    if len(found) != len(lines) or any(value.lower() in _NOT_TEXT for value in found.values()):
        return None
    return found


def _text(module: Module, name: str, blob: Blob) -> str:
    try:
        return blob.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unusable(module, f"{name} is not UTF-8 text") from error


def _filled(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _allows_bash(value: Any) -> bool:
    if isinstance(value, list):
        return any("Bash(" in item for item in value if isinstance(item, str))
    return isinstance(value, str) and "Bash(" in value


def _unusable(module: Module, problem: str) -> DeployError:
    message = f"{module.type} module {module.id} {problem}"
    return DeployError.because("module_invalid", message, module_id=module.id)


def _bad_skill(module: Module, problem: str, **details: Any) -> DeployError:
    return DeployError.config_invalid(
        f"skill module {module.id}: {problem}", module_id=module.id, path="SKILL.md", **details
    )
