"""Keeping installed tools in order: newer versions, what is known of each, and lock files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_agentpack.enact import results
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.lock_file import LockedTool, LockFile
from fleet_agentpack.enact.names import parse
from fleet_agentpack.enact.projection import all_pinned_by
from fleet_agentpack.enact.registries.registry import best_version
from fleet_agentpack.enact.results import if_any
from fleet_agentpack.enact.tool_lists import ToolsFile
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN, Maybe
from fleet_agentpack.kit.semver import Version, VersionError

if TYPE_CHECKING:
    from fleet_agentpack.enact.builds import Builds
    from fleet_agentpack.enact.projection import Installed
    from fleet_agentpack.enact.receipt import Receipt
    from fleet_agentpack.enact.registries.sources import Sources
    from fleet_agentpack.enact.runner import Report
    from fleet_agentpack.enact.service import EnactService

Agree = Callable[[EnactError], bool]


class Upkeep:
    """What people do with the tools that they have."""

    def __init__(
        self,
        service: EnactService,
        sources: Sources,
        project_file: Callable[[], Path],
        builds: Callable[[], Builds],
    ) -> None:
        self._enact = service
        self._builds = builds
        self._sources = sources
        self._project_file = project_file

    # What there is

    def audit(self, tools: Sequence[str], report: Report) -> results.AuditResult:
        """Ask the registry now about tools, installed or pinned by the project; else about all."""
        installed = self._enact.projection().installed
        pinned = self._pinned()
        names = [parse(each).name for each in tools] or sorted({*installed, *pinned})
        found: dict[tuple[str, str], Installed] = {}
        for name in names:
            versions = [each for each in (installed.get(name), pinned.get(name)) if each]
            if not versions:
                raise EnactError.not_installed(name)
            found |= {(each.name, each.version): each for each in versions}
        return self._enact.audits.now(found.values(), report)

    def outdated(self, tools: Sequence[str] = ()) -> results.OutdatedResult:
        """The newest version of installed tools; of all where none is named."""
        return results.OutdatedResult(tuple(map(self._newest, self._chosen(tools))))

    def update(
        self, tools: Sequence[str], report: Report, agree: Agree | None = None
    ) -> results.UpdateResult:
        """Install the newest version of tools that have one, each in one step."""
        rows = [self._updated(each, report, agree) for each in self._chosen(tools)]
        return results.UpdateResult(
            tuple(row for row, _ in rows),
            if_any(dict.fromkeys(text for _, told in rows for text in told)),
        )

    def info(self, tool: str) -> results.ToolInfo:
        """Everything that is known of an installed tool, also of one that must not run."""
        (found,) = self._chosen([tool])
        receipt = found.store.needed_receipt(found.name, found.version)
        (audited,) = self._enact.audits.known([found]) or (None,)
        warnings: list[str] = []
        try:
            versions = self._versions(found.name)
        except EnactError as error:
            versions, warnings = {}, [f"its other versions are not known: {error.message}"]
        permissions = self._enact.grants.shown(found, receipt)
        return results.ToolInfo(
            name=found.name,
            version=found.version,
            source=receipt.source,
            digest=f"sha256:{receipt.digest}",
            installed_at=receipt.installed_at,
            signers=tuple(map(str, receipt.signers)),
            versions=tuple(_newest_first(v for v, withdrawn in versions.items() if not withdrawn)),
            audit=audited or UNKNOWN,
            wanted=permissions.wanted,
            granted=permissions.granted,
            bounds=permissions.bounds,
            changes=permissions.changes,
            build=self._built(found, receipt),
            warnings=if_any(warnings),
        )

    def build(self, tool: str, report: Report) -> results.ChangeResult:
        """Build an installed tool now, again if it was. Raises `EnactError`."""
        (found,) = self._chosen([tool])
        if not found.manifest.build:
            return results.ChangeResult(f"{found.name} needs no build")
        self._enact.build(tool, report)
        return results.ChangeResult(f"Built {found.name}@{found.version}")

    def prune(self) -> results.ChangeResult:
        """Remove the builds that nothing installed needs."""
        count = self._builds().prune(self._enact.store)
        return results.ChangeResult(f"Removed {count} build{'s' * (count != 1)}")

    def _built(self, tool: Installed, receipt: Receipt) -> Maybe[results.BuildInfo]:
        if not tool.manifest.build:
            return UNKNOWN
        info, last = results.BuildInfo(tool.manifest.build), self._builds().of(receipt.digest)
        if last is None:
            return info
        return replace(
            info,
            built_at=last.built_at,
            backend=last.backend,
            duration_ms=last.duration_ms,
            size_bytes=last.made.size_bytes,
            network=last.granted,
        )

    def _newest(self, tool: Installed) -> results.OutdatedTool:
        row = results.OutdatedTool(tool.name, tool.version, outdated=False)
        try:
            versions = self._versions(tool.name)
        except EnactError as error:
            return replace(row, problem=error.message)
        latest = best_version(v for v, withdrawn in versions.items() if not withdrawn)
        if versions.get(tool.version):
            row = replace(row, problem=f"{tool.version} was withdrawn")
        if latest is None:
            return row
        return replace(row, latest=latest, outdated=_is_older(tool.version, latest))

    def _updated(
        self, tool: Installed, report: Report, agree: Agree | None
    ) -> tuple[results.UpdatedTool, Iterable[str]]:
        newest = self._newest(tool)
        row = results.UpdatedTool(tool.name, tool.version, tool.version, "current")
        if not newest.outdated or newest.latest is UNKNOWN:
            if newest.problem is UNKNOWN:
                return row, ()
            return replace(row, state="refused", message=newest.problem), ()
        try:
            done = self._enact.install(tool.name, newest.latest, report=report, agree=agree)
        except EnactError as error:
            message = "; ".join([error.message, *error.advice()])
            return replace(row, state="refused", code=error.code, message=message), ()
        told = done.warnings if isinstance(done.warnings, tuple) else ()
        return replace(row, version=newest.latest, state="updated"), told

    # Projects

    def project_tools(self) -> results.ToolList:
        """The tools that the project in the working directory pins."""
        pins = ToolsFile.read(self._project_file()).tools
        return results.ToolList(tuple(itertools.starmap(results.InstalledTool, pins.items())))

    def lock(self) -> results.LockResult:
        """Write down exactly which tools the project pins; without pins, those of the user."""
        path, store = LockFile.beside(self._project_file()), self._enact.store
        locked: dict[str, LockedTool] = {}

        def content() -> bytes:
            pins = ToolsFile.read(self._project_file()).tools or store.tools().tools
            locked.update(self._locked(pins))
            return LockFile(path, locked).content()

        store.write_for_project(path, content)
        message = f"Locked {len(locked)} tool{'s' * (len(locked) != 1)} in {path}"
        shown = {name: _shown(each) for name, each in locked.items()}
        return results.LockResult(message, str(path), shown)

    def install_project(self, report: Report) -> results.ChangeResult:
        """Install exactly what the project's lock file names; without one, what it pins."""
        project = self._project_file()
        pins, lock = ToolsFile.read(project).tools, LockFile.read(LockFile.beside(project))
        if lock is None:
            done = tuple(
                self._enact.install(name, version, report=report, project=True)
                for name, version in pins.items()
            )
            return _together(done, "The project pins no tools")
        for name, version in pins.items():
            known = lock.tools.get(name)
            if known is None or known.version != version:
                raise EnactError.lock_outdated(name, version, known.version if known else None)
        done = self._enact.installer.install_locked(lock.tools, self._enact.store, report, project)
        return _together(done, "The project's lock file names no tools")

    # Toolsets

    def export_toolset(self, name: str) -> LockFile:
        """A toolset with exactly the tools that it is made of, for somebody else."""
        mcp = self._enact.store.mcp()
        members = self._enact.toolsets.members(name)
        pins = {each: mcp.tools[each] for each in members if each in mcp.tools}
        return LockFile(Path(f"{name}.json"), self._locked(pins), name)

    def write_export(self, exported: LockFile, file: str) -> results.ToolsetChange:
        """Write an exported toolset where a person wants it. Raises `EnactError`."""
        path, name = self._enact.grants.named(file), str(exported.toolset)
        try:
            write_atomic(path, exported.content())
        except OSError as error:
            raise EnactError.store_unavailable(path, error.strerror or str(error)) from error
        return results.ToolsetChange("export", name, f"Wrote {name} to {path}")

    def import_toolset(self, file: str, name: str | None, report: Report) -> results.ToolsetChange:
        """Make a toolset of an exported one; what is missing is installed exactly as it says."""
        path = self._enact.grants.absolute(file, "file")
        lock = LockFile.read(Path(path))
        wanted = name or (lock.toolset if lock else None)
        if lock is None or wanted is None:
            raise EnactError.bad_argument("file", f"{file[:200]} is no exported toolset")
        self._enact.toolsets.check_new(wanted)
        installed = self._enact.store.tools().tools
        missing = {each: tool for each, tool in lock.tools.items() if each not in installed}
        done = self._enact.installer.install_locked(missing, self._enact.store, report)
        told = [
            f"{each} {installed[each]} is installed; the toolset was made with {tool.version}"
            for each, tool in lock.tools.items()
            if each in installed and installed[each] != tool.version
        ]
        changed = self._enact.toolsets.create(wanted, tuple(lock.tools))
        return replace(changed, action="import", warnings=if_any([*told, *_warnings(done)]))

    def _chosen(self, tools: Sequence[str]) -> Sequence[Installed]:
        """Installed tools by name; all where none is named. Raises `EnactError`."""
        installed = self._enact.projection().installed
        names = [parse(each).name for each in tools] or sorted(installed)
        if missing := [name for name in names if name not in installed]:
            raise EnactError.not_installed(missing[0])
        return [installed[name] for name in dict.fromkeys(names)]

    def _pinned(self) -> Mapping[str, Installed]:
        """What the project pins; nothing where there is none."""
        try:
            return all_pinned_by(self._project_file(), self._enact.store)
        except EnactError:
            return {}

    def _versions(self, name: str) -> Mapping[str, bool]:
        return self._sources.versions(name, self._enact.config)

    def _locked(self, pins: Mapping[str, str]) -> dict[str, LockedTool]:
        """What is installed, each tool checked. Raises `EnactError`."""
        store = self._enact.store
        found: dict[str, LockedTool] = {}
        for name, version in sorted(pins.items()):
            receipt = store.receipt(name, version)
            if receipt is None:
                raise EnactError.not_installed(parse(f"{name}@{version}").name)
            store.verify(name, version)
            image = store.manifest(name, version).image
            self._sources.recheck(receipt, image, self._enact.config)
            found[name] = LockedTool.of(receipt)
        return found


def _shown(tool: LockedTool) -> results.LockedRow:
    return results.LockedRow(tool.version, f"sha256:{tool.digest}", tool.parties)


def _together(done: Sequence[results.ChangeResult], nothing: str) -> results.ChangeResult:
    message = "\n".join(each.message for each in done) or nothing
    return results.ChangeResult(message, warnings=if_any(_warnings(done)))


def _warnings(done: Iterable[results.ChangeResult]) -> Iterable[str]:
    told = (each.warnings for each in done if isinstance(each.warnings, tuple))
    return dict.fromkeys(itertools.chain.from_iterable(told))


def _is_older(version: str, latest: str) -> bool:
    try:
        return Version.parse(version) < Version.parse(latest)
    except VersionError:
        return version != latest


def _newest_first(versions: Iterable[str]) -> list[str]:
    def key(text: str) -> tuple[bool, Version | str]:
        try:
            return True, Version.parse(text)
        except VersionError:
            return False, text

    return sorted(versions, key=key, reverse=True)
