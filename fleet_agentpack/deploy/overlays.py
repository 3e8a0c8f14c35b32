"""Overlays: the user's files and patches on top of a module, for all, a machine or a project."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.home import Home, git
from fleet_agentpack.deploy.model import Blob, Layer, module_fs_key, names_in, read_file
from fleet_agentpack.deploy.project import Project
from fleet_agentpack.deploy.trees import METADATA_DIR, Tree, TreeEntry, TreeReader, tree_hash
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.paths import EscapeError, check_relative

SCOPES: tuple[Layer, ...] = ("global", "machine", "project")  # low to high


@dataclass(frozen=True)
class Overlay:
    """One overlay directory that exists."""

    scope: Layer
    directory: str

    @property
    def metadata(self) -> str:
        """The directory that describes the overlay and is never deployed."""
        return f"{self.directory}/{METADATA_DIR}"


@dataclass(frozen=True)
class Baseline:
    """The upstream files that an overlay was made from."""

    upstream_sha256: str
    file_manifest: Sequence[TreeEntry]


@dataclass(frozen=True)
class _Description:
    """What `overlay.json` says."""

    overlay_kind: Literal["dir", "patch"] = "dir"


class Overlays:
    """The overlays of a config repo for one machine and one project."""

    def __init__(self, home: Home, repo: Path, machine: str, project: Project | None) -> None:
        self._home = home
        self._boundaries = (str(repo),)
        projects = f"{repo}/projects"
        reads.at(projects)
        self._project = project
        own = f"/{project.id}/overlays" if project and os.path.isdir(projects) else ""
        self._bases: dict[Layer, str] = {
            "global": f"{repo}/overlays",
            "machine": f"{repo}/overlays/machines/{machine}",
            "project": f"{projects}{own}",
        }
        self._names = {scope: frozenset(names_in(base)) for scope, base in self._bases.items()}
        if not own:
            self._names["project"] = frozenset()

    def of(self, module_id: str) -> list[Overlay]:
        """A module's overlays, lowest layer first."""
        if not any(self._names.values()):
            return []
        present = ((scope, self.candidates(scope, module_id)) for scope in SCOPES)
        return [Overlay(scope, directories[0]) for scope, directories in present if directories]

    def candidates(self, scope: Layer, module_id: str) -> list[str]:
        """Every existing directory that could be a module's overlay, the preferred one first."""
        names = dict.fromkeys(
            [module_fs_key(module_id), module_fs_key(module_id, bounded=False), module_id]
        )
        safe = [name for name in names if "/" not in name and "\\" not in name]
        return [f"{self._bases[scope]}/{name}" for name in safe if name in self._names[scope]]

    def directory(self, scope: Layer, module_id: str) -> str | None:
        """A module's overlay of one layer: the one that exists, or where it would be made."""
        found = self.candidates(scope, module_id)
        if found:
            return found[0]
        base = self._bases[scope]
        if scope == "project":
            if self._project is None:
                return None
            base = f"{self._boundaries[0]}/projects/{self._project.id}/overlays"
        return f"{base}/{module_fs_key(module_id)}"

    def lay(
        self, module_id: str, upstream: Tree, reader: TreeReader, made: dict[Any, Blob]
    ) -> tuple[Tree, Tree]:
        """A module's files for the user and, with the project's own layer on top, for the project.

        What a project changes never reaches files outside it.
        """
        of_user = of_project = upstream
        for overlay, of_project in self.stages(module_id, upstream, reader, made):
            if overlay.scope != "project":
                of_user = of_project
        return of_user, of_project

    def stages(
        self, module_id: str, upstream: Tree, reader: TreeReader, made: dict[Any, Blob]
    ) -> Iterator[tuple[Overlay, Tree]]:
        """Each overlay, and a module's files with all overlays up to it."""
        tree = upstream
        for overlay in self.of(module_id):
            tree = self._laid(module_id, overlay, tree, reader, made)
            yield overlay, tree

    def _laid(
        self,
        module_id: str,
        overlay: Overlay,
        below: Tree,
        reader: TreeReader,
        made: dict[Any, Blob],
    ) -> Tree:
        files, patches = self.contents(overlay, reader)
        tree = dict(below)
        for name, blob in files.items():
            _refuse_clash(tree, name, overlay)
            tree[name] = blob._replace(layer=overlay.scope)
        for name, patch in sorted(patches.items()):
            key = ("patch", name, patch.sha256, tree[name].sha256 if name in tree else "")
            if key not in made:
                made[key] = self._patched(module_id, overlay, tree, name, patch)
            tree[name] = made[key]._replace(layer=overlay.scope)
        return tree if files or patches else below

    def drift(
        self, module_id: str, list_upstream: Callable[[], list[TreeEntry]], reader: TreeReader
    ) -> Iterator[str]:
        """Warnings about overlays whose upstream has changed since they were made."""
        known = [(overlay, baseline_of(overlay)) for overlay in self.of(module_id)]
        upstream = list_upstream() if any(baseline for _, baseline in known) else []
        for overlay, baseline in known:
            if baseline is None:
                continue
            files, patches = self.contents(overlay, reader)
            now = {entry.path: entry.sha256 for entry in upstream}
            then = {entry.path: entry.sha256 for entry in baseline.file_manifest}
            changed = False
            for name in sorted({*files, *patches} & set(then)):
                if now.get(name) != then[name]:
                    changed = True
                    what = "changed" if name in now else "removed"
                    yield (
                        f"overlay drift ({overlay.scope}) module {module_id}: {name} was {what}"
                        f" upstream after the overlay was made; check {overlay.directory}"
                    )
            if not changed and tree_hash(upstream) != baseline.upstream_sha256:
                yield (
                    f"overlay drift ({overlay.scope}) module {module_id}: upstream changed after"
                    f" the overlay was made; check {overlay.directory}"
                )

    def layout_warnings(self, module_ids: list[str]) -> Iterator[str]:
        """What is odd about the overlay directories of some modules."""
        for module_id in module_ids:
            for scope in SCOPES:
                yield from self._layout_of(scope, module_id)

    def _layout_of(self, scope: Layer, module_id: str) -> Iterator[str]:
        subject = f"overlay layout ({scope}) module {module_id}"
        present = self.candidates(scope, module_id)
        if len(present) > 1:
            yield f"{subject}: {present[0]} is used, not {', '.join(present[1:])}"
        for directory in present:
            if not Path(directory).is_dir():
                yield f"{subject}: {directory} is not a directory"
                continue
            marker = Path(directory, METADATA_DIR, "module_id")
            try:
                named = read_text(marker).strip()
            except FileNotFoundError:
                continue
            except UnreadableError:
                yield f"{subject}: {marker} cannot be read"
                continue
            if named != module_id:
                yield f"{subject}: {marker} names another module, {named}"

    def contents(self, overlay: Overlay, reader: TreeReader) -> tuple[Tree, Tree]:
        """An overlay's override files and its patches by the file they change."""
        if not Path(overlay.directory).is_dir():
            raise DeployError.config_invalid(
                f"{overlay.directory} is not a directory", overlay_dir=overlay.directory
            )
        files = reader.read(overlay.directory, self._boundaries)
        patch_dir = f"{overlay.metadata}/patches"
        reads.at(patch_dir)
        found = reader.read(patch_dir, self._boundaries) if Path(patch_dir).is_dir() else {}
        listed = [name for name in found if name.lower().endswith(".patch")]
        _check_kind(overlay, sorted(files), sorted(listed))
        patches = {
            name.removesuffix(".patch"): found[name] for name in listed if name.endswith(".patch")
        }
        return files, patches

    def _patched(
        self, module_id: str, overlay: Overlay, tree: Tree, name: str, patch: Blob
    ) -> Blob:
        details = {
            "module_id": module_id,
            "scope": overlay.scope,
            "overlay_dir": overlay.directory,
            "overlay_dir_posix": overlay.directory,
            "patch_file": patch.path,
            "patch_file_posix": patch.path,
            "relpath": name,
        }
        if problem := _patch_problem(tree, name, patch):
            raise DeployError.config_invalid(f"{patch.path}: {problem}", **details)
        try:
            text = self.patched_text(name, tree[name].read(), patch.read())
        except ValueError as error:
            raise DeployError(
                "E_OVERLAY_PATCH_APPLY_FAILED",
                f"{patch.path} does not apply to {name} of module {module_id}",
                stderr=str(error),
                hint="the upstream file has changed: `fleet-agentpack overlay rebase` follows it",
                **details,
            ) from error
        made = Blob.of(text, private=tree[name].private)
        return made._replace(executable=tree[name].executable)

    def patched_text(self, name: str, text: bytes, patch: bytes) -> bytes:
        """A text with a patch. Raises `ValueError` with git's complaint."""
        with tempfile.TemporaryDirectory(prefix="fleet-agentpack-patch-") as scratch:
            place = Path(scratch, "tree", name)
            place.parent.mkdir(parents=True)
            place.write_bytes(text)
            copy = Path(scratch, "change.patch")
            copy.write_bytes(patch)
            apply = ("-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", str(copy))
            done = git(self._home, Path(scratch, "tree"), *apply, ceiling=scratch)
            if done.status != 0:
                raise ValueError(done.complaint.replace(scratch, ""))
            return place.read_bytes()

    def patch_text(self, name: str, before: bytes, after: bytes) -> bytes:
        """The patch that makes one text the other; empty if they are equal."""
        with tempfile.TemporaryDirectory(prefix="fleet-agentpack-patch-") as scratch:
            for side, data in (("a", before), ("b", after)):
                place = Path(scratch, side, name)
                place.parent.mkdir(parents=True)
                place.write_bytes(data)
            words = ("diff", "--no-index", "--no-prefix", f"a/{name}", f"b/{name}")
            return git(self._home, scratch, *words, ceiling=scratch).stdout


