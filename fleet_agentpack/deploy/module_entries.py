"""`add` and `remove`: modules as entries of `agentpack.yaml`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

from fleet_agentpack.deploy import manifest_file
from fleet_agentpack.deploy.errors import DeployError, io_errors
from fleet_agentpack.deploy.manifest import FILE_NAME, Manifest
from fleet_agentpack.deploy.manifest_edit import (
    GitEntry,
    LocalEntry,
    ManifestEdit,
    ModuleEntry,
    SourceEntry,
    edited,
)
from fleet_agentpack.deploy.model import read_file
from fleet_agentpack.deploy.targets import OPTIONS, PROJECT_ONLY
from fleet_agentpack.deploy.upkeep_results import ModuleChanged
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN


@dataclass(frozen=True)
class NewEntry:
    """A module to add, as it is written on the command line."""

    type: str
    source: str  # local:PATH or git:URL#ref=…&subdir=…
    id: str = ""
    tags: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    scope: str = ""

    def entry(self, manifest: Manifest) -> ModuleEntry:
        """Its entry; with a tag of the default profile, unless others are given."""
        source, name = _source(self.source)
        return ModuleEntry(
            id=self.id or f"{self.type}:{name}",
            type=self.type,
            scope=self.scope or UNKNOWN,
            tags=self.tags or manifest.profile("default").include_tags[:1],
            targets=self.targets or UNKNOWN,
            source=source,
        )


def add(repo: Path, entry: NewEntry) -> ModuleChanged:
    """Add a module at the end of the manifest. Raises `DeployError` for what is not valid."""
    manifest = manifest_file.load(repo, OPTIONS, PROJECT_ONLY)
    made = entry.entry(manifest)
    local = made.source.local_path
    if isinstance(local, LocalEntry) and not (repo / local.path).exists():
        raise DeployError(
            "E_INVALID_ARGUMENTS",
            f"{repo / local.path} does not exist; a local path is one in the repo {repo}",
        )
    return _write(repo, ManifestEdit({}, [made]), made.id)


def remove(repo: Path, module_id: str) -> ModuleChanged:
    """Take a module out of the manifest; its files stay in the repo."""
    manifest = manifest_file.load(repo, OPTIONS, PROJECT_ONLY)
    if module_id not in {module.id for module in manifest.modules}:
        raise no_module(module_id, manifest)
    return _write(repo, ManifestEdit({}, removed=frozenset({module_id})), module_id)


def no_module(module_id: str, manifest: Manifest) -> DeployError:
    """The refusal of a module that there is not."""
    ids = sorted(module.id for module in manifest.modules)
    return DeployError.because(
        "module_not_found",
        f"there is no module {module_id}; the pack has {', '.join(ids[:20]) or 'none'}",
        module_id=module_id,
    )


def _write(repo: Path, edit: ManifestEdit, module_id: str) -> ModuleChanged:
    path = repo / FILE_NAME
    text = edited(read_file(str(path)).decode("utf-8"), edit)
    manifest_file.check(path, text, OPTIONS, PROJECT_ONLY)
    with io_errors(path, "write"):
        write_atomic(path, text)
    return ModuleChanged(str(path), path.as_posix(), module_id)


def _source(text: str) -> tuple[SourceEntry, str]:
    """A source as the manifest has it, and the name that it suggests."""
    kind, _, rest = text.partition(":")
    if kind == "local" and rest:
        return SourceEntry(local_path=LocalEntry(rest)), Path(rest).stem
    url, _, query = rest.partition("#")
    options = {name: values[-1] for name, values in parse_qs(query).items()}
    if kind != "git" or not url or not options.keys() <= {"ref", "subdir", "shallow"}:
        raise DeployError(
            "E_INVALID_ARGUMENTS",
            f"source {text!r}: write local:PATH, or git:URL#ref=REF&subdir=DIR",
        )
    shallow = options["shallow"] in ("true", "1") if "shallow" in options else UNKNOWN
    ref, subdir = options.get("ref", UNKNOWN), options.get("subdir", UNKNOWN)
    last = options.get("subdir") or url.rstrip("/").removesuffix(".git")
    made = SourceEntry(git=GitEntry(url, ref, subdir, shallow))
    return made, os.path.basename(last.rstrip("/"))
