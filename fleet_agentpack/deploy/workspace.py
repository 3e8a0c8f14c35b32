"""One command's view of a config repo: its manifest, modules, targets and desired state."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet_agentpack.deploy import lockfile, manifest_file
from fleet_agentpack.deploy.actions import command_line
from fleet_agentpack.deploy.desired import Desired, merge
from fleet_agentpack.deploy.disk import Reader
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.gitstore import GitStore
from fleet_agentpack.deploy.home import Home, machine_id
from fleet_agentpack.deploy.listing import Lister
from fleet_agentpack.deploy.manifest import IMPORTED, Manifest, Module, Scope, TargetConfig
from fleet_agentpack.deploy.model import MANIFEST_PREFIX, FileState, Output, Root
from fleet_agentpack.deploy.modules import Modules
from fleet_agentpack.deploy.overlays import Overlays
from fleet_agentpack.deploy.ownership import Holder
from fleet_agentpack.deploy.pack import pack_of
from fleet_agentpack.deploy.parts import Parts
from fleet_agentpack.deploy.project import find_project, why_none
from fleet_agentpack.deploy.recorded import read_records
from fleet_agentpack.deploy.repo_cache import KnownDesired, RepoCache, Trees
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import ProfilesUsed
from fleet_agentpack.deploy.same_place import by_known_name
from fleet_agentpack.deploy.selection import choose
from fleet_agentpack.deploy.survey import Survey, survey
from fleet_agentpack.deploy.takeover import Ownership
from fleet_agentpack.deploy.targets import BY_NAME, NAMES, OPTIONS, PROJECT_ONLY
from fleet_agentpack.deploy.targets.target import Area, Target
from fleet_agentpack.deploy.trees import Tree
from fleet_agentpack.kit.journal import TEMPORARY_PREFIX
from fleet_agentpack.kit.results import UNKNOWN, Maybe

_UNSCANNED = frozenset({".git", ".agentpack"})


class Workspace:
    """The config repo as a command sees it; made once per call."""

    def __init__(
        self, home: Home, request: Request, cache: RepoCache, ownership: Ownership
    ) -> None:
        """Read the configuration. Raises `DeployError`."""
        cache.forget_old_contents()
        self.home = home
        self.request = request
        self.cache = cache
        self.ownership = ownership
        self.repo = home.repo(request.repo)
        self.pack = pack_of(self.repo, home.default_repo)
        if request.target not in ("all", *NAMES):
            raise DeployError.target_filter(request.target, ("all", *NAMES))
        self.manifest = manifest_file.load(self.repo, OPTIONS, PROJECT_ONLY, cache.manifest)
        self.targets = _targets(self.manifest, request.target)
        self.project = find_project(home, cache.project)
        self.machine = machine_id(home, request.machine)
        self.selection = choose(self.manifest, request.profile, self.project, self.machine)
        self.overlays = Overlays(home, self.repo, self.machine, self.project)
        self._lockfile, self._lock_warnings = _lockfile(self.repo)
        store = GitStore(home)
        self.modules = Modules(self.repo, store, self._lockfile, self.overlays, cache)

    @property
    def project_root(self) -> str:
        """The project's directory, empty when there is no project."""
        return self.project.root if self.project else ""

    @property
    def profiles_used(self) -> Maybe[ProfilesUsed]:
        """The profiles that select the files, unless it is simply the one that was asked for."""
        found = self.selection
        return UNKNOWN if found.names == (self.request.profile,) else found.used

    def desired(self) -> Desired:
        """What the chosen targets should hold; a target that cannot be is left out, and named.

        Raises `DeployError`, also when no target is left.
        """
        areas, chosen = self._areas(), self.selection.modules
        takers = self._takers(areas, chosen)
        modules = {module.id: module for module, _ in takers}
        files = {module_id: self.modules.read(module) for module_id, module in modules.items()}
        trees = {(module.id, scope): files[module.id].of(scope) for module, scope in takers}
        failed = self._failures(takers, trees)
        areas = [(root, area) for root, area in areas if root.target not in failed]
        key = ([(root, area.takes) for root, area in areas], chosen)
        known = self.cache.desired.get(self.request.target)
        if known is None or not known.is_current(key, trees):
            parts = Parts(self.cache.made, known.parts if known else {})
            found = [(root, parts.of(root, area, chosen, trees)) for root, area in areas]
            desired = merge(found, known.desired if known else None)
            known = KnownDesired(key, trees, desired, parts.used)
            self.cache.desired[self.request.target] = known
        about_modules = [text for found in files.values() for text in found.warnings]
        warnings = (*self._warnings(modules.values(), failed), *about_modules)
        return replace(known.desired, failed=failed, warnings=warnings)

    def module(self, module_id: str) -> Module:
        """A module by its id."""
        return next(module for module in self.manifest.modules if module.id == module_id)

    def scope_of(self, output: Output) -> Scope:
        """Whose file an output is."""
        kind = self.module(output.module_ids[0]).type
        return next(
            area.scope
            for root, area in self._areas()
            if (root.target, root.dir) == (output.root.target, output.root.dir)
            and area.takes == kind
        )

    def tree(self, module_id: str, output: Output) -> Tree:
        """A module's files, as an output is made from them."""
        return self.modules.read(self.module(module_id)).of(self.scope_of(output))

    def survey(self, reader: Reader) -> Survey:
        """Look at everything that matters to the chosen targets."""
        desired = self.desired()
        record, manifests = self.ownership.record, self.cache.manifests
        recorded = read_records(desired.roots, record, self.pack, manifests)
        imported = frozenset(m.id for m in self.manifest.modules if IMPORTED in m.tags)
        return replace(survey(desired, recorded, reader), imported=imported)

    def places(self) -> list[Root]:
        """Every root that the configuration names for the chosen targets, used or not."""
        return [root for root, _ in self._areas()]

    def holders(self, roots: Iterable[Root]) -> dict[Root, Holder]:
        """Who holds the files of each root, once they are deployed."""
        scopes = {(root.target, root.dir): area.scope for root, area in self._areas()}
        return {
            root: Holder(self.pack.key, root.target, root.dir, scopes[root.target, root.dir])
            for root in roots
        }

    def _areas(self) -> list[tuple[Root, Area]]:
        record = self.ownership.record
        areas = [
            (by_known_name(root, record), area)
            for target, config in self._configured()
            for root, area in target.roots(config, self.home, self.project)
        ]
        if not areas and self._lacks_project():
            message = f"this needs a project: {why_none(self.home)}"
            raise DeployError("E_PROJECT_REQUIRED", message)
        return areas

    def _configured(self) -> Iterator[tuple[Target, TargetConfig]]:
        return ((BY_NAME[name], self.manifest.targets[name]) for name in self.targets)

    def _lacks_project(self) -> bool:
        """Whether there are files of a project to write, and no project."""
        return self.project is None and any(
            area.scope == "project"
            for target, config in self._configured()
            for area in target.switched_on(config)
        )

    def _takers(
        self, areas: list[tuple[Root, Area]], chosen: Mapping[Scope, list[Module]]
    ) -> dict[tuple[Module, Scope], list[str]]:
        """The chosen modules, each with the targets that take it."""
        takes = {(area.scope, area.takes, root.target) for root, area in areas}
        for target, config in self._configured():
            takes |= {
                (scope, kind, target.name) for scope in config.scopes for kind in target.checks
            }
        found: dict[tuple[Module, Scope], list[str]] = {}
        for scope, kind, name in sorted(takes):
            for module in chosen[scope]:
                if module.type == kind and module.goes_to(name, scope):
                    found.setdefault((module, scope), []).append(name)
        return found

    def _failures(
        self, takers: Mapping[tuple[Module, Scope], list[str]], trees: Trees
    ) -> dict[str, DeployError]:
        """The targets that cannot be deployed to, each with a module that stands in the way."""
        failed: dict[str, DeployError] = {}
        for (module, scope), targets in takers.items():
            try:
                self.modules.check(module, scope, trees[module.id, scope])
            except DeployError as error:
                failed |= {target: error for target in targets if target not in failed}
                if failed.keys() >= set(self.targets):
                    raise
        return failed

    def _warnings(
        self, modules: Iterable[Module], failed: Mapping[str, DeployError]
    ) -> Iterator[str]:
        yield from self.manifest.warnings
        yield from self.selection.warnings
        yield from self._lock_warnings
        if self._lacks_project():
            yield f"there is no project, so its files are left out: {why_none(self.home)}"
        pins = self._lockfile.pins if self._lockfile else {}
        unpinned = sorted(m.id for m in modules if m.source.git and m.id not in pins)
        for target, error in failed.items():
            yield f"{target} is left out: {error.message}"
        if unpinned:
            names = ", ".join(unpinned)
            update = shlex.join(command_line(self.request, "update"))
            yield f"unpinned: {names}; `{update}` pins git modules to a commit"


def extras(found: Survey, reader: Reader, lister: Lister) -> Iterator[tuple[Root, str, FileState]]:
    """Files in scanned roots that are neither desired nor recorded, per root by path."""
    for root in found.roots:
        record = found.recorded.by_root[root]
        if root.scan_extras and record.usable:
            known = found.desired.outputs.get(root.target, {})
            paths = [
                path
                for path in _unknown_files(root.dir, known, lister, reader.directories)
                if path not in record.files
                and path not in record.foreign
                and not found.places.is_wanted(root, path)
                and not path.rpartition("/")[2].startswith(_OWN_FILES)
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
