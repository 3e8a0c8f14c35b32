"""A registry in a directory; the built-in tools are one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from fleet_agentpack.enact import bundle, manifest, names
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.registries import registry
from fleet_agentpack.enact.registries.registry import Listed, Release, Tick, best_version
from fleet_agentpack.enact.results import Hit
from fleet_agentpack.enact.trust.attestations import LARGEST_ATTESTATION
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.results import UNKNOWN

_DEEPEST = 8


class DirectoryRegistry:
    """A registry in a directory: `<name>/` or `<name>/<version>/` holds a tool's files.

    Attestations are `.attestations/<name>/<version>/*.json`.
    """

    def __init__(self, root: Path, label: str, prefix: str = "") -> None:
        self.root = root
        self.label = label
        self._prefix = prefix  # the namespace of all its names

    def hits(self) -> list[Hit]:
        """Every tool, at its highest version; a tool that cannot be read is left out."""
        if not self.root.is_dir():
            raise EnactError.registry_unavailable(self.label, "no such directory")
        found: dict[str, dict[str, manifest.Manifest]] = {}
        for folder in _tool_folders(self.root):
            try:
                read = manifest.load(bundle.Folder(folder))
            except (manifest.ManifestError, OSError):
                continue
            if self._place(read.name) in (folder, folder.parent):
                found.setdefault(read.name, {})[read.version or "0.0.0"] = read
        return [_hit(name, versions) for name, versions in sorted(found.items())]

    def search(self, query: str, limit: int) -> list[Hit]:
        """The best matches."""
        return registry.rank(self.hits(), query)[:limit]

    def release(self, name: str, version: str | None) -> Release:
        """The wanted version, or the highest."""
        versions = self._versions(name)
        if not versions:
            raise EnactError.tool_not_found(name)
        chosen = version or best_version(versions)
        if chosen not in versions:
            raise EnactError.version_not_found(name, str(chosen), sorted(versions))
        return Release(name, chosen)

    def versions(self, name: str) -> Mapping[str, bool]:
        """Every version; what is withdrawn is not there."""
        versions = self._versions(name)
        if not versions:
            raise EnactError.tool_not_found(name)
        return dict.fromkeys(versions, False)

    def folder(self, release: Release) -> Path:
        """The directory that holds a release."""
        return self._versions(release.name)[release.version]

    def download(self, release: Release, tick: Tick = registry.no_tick) -> bytes:
        """The release's files as one archive."""
        tick()
        try:
            return bundle.pack(self.folder(release))
        except (bundle.BundleError, OSError) as error:
            raise EnactError.bundle_invalid(release.name, str(error)) from error

    def attestations(self, release: Release, tick: Tick = registry.no_tick) -> Sequence[Listed]:
        """The attestation files for a release."""
        tick()
        folder = self.root / ".attestations" / release.name / release.version
        files = sorted(folder.glob("*.json"))
        registry.refuse_too_many(files, self.label)
        return [Listed(file.name, partial(self._attestation, file)) for file in files]

    def _attestation(self, file: Path) -> bytes:
        try:
            with file.open("rb") as stream:
                content = stream.read(LARGEST_ATTESTATION + 1)
        except OSError as error:
            raise EnactError.registry_error(self.label, str(error)) from error
        if len(content) > LARGEST_ATTESTATION:
            raise EnactError.registry_error(self.label, f"{file.name} is too large")
        return content

    def _place(self, name: str) -> Path | None:
        bare = name.removeprefix(self._prefix)
        return self.root / bare if names.is_name(name) and name.startswith(self._prefix) else None

    def _versions(self, name: str) -> dict[str, Path]:
        place = self._place(name)
        if place is None or not is_inside(place, self.root):
            return {}
        found: dict[str, Path] = {}
        broken: str | None = None
        for folder in filter(_holds_tool, [place, *_subfolders(place)]):
            try:
                version = manifest.load(bundle.Folder(folder)).version or "0.0.0"
            except manifest.ManifestError as error:
                broken = str(error)
                continue
            if folder == place or folder.name == version:
                found[version] = folder
        if broken and not found:
            raise EnactError.manifest_invalid(name, broken)
        return found


def _hit(name: str, versions: dict[str, manifest.Manifest]) -> Hit:
    version = best_version(versions) or "0.0.0"
    read = versions[version]
    return Hit(name, registry.shown(read.description), version, read.tags or UNKNOWN)


def _holds_tool(folder: Path) -> bool:
    return any((folder / file).is_file() for file in manifest.MANIFEST_FILES)


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return []


def _tool_folders(folder: Path, depth: int = 0) -> Iterator[Path]:
    if _holds_tool(folder):
        yield folder
    elif depth < _DEEPEST:
        for below in _subfolders(folder):
            if not below.name.startswith("."):
                yield from _tool_folders(below, depth + 1)
