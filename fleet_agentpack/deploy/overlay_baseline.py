"""What an overlay remembers of the module that it was made from, so that it can follow it later."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.deploy.gitstore import Upstream
from fleet_agentpack.deploy.home import Home, git_text
from fleet_agentpack.deploy.indented_json import indented
from fleet_agentpack.deploy.manifest import Module
from fleet_agentpack.deploy.snapshots import now_text
from fleet_agentpack.deploy.trees import METADATA_DIR, Tree, TreeEntry, tree_hash

LARGEST_COPY = 1 << 20
BASE_DIR = f"{METADATA_DIR}/base"  # ours: the module's files as they were, for merging

_VERSION = 2


def metadata_files(
    home: Home,
    repo: Path,
    module: Module,
    upstream: Upstream,
    entries: Sequence[TreeEntry],
    tree: Tree,
    kind: str = "dir",
) -> dict[str, bytes]:
    """The files that describe an overlay, by their path in it."""
    baseline = {
        "version": _VERSION,
        "created_at": now_text(),
        "upstream_sha256": tree_hash(entries),
        "file_manifest": [
            {"path": entry.path, "sha256": entry.sha256, "bytes": entry.bytes} for entry in entries
        ],
        "upstream": _origin(home, repo, module, upstream),
    }
    copies = {
        f"{BASE_DIR}/{name}": data
        for name, blob in tree.items()
        if len(data := blob.read()) <= LARGEST_COPY
    }
    return {
        f"{METADATA_DIR}/module_id": f"{module.id}\n".encode(),
        f"{METADATA_DIR}/overlay.json": indented({"overlay_kind": kind}),
        f"{METADATA_DIR}/baseline.json": indented(baseline),
        **copies,
    }


def base_of(overlay: str, name: str, sha256: str) -> bytes | None:
    """A module's file as it was when its overlay was made, if the overlay kept it."""
    try:
        data = Path(overlay, BASE_DIR, name).read_bytes()
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == sha256 else None


@dataclass(frozen=True)
class _FromGit:
    kind: str
    url: str
    commit: str | None
    subdir: str


@dataclass(frozen=True)
class _FromRepo:
    kind: str
    repo_rel_path: str
    repo_git_rev: str | None
    repo_dirty: bool | None


def _origin(
    home: Home, repo: Path, module: Module, upstream: Upstream
) -> _FromGit | _FromRepo | None:
    source = module.source.git
    if source is not None:
        return _FromGit("git", source.url, upstream.commit, source.subdir)
    relative = os.path.relpath(upstream.path, repo)
    if relative.startswith(".."):
        return None
    revision = git_text(home, repo, "rev-parse", "HEAD") or None
    dirty = bool(git_text(home, repo, "status", "--porcelain")) if revision else None
    return _FromRepo("local_path", relative, revision, dirty)
