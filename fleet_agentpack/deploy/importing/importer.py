"""`import`: scans the tools' own files and writes modules and their entries into the pack."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from fleet_agentpack.deploy import manifest_file
from fleet_agentpack.deploy.actions import call
from fleet_agentpack.deploy.desired import Desired
from fleet_agentpack.deploy.errors import DeployError, naming
from fleet_agentpack.deploy.home import Home, machine_id
from fleet_agentpack.deploy.importing.elsewhere import Where, elsewhere, imports_of
from fleet_agentpack.deploy.importing.items import Found, Item, outputs_of
from fleet_agentpack.deploy.importing.modules import NewModule, modules_from, nearly_equal
from fleet_agentpack.deploy.importing.pack import Pack
from fleet_agentpack.deploy.importing.places import places, target_called
from fleet_agentpack.deploy.importing.results import ImportData, ModuleRow, SkippedRow
from fleet_agentpack.deploy.importing.scan import scan
from fleet_agentpack.deploy.left_out import is_known, remember
from fleet_agentpack.deploy.manifest import FILE_NAME, SCOPES, Manifest, Scope, TargetConfig
from fleet_agentpack.deploy.manifest_edit import ManifestEdit, edited
from fleet_agentpack.deploy.model import read_file
from fleet_agentpack.deploy.pack import ID_FILE, new_id
from fleet_agentpack.deploy.project import Project, find_project, why_none
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.repo_write import finish_writing, write_together
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import ChangeCounts, Envelope
from fleet_agentpack.deploy.running import locked
from fleet_agentpack.deploy.starter import new_manifest
from fleet_agentpack.deploy.targets import NAMES, OPTIONS, PROJECT_ONLY
from fleet_agentpack.deploy.workspace import Workspace

LOCK_TIMEOUT_S = 10.0

Caches = Callable[[Request], AbstractContextManager[RepoCache]]
Workspaces = Callable[[Request, RepoCache], Workspace]
Written = dict[tuple[str, str], tuple[str, str]]  # target and path → modules and hash
Confirm = Callable[[ImportData, Sequence[str]], bool]


@dataclass(frozen=True)
class ImportRequest:
    """What to bring in, and where to."""

    repo: str | None = None
    targets: tuple[str, ...] = ()  # all, if none is named
    scope: str = "all"  # user, project or all
    dry_run: bool = False

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Whose files are looked at."""
        return tuple(scope for scope in SCOPES if self.scope in (scope, "all"))


@dataclass(frozen=True)
class _Proposal:
    """What an import would write."""

    modules: list[NewModule]
    edit: ManifestEdit
    text: str | None  # of the manifest as it is, None if there is none
    new_text: str
    data: ImportData
    warnings: tuple[str, ...]
    left_out: tuple[str, ...]  # it is where the pack's files are, and stays out of the pack

    @property
    def imported(self) -> frozenset[str]:
        """What becomes modules."""
        return frozenset(item.path for module in self.modules for item in module.items)


class Importer:
    """Brings what the tools already have into a pack; no tool's own file is changed."""

    def __init__(
        self,
        home: Home,
        caches: Caches,
        workspace: Workspaces,
        plan: Callable[[Request], ChangeCounts],
    ) -> None:
        self._home = home
        self._caches = caches
        self._workspace = workspace
        self._plan = plan

    def run(self, request: ImportRequest, confirm: Confirm | None = None) -> Envelope[ImportData]:
        """Import, unless it is a dry run or `confirm` says no."""
        name = "import" if request.dry_run else "import --apply"
        with naming(name):
            repo = self._home.repo(request.repo)
            if not request.dry_run:
                finish_writing(self._home, repo)
            found = self._propose(request)
            if request.dry_run:
                return Envelope.of(name, replace(found.data, reason="dry_run"), found.warnings)
            if not found.modules:
                if found.text is not None and not is_known(self._home, found.left_out):
                    with locked(self._home, LOCK_TIMEOUT_S):
                        remember(self._home, found.left_out, found.imported)
                return _unchanged(name, found)
            if confirm is not None and not confirm(found.data, found.warnings):
                return Envelope.of(name, replace(found.data, reason="aborted"), found.warnings)
            with locked(self._home, LOCK_TIMEOUT_S):
                found = self._propose(request)
                if not found.modules:  # another import was faster
                    return _unchanged(name, found)
                _write(repo, found)
                remember(self._home, found.left_out, found.imported)
            asked = Request(request.repo)
            apply = call(asked, "deploy_apply", "deploy", "--apply", yes=True)
            data = replace(found.data, applied=True, plan=self._plan(asked), next_actions=[apply])
            return Envelope.of(name, data, found.warnings)

    def _propose(self, request: ImportRequest) -> _Proposal:
        unknown = [name for name in request.targets if name not in NAMES]
        if unknown:
            raise DeployError.target_filter(unknown[0], NAMES)
        repo, plain = self._home.repo(request.repo), Request(request.repo)
        with self._caches(plain) as cache:
            project = find_project(self._home, cache.project)
            warnings = []
            if project is None and request.scope != "user":
                if request.scope == "project":
                    why = why_none(self._home)
                    raise DeployError("E_PROJECT_REQUIRED", f"this needs a project: {why}")
                why = why_none(self._home)
                warnings.append(f"there is no project, so its files are left out: {why}")
            manifest = _load(repo)
            pack = Pack(manifest, project, machine_id(self._home))
            seen, others = self._scan(request, pack, project)
            desired = self._workspace(plain, cache).desired() if manifest else None
        usable = [i for i in seen.items if desired is None or i.target not in desired.failed]
        new, already, mine = _sort_out(usable, _written(desired) if desired else {})
        if desired is not None:
            mine += _not_planned(seen.items, desired)
        admitted, blocked = pack.admit(new)
        modules = modules_from(
            admitted,
            project.id if project else "",
            pack.base_tag,
            lambda path: os.path.lexists(repo / path),
            pack.module_ids,
        )
        rest = [SkippedRow(each.item.path, each.item.kind, each.reason) for each in blocked]
        taken_in = imports_of(seen.items, self._home.user)
        skipped = [*seen.skipped, *others.skipped, *mine, *rest, *taken_in]
        data = ImportData(
            applied=False,
            modules=[_row(module) for module in modules],
            skipped=skipped,
            secrets=[*seen.secrets, *others.secrets],
            already=already,
            repo=str(repo),
        )
        edit = pack.edit(modules)
        text = _text(repo) if manifest else None
        # Without places: the files are where the environment says, and go back there.
        new_text = edited(text or new_manifest(with_places=False), edit) if modules else text or ""
        left = tuple(row.path for row in (*seen.skipped, *rest))
        warnings += nearly_equal(admitted)
        return _Proposal(modules, edit, text, new_text, data, tuple(warnings), left)

    def _scan(
        self, request: ImportRequest, pack: Pack, project: Project | None
    ) -> tuple[Found, Found]:
        """What is in the places that a pack writes, and what is elsewhere."""
        targets = request.targets or NAMES
        configured = pack.configured
        looked_at = list(places(self._home, project, configured, targets, request.scopes))
        seen = scan(looked_at, self._home.user)
        user_dirs = {
            name: target_called(name).user_dir(
                configured.get(name) or TargetConfig("files", "both"), self._home
            )
            for name in NAMES
        }
        root = project.root if project else ""
        where = Where(self._home, root, user_dirs, targets, request.scopes)
        return seen, elsewhere(where, looked_at, seen)