def _refuse_clash(tree: Tree, name: str, overlay: Overlay) -> None:
    """A name cannot be a file in one layer and a directory in another."""
    parts = name.split("/")
    above = ("/".join(parts[:i]) for i in range(1, len(parts)))
    if any(parent in tree for parent in above) or any(
        other.startswith(f"{name}/") for other in tree if name not in tree
    ):
        raise DeployError.config_invalid(
            f"{overlay.directory}/{name}: a file and a directory would have the same name",
            overlay_dir=overlay.directory,
            path=name,
        )


def _check_kind(overlay: Overlay, files: list[str], patches: list[str]) -> None:
    kind = kind_of(overlay)
    problem = ""
    if files and patches:
        problem = "has both override files and patches"
    elif kind == "dir" and patches:
        problem = "is of kind dir but has patches"
    elif kind == "patch" and files:
        problem = "is of kind patch but has override files"
    if problem:
        raise DeployError.config_invalid(
            f"overlay {overlay.directory} {problem}",
            overlay_dir=overlay.directory,
            override_files=files,
            patch_files=patches,
            hint="use either override files or patches in one overlay",
        )


def kind_of(overlay: Overlay) -> str:
    """Whether an overlay has whole files or patches. Raises `DeployError`."""
    path = Path(overlay.metadata, "overlay.json")
    reads.at(path)
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Description).overlay_kind
    except FileNotFoundError:
        return "dir"
    except (OSError, ValueError, RecursionError) as error:
        raise DeployError.config_invalid(
            f"{path} does not say which kind of overlay this is",
            overlay_dir=overlay.directory,
            meta_path=str(path),
            hint='write {"overlay_kind": "dir"} or {"overlay_kind": "patch"}',
        ) from error


