"""Uninstall: everything as it was before the first deploy, and nothing else touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleet_agentpack.deploy.disk import NotOursError
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.model import Root
from fleet_agentpack.deploy.ownership import Entry, Holder, Holding
from fleet_agentpack.deploy.pack import pack_of
from fleet_agentpack.deploy.project import find_project, why_none
from fleet_agentpack.deploy.restoring import (
    Past,
    Restoration,
    RootReader,
    holds,
    is_exactly,
)
from fleet_agentpack.deploy.targets import NAMES
from fleet_agentpack.deploy.whereabouts import gone_place, is_in
from fleet_agentpack.kit.disk import State
from fleet_agentpack.kit.stamps import Remembered


@dataclass(frozen=True)
class UninstallRequest:
    """What the command line asks for."""

    repo: str | None = None
    target: str = "all"
    scope: str = ""  # `user`, `project`, or both


@dataclass(frozen=True)
class Leaving:
    """Which files are to go: of one pack or target, of the user or a project, or all of them."""

    target: str = "all"
    packs: tuple[str, ...] | None = None  # as the record names them
    scope: str = ""  # `user`, `project`, or both
    project: str = ""

    def covers(self, holding: Holding) -> bool:
        """Whether the files of a holder are meant."""
        if self.target not in ("all", holding.target):
            return False
        if self.packs is not None and holding.pack not in self.packs:
            return False
        if not self.scope:
            return True
        inside = is_in(holding, self.project)
        is_project = holding.scope == "project" or (not holding.scope and inside)
        return is_project and inside if self.scope == "project" else not is_project


def leaving(past: Past, asked: UninstallRequest) -> Leaving:
    """Which files a request means. Raises `DeployError`."""
    if asked.target not in ("all", *NAMES):
        raise DeployError.target_filter(asked.target, ("all", *NAMES))
    packs = _packs(past, asked.repo) if asked.repo is not None else None
    project = find_project(past.home, Remembered())
    if asked.scope == "project" and project is None:
        message = f"this needs a project: {why_none(past.home)}"
        raise DeployError("E_PROJECT_REQUIRED", message)
    return Leaving(asked.target, packs, asked.scope, project.root if project else "")


def _packs(past: Past, repo: str) -> tuple[str, ...]:
    """The names under which a repo's pack is recorded; the repo itself may be gone."""
    pack, record = pack_of(past.home.repo(repo), past.home.default_repo), past.ownership.record
    names = {each.pack for each in record.holdings}
    return tuple(
        name for name in names if pack.is_called(name) or record.packs.get(name) == pack.path
    )


def prepare_uninstall(past: Past, leaving: Leaving) -> Restoration:
    """What brings back the time before the first deploy. Raises `DeployError`; writes nothing."""
    record = past.ownership.record
    back = Restoration(past.home, past.ownership, "uninstall", "", leaving.project or None)
    roots = RootReader(past.reader)
    covered = [each for each in record.holdings if leaving.covers(each)]
    for holding in covered:
        back.roots[holding.holder] = None
        back.manifests.append((holding.holder, None))
        if gone := gone_place(holding):
            _forget(back, holding, gone)
            continue
        for path, entry in sorted(holding.by_path.items()):
            try:
                _leave(back, holding.holder, path, entry, roots)
            except NotOursError as error:
                back.warnings.append(error.warning)
    for holder, manifest in _manifests(record.holdings, covered):
        try:
            _leave_manifest(back, holder, manifest, roots)
        except NotOursError as error:
            back.warnings.append(error.warning)
    back.warnings = list(dict.fromkeys(back.warnings))
    return back


def _forget(back: Restoration, holding: Holding, gone: str) -> None:
    """Let go of files in a place that is gone, but not of what only this home still has."""
    only_here = {
        path: entry.origin
        for path, entry in holding.by_path.items()
        if entry.origin is not None and entry.origin.kind == "file" and not entry.is_shared
    }
    told = f"{gone} is gone, so nothing is given back there"
    if only_here:
        path, origin = next(iter(sorted(only_here.items())))
        told += (
            f"; what stood at {path} is {back.home.contents}/{origin.sha256}, and stays recorded,"
            " so that another uninstall gives it back when the directory is there again"
        )
    back.warnings.append(told)
    back.entries += [(holding.holder, p, None) for p in holding.by_path if p not in only_here]


def _leave(back: Restoration, holder: Holder, path: str, entry: Entry, roots: RootReader) -> None:
    found, wanted = roots.at(holder, path), entry.origin.state if entry.origin else None
    # A shared file is the user's own: what became of it, its mode too, was the user's choice.
    is_users = entry.is_shared and (found is None or holds(found, wanted))
    if not is_users and not is_exactly(found, wanted):
        written = State("file", entry.sha256, 0)
        if found is not None and not holds(found, wanted) and not holds(found, written):
            if wanted is None or wanted.link is not None:
                back.warnings.append(f"{path} was edited by hand, so it stays")
                back.entries.append((holder, path, None))
                return
            back.warnings.append(
                f"{path} was edited by hand, so it stays; what stood there before is"
                f" {back.home.contents}/{wanted.sha256}, and stays recorded"
            )
            return
        back.restore(holder, path, found, wanted, held=entry)
    back.entries.append((holder, path, None))


def _manifests(
    holdings: tuple[Holding, ...], covered: list[Holding]
) -> Iterator[tuple[Holder, Entry]]:
    """The manifests of roots in which nobody is left."""
    staying = {(each.target, each.root) for each in holdings if each not in covered}
    seen: dict[tuple[str, str], tuple[Holder, Entry]] = {}
    for holding in covered:
        place, manifest = (holding.target, holding.root), holding.manifest
        if manifest is not None and place not in staying:
            known = seen.get(place)
            if known is None or int(manifest.since or 0) < int(known[1].since or 0):
                seen[place] = (holding.holder, manifest)
    return iter(seen.values())


def _leave_manifest(back: Restoration, holder: Holder, manifest: Entry, roots: RootReader) -> None:
    path = Root(holder.target, holder.root, True).manifest_path
    found, wanted = roots.at(holder, path), manifest.origin.state if manifest.origin else None
    if not is_exactly(found, wanted) and not (found is None and wanted is None):
        back.restore(holder, path, found, wanted, held=manifest, is_manifest=True)