def _unchanged(name: str, found: _Proposal) -> Envelope[ImportData]:
    return Envelope.of(name, replace(found.data, reason="no_changes"), found.warnings)


def _load(repo: Path) -> Manifest | None:
    try:
        return manifest_file.load(repo, OPTIONS, PROJECT_ONLY)
    except DeployError as error:
        if error.code == "E_CONFIG_MISSING":
            return None
        raise


def _written(desired: Desired) -> Written:
    """What the pack writes already."""
    return {
        (target, path): (", ".join(output.module_ids), output.blob.sha256)
        for target, outputs in desired.outputs.items()
        for path, output in outputs.items()
    }


def _not_planned(items: Iterable[Item], desired: Desired) -> Iterator[SkippedRow]:
    """Items of tools whose part of the pack cannot be read now: they may be in it already."""
    for item in items:
        if error := desired.failed.get(item.target):
            yield SkippedRow(item.path, item.kind, f"mend the pack first: {error.message}")


def _sort_out(items: Iterable[Item], written: Written) -> tuple[list[Item], int, list[SkippedRow]]:
    """The items that are new, how many the pack has already, and those it has differently."""
    clashes: dict[str, tuple[Item, str, bool]] = {}
    items = list(items)
    for (target, path), item in outputs_of(items).items():
        known = written.get((target, path))
        if known is not None:
            blob = item.tree.get(path.removeprefix(f"{item.path}/")) or next(
                iter(item.tree.values())
            )
            _, _, same = clashes.get(f"{target} {item.path}", (item, "", True))
            equal = same and blob.sha256 == known[1]
            clashes[f"{target} {item.path}"] = (item, known[0], equal)
    new = [item for item in items if f"{item.target} {item.path}" not in clashes]
    differing = [
        SkippedRow(
            item.path,
            item.kind,
            f"{ids} of the pack goes there, with another text; `fleet-agentpack keep` brings yours"
            " into it, `fleet-agentpack remove` and another import make yours a module of its own",
        )
        for item, ids, same in clashes.values()
        if not same
    ]
    return new, len(clashes) - len(differing), differing


def _row(module: NewModule) -> ModuleRow:
    item = module.item
    sources = [each.path for each in module.items]
    return ModuleRow(module.id, item.kind, item.scope, module.targets, module.path, sources)


def _write(repo: Path, found: _Proposal) -> None:
    """Write the modules and the manifest together, or nothing."""
    now = _text(repo) if found.text is not None else None
    if now != found.text:
        message = f"{repo / FILE_NAME} was changed meanwhile; try again"
        raise DeployError.because("changed_meanwhile", message)
    files = {path: each for module in found.modules for path, each in module.files.items()}
    files[FILE_NAME] = found.new_text.encode(), False
    if found.text is None and not os.path.lexists(repo / ID_FILE):
        files[str(ID_FILE)] = new_id().encode(), False
    write_together(repo, files)


def _text(repo: Path) -> str:
    return read_file(str(repo / FILE_NAME)).decode("utf-8")