def baseline_of(overlay: Overlay) -> Baseline | None:
    """What an overlay was made from, if it says so. Raises `DeployError`."""
    path = Path(overlay.metadata, "baseline.json")
    reads.at(path)
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(read_file(str(path)), type=Baseline)
    except (ValueError, RecursionError) as error:
        raise DeployError.config_invalid(
            f"{path} is not a valid overlay baseline", overlay_dir=overlay.directory
        ) from error


def _patch_problem(tree: Tree, name: str, patch: Blob) -> str | None:
    """Why a patch cannot be used, or None."""
    try:
        check_relative(name)
    except EscapeError as error:
        return str(error)
    if name not in tree:
        return f"the module has no file {name}"
    try:
        tree[name].read().decode("utf-8")
        text = patch.read().decode("utf-8")
    except UnicodeDecodeError:
        return "the patch and the file that it changes must be UTF-8 text"
    if "GIT binary patch" in text:
        return "binary patches are not supported"
    lines = text.splitlines()
    before = [line for line in lines if line.startswith("--- ")]
    after = [line for line in lines if line.startswith("+++ ")]
    if len(before) != 1 or len(after) != 1:
        return "a patch must change exactly one file"
    for line, prefix in ((before[0], "a/"), (after[0], "b/")):
        words = line[4:].split()
        if not words or words[0].removeprefix(prefix) != name:
            return f"the patch changes {words[0] if words else 'nothing'}, not {name}"
    return None
