"""Where an edit goes in the pack: into the module, or into an overlay on top of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from fleet_agentpack.deploy.manifest import Module, Scope
from fleet_agentpack.deploy.model import Blob, Layer
from fleet_agentpack.deploy.overlays import SCOPES, Overlays
from fleet_agentpack.kit.paths import is_inside

To = Literal["module", "overlay", "machine", "project"]
_LAYERS: dict[To, Layer] = {
    "module": "upstream",
    "overlay": "global",
    "machine": "machine",
    "project": "project",
}
_ORDER: tuple[Layer, ...] = ("upstream", *SCOPES)


class NoPlaceError(ValueError):
    """An edit that cannot go where it was asked to; the message says why."""


@dataclass(frozen=True)
class Destination:
    """A file of the pack, and the layer that it belongs to."""

    path: str
    layer: Layer
    overlay: str = ""  # the overlay's directory, if it is one


def destination(
    repo: str,
    overlays: Overlays,
    module: Module,
    scope: Scope,
    name: str,
    blob: Blob,
    to: To | None,
) -> Destination:
    """Where the new content of a module's file goes. Raises `NoPlaceError`."""
    layer = _LAYERS[to] if to else _natural(repo, module, blob)
    if _ORDER.index(layer) < _ORDER.index(blob.layer):
        covering = "overlay" if blob.layer == "global" else blob.layer
        raise NoPlaceError(f"an overlay covers this file; keep it there: --to {covering}")
    if layer == "project" and scope == "user":
        raise NoPlaceError("a project's overlay never changes the user's own files")
    if layer == "upstream":
        if not _is_ours(repo, module):
            raise NoPlaceError("the module is not in this repo; keep it --to overlay")
        return Destination(blob.path, layer)
    if blob.layer == layer and not blob.path:
        raise NoPlaceError("it is made by a patch in an overlay; edit the patch")
    directory = overlays.directory(layer, module.id)
    if directory is None:
        raise NoPlaceError("there is no project whose overlay it could go to")
    return Destination(f"{directory}/{name}", layer, directory)


def _natural(repo: str, module: Module, blob: Blob) -> Layer:
    """The layer that a file comes from; files that are not ours get an overlay."""
    if blob.layer == "upstream" and not _is_ours(repo, module):
        return "global"
    return blob.layer


def _is_ours(repo: str, module: Module) -> bool:
    """Whether a module's own files are in the repo."""
    local = module.source.local_path
    return local is not None and is_inside(os.path.join(repo, local), repo)
