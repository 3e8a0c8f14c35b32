"""`lock`, `fetch` and `update`: pin every module, and fetch the pinned commits."""

from __future__ import annotations

from pathlib import Path

from fleet_agentpack.deploy import lockfile
from fleet_agentpack.deploy.errors import DeployError, io_errors
from fleet_agentpack.deploy.gitstore import GitStore, Upstream
from fleet_agentpack.deploy.hashes import HashCache
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.indented_json import indented
from fleet_agentpack.deploy.manifest import Manifest, Module, Source
from fleet_agentpack.deploy.modules import upstream_of
from fleet_agentpack.deploy.results import Fetched, Locked, Updated, UpdateStep
from fleet_agentpack.deploy.snapshots import now_text
from fleet_agentpack.deploy.transaction import Report, silent
from fleet_agentpack.deploy.trees import TreeEntry, list_files, tree_hash
from fleet_agentpack.kit.files import write_atomic


class Pinning:
    """Writes and follows the lockfile of one config repo."""

    def __init__(self, home: Home, repo: Path, hashes: HashCache, report: Report = silent) -> None:
        self._home = home
        self._repo = repo
        self._hashes = hashes
        self._report = report
        self._store = GitStore(home)
        self.path = repo / lockfile.FILE_NAME

    def lock(self, manifest: Manifest) -> Locked:
        """Pin every enabled module to the current state of its source."""
        modules = sorted((m for m in manifest.modules if m.enabled), key=lambda module: module.id)
        pinned = []
        for number, module in enumerate(modules):
            self._report(number, len(modules), f"pinning {module.id}")
            pinned.append(self._pinned(module))
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

    def update(self, manifest: Manifest, *, lock: bool, fetch: bool) -> Updated:
        """Lock, then fetch, as far as each is wanted."""
        steps = [UpdateStep(self.lock(manifest), "lock")] if lock else []
        fetched = self.fetch() if fetch else self._fetched(0)
        if fetch:
            steps.append(UpdateStep(fetched, "fetch"))
        return Updated(
            **vars(fetched),
            lockfile=str(self.path),
            lockfile_posix=self.path.as_posix(),
            steps=steps,
        )

    def _fetch(self, pinned: lockfile.PinnedModule, commit: lockfile.PinnedCommit) -> None:
        module = Module(pinned.id, pinned.type, Source(git=commit.source))
        upstream = self._store.checkout(module, commit.source, commit.commit)
        if tree_hash(self._files(upstream)) != pinned.sha256:
            raise DeployError.because(
                "store_content_mismatch",
                f"store content hash mismatch for {pinned.id}: {upstream.path} differs from the"
                " lockfile",
                module_id=pinned.id,
                path=upstream.path,
            )

    def _fetched(self, count: int) -> Fetched:
        store = self._home.git_store.parent
        return Fetched(count, str(store), store.as_posix())

    def _files(self, upstream: Upstream) -> list[TreeEntry]:
        return list_files(upstream.path, self._hashes, upstream.boundaries)

    def _pinned(self, module: Module) -> lockfile.ListedModule:
        upstream = upstream_of(module, self._repo, self._store, None)
        files = self._files(upstream)
        git, local = module.source.git, module.source.local_path
        return lockfile.ListedModule(
            id=module.id,
            type=module.type,
            resolved_source=lockfile.PinnedSource(
                lockfile.PinnedPath(local.replace("\\", "/")) if local is not None else None,
                lockfile.PinnedCommit(git.url, upstream.commit or "", git.subdir) if git else None,
            ),
            resolved_version=upstream.commit or "local",
            sha256=tree_hash(files),
            file_manifest=files,
        )
