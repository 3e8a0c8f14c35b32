"""`lock`, `fetch` and `update`: pin every module, and fetch the pinned commits."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from fleet_agentpack.deploy import lockfile
from fleet_agentpack.deploy.errors import DeployError, io_errors
from fleet_agentpack.deploy.gitstore import GitStore, Upstream
from fleet_agentpack.deploy.hashes import HashCache
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.indented_json import indented
from fleet_agentpack.deploy.manifest import GitSource, Manifest, Module, Source
from fleet_agentpack.deploy.modules import changed_checkout, local_upstream
from fleet_agentpack.deploy.results import Fetched, Locked, Updated, UpdateStep
from fleet_agentpack.deploy.snapshots import now_text
from fleet_agentpack.deploy.transaction import Report, silent
from fleet_agentpack.deploy.trees import TreeEntry, list_files, tree_hash
from fleet_agentpack.deploy.upkeep_results import OutdatedRow
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN


class Pinning:
    """Writes and follows the lockfile of one config repo."""

    def __init__(self, home: Home, repo: Path, hashes: HashCache, report: Report = silent) -> None:
        self._home = home
        self._repo = repo
        self._hashes = hashes
        self._report = report
        self._store = GitStore(home)
        self.path = repo / lockfile.FILE_NAME

    def is_due(self, manifest: Callable[[], Manifest]) -> bool:
        """Whether the lockfile lacks a git module as the manifest wants it."""
        if not self.path.exists():
            return True
        pinned = self._readable()
        wanted = [module for module in manifest().modules if module.enabled and module.source.git]
        return not all(pinned and pinned.holds(module) for module in wanted)

    def lock(
        self, manifest: Manifest, *, keep: bool = False, moving: Collection[str] = ()
    ) -> Locked:
        """Pin every enabled module to the current state of its source.

        With `keep`, git modules that are pinned as the manifest wants them stay where they are,
        but for those that are `moving`.
        """
        kept = self._readable() if keep else None
        modules = sorted((m for m in manifest.modules if m.enabled), key=lambda module: module.id)
        pinned = []
        for number, module in enumerate(modules):
            self._report(number, len(modules), f"pinning {module.id}")
            pinned.append(self._pinned(module, None if module.id in moving else kept))
        document = lockfile.Lockfile(generated_at=now_text(), modules=pinned)
        with io_errors(self.path, "write"):
            write_atomic(self.path, indented(document), durable=self._home.durable)
        return Locked(str(self.path), self.path.as_posix(), len(modules))

    def fetch(self) -> Fetched:
        """Fetch every pinned commit, and check its content against the lockfile."""
        pinned = [
            (module, module.resolved_source.git)
            for module in lockfile.load(self._repo).modules
            if module.resolved_source.git
        ]
        for number, (module, commit) in enumerate(pinned):
            self._report(number, len(pinned), f"fetching {module.id}")
            self._fetch(module, commit)
        return self._fetched(len(pinned))

    def update(
        self,
        manifest: Manifest,
        *,
        lock: bool,
        fetch: bool,
        keep: bool,
        moving: Collection[str] = (),
    ) -> Updated:
        """Lock, then fetch, as far as each is wanted."""
        locked = self.lock(manifest, keep=keep, moving=moving) if lock else None
        steps = [UpdateStep(locked, "lock")] if locked else []
        fetched = self.fetch() if fetch else self._fetched(0)
        if fetch:
            steps.append(UpdateStep(fetched, "fetch"))
        return Updated(
            **vars(fetched),
            lockfile=str(self.path),
            lockfile_posix=self.path.as_posix(),
            steps=steps,
        )

    def outdated(self, manifest: Manifest) -> list[OutdatedRow]:
        """The git modules, with what each is pinned to and what its ref points to now."""
        pinned = self._readable()
        wanted = [module for module in manifest.modules if module.enabled and module.source.git]
        found = []
        for number, module in enumerate(wanted):
            self._report(number, len(wanted), f"asking for {module.id}")
            found.append(self._compared(module, pinned))
        return found

    def _compared(self, module: Module, known: lockfile.Lockfile | None) -> OutdatedRow:
        source = module.source.git or GitSource("")
        pin = known.pin(module) if known and known.holds(module) else None
        commit = pin[1].commit if pin else None
        try:
            newest, problem = self._store.resolve(module, source), None
        except DeployError as error:
            newest, problem = None, error.message
        moved = newest is not None and newest != commit
        return OutdatedRow(
            module.id, source.url, source.ref, commit, newest, moved, problem or UNKNOWN
        )

    def _fetch(self, pinned: lockfile.PinnedModule, commit: lockfile.PinnedCommit) -> Upstream:
        """The checkout that is pinned; one whose files were changed is made again."""
        module = Module(pinned.id, pinned.type, Source(git=commit.source))
        for get in (self._store.checkout, self._store.checkout_again):
            upstream = get(module, commit.source, commit.commit)
            if tree_hash(self._files(upstream)) == pinned.sha256:
                return upstream
        raise changed_checkout(pinned, upstream)

    def _fetched(self, count: int) -> Fetched:
        store = self._home.git_store.parent
        return Fetched(count, str(store), store.as_posix())

    def _files(self, upstream: Upstream) -> list[TreeEntry]:
        return list_files(upstream.path, self._hashes, upstream.boundaries)

    def _readable(self) -> lockfile.Lockfile | None:
        try:
            return lockfile.load(self._repo)
        except DeployError:
            return None

    def _pinned(self, module: Module, kept: lockfile.Lockfile | None) -> lockfile.ListedModule:
        git, local = module.source.git, module.source.local_path
        pin = kept.pin(module) if kept and kept.holds(module) else None
        if git is None:
            upstream = local_upstream(module, self._repo)
        else:
            upstream = self._fetch(*pin) if pin else self._store.newest(module, git)
        commit = upstream.commit or ""
        files = self._files(upstream)
        return lockfile.ListedModule(
            id=module.id,
            type=module.type,
            resolved_source=lockfile.PinnedSource(
                lockfile.PinnedPath(local.replace("\\", "/")) if local is not None else None,
                lockfile.PinnedCommit(git.url, commit, git.subdir, git.ref) if git else None,
            ),
            resolved_version=commit or "local",
            sha256=tree_hash(files),
            file_manifest=files,
        )
