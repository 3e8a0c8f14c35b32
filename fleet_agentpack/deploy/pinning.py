"""`lock`, `fetch` and `update`: pin every module, and bring the pinned commits here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleet_agentpack.deploy import lockfile
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.gitstore import GitStore, module_directory
from fleet_agentpack.deploy.hashes import HashCache
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.manifest import GitSource, Manifest, Module, Source
from fleet_agentpack.deploy.modules import Upstream, upstream_of
from fleet_agentpack.deploy.snapshots import now_text
from fleet_agentpack.deploy.trees import list_files, tree_hash
from fleet_agentpack.kit.files import write_atomic


class Pinning:
    """Writes and follows the lockfile of one config repo."""

    def __init__(self, home: Home, repo: Path, hashes: HashCache) -> None:
        self._home = home
        self._repo = repo
        self._hashes = hashes
        self._store = GitStore(home)
        self.path = repo / lockfile.FILE_NAME

    def lock(self, manifest: Manifest) -> dict[str, Any]:
        """Pin every enabled module to what its source is now."""
        modules = sorted((m for m in manifest.modules if m.enabled), key=lambda module: module.id)
        document = {
            "version": 1,
            "generated_at": now_text(),
            "modules": [self._entry(module) for module in modules],
        }
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        try:
            write_atomic(self.path, text, durable=self._home.durable)
        except OSError as error:
            raise DeployError.io(self.path, error, "write") from error
        return {
            "lockfile": str(self.path),
            "lockfile_posix": self.path.as_posix(),
            "modules": len(modules),
        }

    def fetch(self) -> dict[str, Any]:
        """Have every pinned commit here, and check that it is what was pinned."""
        count = 0
        for locked in lockfile.load(self._repo).modules.values():
            if locked.git is None:
                continue
            source = GitSource(locked.git.url, locked.git.commit, locked.git.subdir, shallow=False)
            module = Module(locked.id, "", source=Source(git=source))
            checkout = self._store.checkout(module, source, locked.git.commit)
            place = module_directory(module, checkout, source.subdir.strip("/"))
            boundaries = (str(checkout.directory),)
            if tree_hash(list_files(place, self._hashes, boundaries)) != locked.sha256:
                raise DeployError(
                    "E_UNEXPECTED",
                    f"store content hash mismatch for {locked.id}: {place} is not what was locked",
                    reason="store_content_mismatch",
                    next_actions=("remove_checkout", "run_fetch"),
                    module_id=locked.id,
                    path=place,
                )
            count += 1
        return {"git_modules_fetched": count, **self._store_paths()}

    def update(self, manifest: Manifest, *, lock: bool, fetch: bool) -> dict[str, Any]:
        """Lock, then fetch, as far as each is wanted."""
        steps: list[dict[str, Any]] = []
        if lock:
            steps.append({"detail": self.lock(manifest), "name": "lock", "ok": True})
        fetched = self.fetch() if fetch else {"git_modules_fetched": 0, **self._store_paths()}
        if fetch:
            steps.append({"detail": fetched, "name": "fetch", "ok": True})
        return {
            **fetched,
            "lockfile": str(self.path),
            "lockfile_posix": self.path.as_posix(),
            "steps": steps,
        }

    def _store_paths(self) -> dict[str, str]:
        store = self._home.git_store.parent
        return {"store": str(store), "store_posix": store.as_posix()}

    def _entry(self, module: Module) -> dict[str, Any]:
        upstream = upstream_of(module, self._repo, self._store, None)
        files = list_files(upstream.path, self._hashes, upstream.boundaries)
        return {
            "id": module.id,
            "type": module.type,
            "resolved_source": _resolved(module, upstream),
            "resolved_version": upstream.commit or "local",
            "sha256": tree_hash(files),
            "file_manifest": [entry._asdict() for entry in files],
        }


def _resolved(module: Module, upstream: Upstream) -> dict[str, Any]:
    git, local = module.source.git, module.source.local_path
    return {
        "local_path": None if local is None else {"path": local.replace("\\", "/")},
        "git": None
        if git is None
        else {"url": git.url, "commit": upstream.commit, "subdir": git.subdir},
    }
