"""`init`: a small config repo whose modules are ready to deploy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fleet_agentpack.deploy.doctor import IGNORED, add_lines
from fleet_agentpack.deploy.errors import DeployError, io_errors
from fleet_agentpack.deploy.home import Home, git
from fleet_agentpack.deploy.manifest import BASE_TAG, FILE_NAME, TargetConfig
from fleet_agentpack.deploy.manifest_edit import LocalEntry, ModuleEntry, SourceEntry
from fleet_agentpack.deploy.pack import ID_FILE, new_id
from fleet_agentpack.deploy.results import GitSetup, Initialized
from fleet_agentpack.deploy.targets import ALL
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN, jsonable

_FILES = {
    "modules/instructions/base/AGENTS.md": """\
# Working agreement

- Read the code around a change before making it.
- Keep changes small, and run the tests before calling one done.
- Say what you could not check.
""",
    "modules/prompts/draftpr.md": """\
Draft a pull request for the changes on this branch: a title of at most 70 characters, why the
change is needed, what it does, and how it was tested.
""",
    "modules/claude-commands/ap-plan.md": """\
---
description: Show what agentpack would deploy
---
Call the `plan` tool of the agentpack server, then sum up what would be created, updated and
deleted, by target. Do not apply anything.
""",
}

_SWITCHED_ON = {"claude_code": {"write_claude_md": True}}

_MODULES = tuple(
    ModuleEntry(
        id=module_id,
        type=kind,
        tags=[BASE_TAG],
        source=SourceEntry(local_path=LocalEntry(path)),
    )
    for module_id, kind, path in (
        ("instructions:base", "instructions", "modules/instructions/base"),
        ("prompt:draftpr", "prompt", "modules/prompts/draftpr.md"),
        ("command:ap-plan", "command", "modules/claude-commands/ap-plan.md"),
    )
)


def make_starter(home: Home, repo: Path, *, with_git: bool) -> Initialized:
    """Write the files that do not exist yet; existing ones are not changed."""
    files = {FILE_NAME: new_manifest(_MODULES), str(ID_FILE): new_id(), **_FILES}
    for name, text in files.items():
        path = repo / name
        with io_errors(path, "write"):
            if not path.exists():
                write_atomic(path, text)
    git = _git_repository(home, repo) if with_git else UNKNOWN
    return Initialized(str(repo), repo.as_posix(), git)


def starter_targets(*, with_places: bool = True) -> dict[str, TargetConfig]:
    """The targets of a new repo, each with all its options; those that name places on request."""
    return {
        target.name: TargetConfig(
            "files",
            "project" if target.project_only else "both",
            {
                option: value
                for option, value in target.default_options.items()
                if with_places or option not in target.options
            }
            | _SWITCHED_ON.get(target.name, {}),
        )
        for target in ALL
        if target.original
    }


def new_manifest(modules: Sequence[ModuleEntry] = (), *, with_places: bool = True) -> str:
    """The text of a new `agentpack.yaml`."""
    targets = starter_targets(with_places=with_places)
    document = {
        "version": 1,
        "profiles": {"default": {"include_tags": [BASE_TAG]}},
        "targets": {name: asdict(config) for name, config in targets.items()},
        "modules": list(modules),
    }
    return yaml12.dump(jsonable(document))


def _git_repository(home: Home, repo: Path) -> GitSetup:
    initialized = not (repo / ".git").exists()
    if initialized:
        done = git(home, repo, "init", "--quiet")
        if done.status != 0:
            raise DeployError.because("git_failed", f"git init failed: {done.complaint}")
    ignore = repo / ".gitignore"
    updated = add_lines(ignore, [IGNORED, ".DS_Store"])
    return GitSetup(str(ignore), ignore.as_posix(), updated, initialized)
