"""One command's view of a config repo: its manifest, modules, targets and desired state."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet_agentpack.deploy import lockfile, manifest
from fleet_agentpack.deploy.desired import Desired, merge
from fleet_agentpack.deploy.disk import Reader
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.gitstore import GitStore
from fleet_agentpack.deploy.home import Home, find_project, machine_id
from fleet_agentpack.deploy.listing import Lister
from fleet_agentpack.deploy.manifest import Manifest, Module
from fleet_agentpack.deploy.model import MANIFEST_PREFIX, FileState, Output, Root
from fleet_agentpack.deploy.modules import Modules
from fleet_agentpack.deploy.overlays import Overlays
from fleet_agentpack.deploy.recorded import read_records
from fleet_agentpack.deploy.repo_cache import KnownDesired, RepoCache
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.snapshots import SnapshotStore
from fleet_agentpack.deploy.survey import Survey, survey
from fleet_agentpack.deploy.targets import BY_NAME, NAMES, PROJECT_ONLY
from fleet_agentpack.deploy.targets.target import Area
from fleet_agentpack.deploy.trees import Tree
from fleet_agentpack.kit.swap import TEMPORARY_PREFIX

_UNSCANNED = frozenset({".git", ".agentpack"})


class Workspace:
    """The config repo as a command sees it; made once per call."""

    def __init__(
        self, home: Home, request: Request, cache: RepoCache, snapshots: SnapshotStore
    ) -> None:
        """Read the configuration. Raises `DeployError`."""
        cache.forget_old_contents()
        self.home = home
        self.request = request
        self.cache = cache
        self.snapshots = snapshots
        self.repo = home.repo(request.repo)
        if request.target not in ("all", *NAMES):
            raise DeployError.target_filter(request.target, ("all", *NAMES))
        self.manifest = manifest.load(self.repo, NAMES, PROJECT_ONLY, cache.manifest)
        self.targets = _targets(self.manifest, request.target)
        self.project = find_project(home, cache.project)
        self.machine = machine_id(home, request.machine)
        self.overlays = Overlays(home, self.repo, self.machine, self.project)
        pinned, self._warnings = _lockfile(self.repo)
        self._modules = Modules(self.repo, GitStore(home), pinned, self.overlays, cache)

    def desired(self) -> Desired:
        """What the chosen targets should hold. Raises `DeployError`."""
        chosen = self.manifest.select(self.request.profile)
        areas = [
            place
            for name in self.targets
            for place in BY_NAME[name].roots(self.manifest.targets[name], self.home, self.project)
        ]
        wanted = {(root.target, area.takes) for root, area in areas}
        wanted |= {(target, kind) for target in self.targets for kind in BY_NAME[target].checks}
        modules = {
            module.id: self._modules.read(module)
            for module in chosen
            if any(module.goes_to(target) and kind == module.type for target, kind in wanted)
        }
        trees = {module_id: files.tree for module_id, files in modules.items()}
        key = (
            [(root, area.takes) for root, area in areas],
            [(module.id, module.type, module.targets) for module in chosen],
        )
        known = self.cache.desired.get(self.request.target)
        if known is None or not known.is_current(key, trees):
            known = KnownDesired(key, trees, merge(self._outputs(areas, chosen, trees)))
            self.cache.desired[self.request.target] = known
        about_modules = [text for files in modules.values() for text in files.warnings]
        return replace(known.desired, warnings=(*self._warnings, *about_modules))

    def survey(self, reader: Reader) -> Survey:
        """Look at everything that matters to the chosen targets."""
        desired = self.desired()
        recorded = read_records(desired.roots, self.snapshots, self.cache.records)
        return survey(desired, recorded, reader)

    def _outputs(
        self, areas: list[tuple[Root, Area]], chosen: list[Module], trees: dict[str, Tree]
    ) -> list[tuple[Root, Iterable[Output]]]:
        outputs = []
        for root, area in areas:
            taken = [
                (module, trees[module.id])
                for module in chosen
                if module.type == area.takes and module.goes_to(root.target)
            ]
            outputs.append((root, area.contents(root, taken, self.cache.made)))
        return outputs


def extras(found: Survey, reader: Reader, lister: Lister) -> Iterator[tuple[Root, str, FileState]]:
    """Files in scanned roots that are neither desired nor recorded, per root by path."""
    for root in found.roots:
        record = found.recorded.by_root[root]
        if root.scan_extras and record.usable:
            known = found.desired.outputs.get(root.target, {})
            paths = [
                path
                for path in _unknown_files(root.dir, known, lister, reader.directories)
                if path not in record.files and not path.rpartition("/")[2].startswith(_OWN_FILES)
            ]
            paths.sort(key=lambda path: path.split("/"))
            for path, state in reader.states(paths).items():
                if state is not None:
                    yield root, path, state


def _unknown_files(
    top: str, known: Mapping[str, Any], lister: Lister, seen: Mapping[str, os.stat_result]
) -> Iterator[str]:
    """The regular files below a directory that are not known already."""
    pending = [top]
    while pending:
        directory = pending.pop()
        try:
            listing = lister.list(directory, seen.get(directory))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise DeployError.io(directory, error, "read") from error
        yield from [path for _, path in listing.files if path not in known]
        pending += [path for name, path in listing.directories if name not in _UNSCANNED]


_OWN_FILES = (f"{MANIFEST_PREFIX}.", TEMPORARY_PREFIX)


def _targets(found: Manifest, wanted: str) -> list[str]:
    if wanted == "all":
        return sorted(found.targets)
    if wanted not in found.targets:
        raise DeployError.config_invalid(
            f"target {wanted} is not configured in {found.path}",
            target=wanted,
            hint=f"add {wanted} to `targets`, or choose from {', '.join(sorted(found.targets))}",
        )
    return [wanted]


def _lockfile(repo: Path) -> tuple[lockfile.Lockfile | None, tuple[str, ...]]:
    """The lockfile, if there is one; an unusable one pins nothing and gives a warning."""
    try:
        return lockfile.load(repo), ()
    except DeployError as error:
        if error.code == "E_LOCKFILE_MISSING":
            return None, ()
        return None, (f"{error.message}; git modules are not pinned",)
