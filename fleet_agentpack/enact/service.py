"""The tool registry's use cases: search, learn, install, uninstall, list, run, and toolsets.

Every server opens this service to list what is installed, so what only a call needs (the registry
client, trust, running tools) is imported by the first call that needs it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fleet_agentpack.enact import results
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import Entry, Reference, parse
from fleet_agentpack.enact.results import BrokenTool, if_any
from fleet_agentpack.enact.sessions import Sessions
from fleet_agentpack.enact.store import Store
from fleet_agentpack.enact.tool_lists import ToolsFile
from fleet_agentpack.kit.actions import Action, named
from fleet_agentpack.kit.results import UNKNOWN

if TYPE_CHECKING:
    from fleet_agentpack.enact.config import Config, ConfigFile
    from fleet_agentpack.enact.manifest import Manifest, Script
    from fleet_agentpack.enact.projection import Installed, Projected, Projection
    from fleet_agentpack.enact.receipt import Receipt
    from fleet_agentpack.enact.registries.sources import Sources
    from fleet_agentpack.enact.runner import Report, Runner
    from fleet_agentpack.enact.settings import EnactSettings
    from fleet_agentpack.enact.toolsets import Toolsets
    from fleet_agentpack.kit.stamps import Stamp

DEFAULT_LIMIT = 10
LARGEST_LIMIT = 100
MOST_ASKED_FOR = 1_000_000


def _quiet(_done: float, _total: float | None, _text: str) -> None:
    """Report nothing."""


class EnactService:
    """Finds, installs and runs tools for one user."""

    def __init__(self, settings: EnactSettings) -> None:
        self._settings = settings
        self.store = Store(settings.root)
        self._sessions = Sessions(self.store, settings.state / "enact-sessions")
        self._reading = threading.Lock()

    @property
    def config(self) -> Config:
        """`~/.enact/config.yaml` as it is now."""
        return self._config_file.read()

    @cached_property
    def _config_file(self) -> ConfigFile:
        from fleet_agentpack.enact.config import ConfigFile

        settings = self._settings
        return ConfigFile(settings.root / "config.yaml", settings.environ, settings.home)

    @cached_property
    def _sources(self) -> Sources:
        from fleet_agentpack.enact.registries.search_cache import SearchCache
        from fleet_agentpack.enact.registries.sources import Sources
        from fleet_agentpack.enact.trust.policy import TrustPolicy

        cache = SearchCache(self._settings.cache / "enact-search")
        return Sources(TrustPolicy(self._config_file.path), cache, self._settings.home)

    @cached_property
    def _runner(self) -> Runner:
        from fleet_agentpack.enact.runner import Runner

        return Runner(self._settings)

    # The six meta-tools

    def search(self, query: str, limit: float = DEFAULT_LIMIT) -> results.SearchResult:
        """Tools that match a query."""
        if not 1 <= limit <= MOST_ASKED_FOR or limit != int(limit):
            raise EnactError.bad_argument("limit", "must be a whole number of at least 1")
        count = min(int(limit), LARGEST_LIMIT)
        hits, warnings = self._sources.search(query, count, self.config)
        return results.SearchResult(tuple(hits), if_any(warnings))

    def learn(
        self, tool: str, version: str | None = None, session: str | None = None
    ) -> results.LearnResult:
        """The documentation of a tool, read from files that passed the trust policy."""
        from fleet_agentpack.enact.tool_documentation import describe

        wanted = parse(tool, version)
        if self._installed(wanted, session):
            return results.LearnResult(self.documentation(str(wanted), session))
        acquired = self._sources.acquire(wanted, self.config)
        return results.LearnResult(describe(acquired.manifest, {}), if_any(acquired.warnings))

    def documentation(self, tool: str, session: str | None = None) -> str:
        """The documentation of an installed tool; nothing is fetched."""
        from fleet_agentpack.enact.tool_documentation import describe

        wanted = parse(tool)
        found = self._installed(wanted, session)
        if found is None:
            raise EnactError.not_installed(wanted.name)
        self._check(found)
        return describe(found.manifest, self.projection(session).names.get(found.name, {}))

    def install(
        self,
        tool: str,
        version: str | None = None,
        session: str | None = None,
        report: Report = _quiet,
        *,
        project: bool = False,
    ) -> results.ChangeResult:
        """Verify a tool and install it; MCP clients see it at once."""
        wanted = parse(tool, version)
        store = self._writable_store(session)
        acquired = self._sources.acquire(
            wanted, self.config, lambda: report(0, 2, f"fetching {wanted}")
        )
        receipt = acquired.receipt
        report(1, 2, f"installing {receipt.name}@{receipt.version}")
        project_file = self._settings.project_file if project else None
        replaced = store.install(acquired.package, receipt, project=project_file)
        message = f"Installed {receipt.name}@{receipt.version}"
        if replaced.version and replaced.version != receipt.version:
            message += f" (was {replaced.version})"
        warnings = [*acquired.warnings, *replaced.warnings]
        mcp = store.mcp()
        if mcp.active is not None and receipt.name not in mcp.visible():
            warnings.append(f"the active toolset {mcp.active!r} does not show {receipt.name}")
        return results.ChangeResult(message, if_any(warnings))

    def mcp_names(self, tool: str, session: str | None = None) -> tuple[str, ...]:
        """Under which names MCP clients see an installed tool; none if a toolset hides it."""
        names = self.projection(session).names.get(parse(tool).name, {})
        return tuple(names.values())

    def uninstall(
        self, tool: str, session: str | None = None, *, project: bool = False
    ) -> results.ChangeResult:
        """Remove a tool."""
        wanted = parse(tool)
        store = self._writable_store(session)
        project_file = self._settings.project_file if project else None
        pins = ToolsFile.read(project_file) if project_file else store.tools()
        pinned = pins.tools.get(wanted.name)
        if pinned is None:
            raise self._not_ours(wanted.name, store)
        if wanted.version and wanted.version != pinned:
            raise EnactError.version_not_found(wanted.name, wanted.version, [pinned])
        removed = store.uninstall(wanted.name, project=project_file)
        message = f"Uninstalled {wanted.name}@{removed.version}"
        return results.ChangeResult(message, if_any(removed.warnings))

    def installed(self, session: str | None = None) -> results.ToolList:
        """What is installed."""
        projection = self.projection(session)
        names = {
            name: tuple(filter(None, map(named, scripts.values())))
            for name, scripts in projection.names.items()
        }
        tools = tuple(
            results.InstalledTool(
                name, found.version, found.manifest.description, names.get(name, ())
            )
            for name, found in sorted(projection.installed.items())
        )
        left_out = [f"{each.name} is left out: {each.error.message}" for each in projection.broken]
        warnings = [*self.config.warnings, *projection.warnings, *left_out]
        if self.store.unfinished():
            warnings.append("an interrupted change will be finished by the next install")
        return results.ToolList(tools, if_any(warnings))

    def broken(self) -> tuple[BrokenTool, ...]:
        """The installed tools that cannot run, after comparing every file with its receipt.

        Raises `EnactError` when the list of installed tools cannot be read.
        """
        self.store.tools()
        self.store.mcp()
        projection = self.projection()
        checked = [self._problem(found) for found in projection.installed.values()]
        return (*projection.broken, *(each for each in checked if each))

    def run(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        session: str | None = None,
        report: Report = _quiet,
    ) -> results.RunResult:
        """Run any tool by name; one that is not installed is run from a temporary copy."""
        from fleet_agentpack.enact.runner import Runnable

        wanted, given = parse(tool), args or {}
        found = self._installed(wanted, session)
        if found:
            return self._run_installed(found, _script(found.manifest, wanted), given, report)
        config = self.config
        execution = config.execution
        acquired = self._sources.acquire(
            wanted, config, lambda: report(0, None, f"fetching {wanted}")
        )
        script = _script(acquired.manifest, wanted)
        with acquired.on_disk() as folder:
            runnable = Runnable(acquired.manifest, folder, builtin=acquired.folder is not None)
            result = self._runner.run(runnable, script, given, execution, report)
        return replace(result, warnings=if_any(acquired.warnings))

    # Projected tools

    def projection(self, session: str | None = None) -> Projection:
        """What a session sees."""
        with self._reading:
            return self._sessions.projector(session).read()

    def call(
        self, tool: Projected, given: Mapping[str, Any], report: Report = _quiet
    ) -> results.RunResult:
        """Run a projected tool, after comparing its files with its receipt."""
        return self._run_installed(tool.installed, tool.script, given, report)

    def fingerprint(self) -> object:
        """A value that differs when some session's list of tools has changed."""
        with self._reading:
            return self._sessions.revision()

    def sources(self) -> Mapping[str, Stamp | None]:
        """The files whose change may change some session's list of tools, as last read."""
        with self._reading:
            return self._sessions.sources()

    def end_session(self, session: str) -> None:
        """Forget a session and what was installed for it."""
        self._sessions.end(session)

    def close(self) -> None:
        """Close connections and forget every session."""
        if "_sources" in self.__dict__:
            self._sources.close()
        self._sessions.end_all()

    # For people

    @property
    def toolsets(self) -> Toolsets:
        """Which of the installed tools clients see."""
        from fleet_agentpack.enact.toolsets import Toolsets

        return Toolsets(self.store)

    def project_tools(self) -> results.ToolList:
        """The tools that the project in the working directory pins."""
        pins = ToolsFile.read(self._settings.project_file).tools
        return results.ToolList(tuple(itertools.starmap(results.InstalledTool, pins.items())))

    def install_project(self) -> results.ChangeResult:
        """Install every tool that the project pins."""
        pinned = self.project_tools().tools
        done = [self.install(each.name, each.version, project=True) for each in pinned]
        message = "\n".join(each.message for each in done) or "The project pins no tools"
        told = (each.warnings for each in done if each.warnings is not UNKNOWN)
        once = dict.fromkeys(itertools.chain.from_iterable(told))
        return results.ChangeResult(message, if_any(once))

    def _run_installed(
        self, found: Installed, script: Script | None, given: Mapping[str, Any], report: Report
    ) -> results.RunResult:
        from fleet_agentpack.enact.runner import Runnable

        receipt = self._check(found)
        folder = found.store.folder(found.name, found.version)
        runnable = Runnable(found.manifest, folder.resolve(), receipt.is_builtin)
        return self._runner.run(runnable, script, given, self.config.execution, report)

    def _check(self, found: Installed) -> Receipt:
        """Refuse changed files and tools that today's policy would not let in."""
        receipt = found.store.verify(found.name, found.version)
        self._sources.recheck(receipt, self.config)
        return receipt

    def _problem(self, found: Installed) -> BrokenTool | None:
        try:
            self._check(found)
        except EnactError as error:
            return BrokenTool(found.name, found.version, error)
        return None

    def _installed(self, wanted: Reference, session: str | None) -> Installed | None:
        """The installed version that is wanted. Raises `EnactError` when it is broken."""
        projection = self.projection(session)
        found = projection.installed.get(wanted.name)
        if found:
            return found if wanted.version in (None, found.version) else None
        for broken in projection.broken:
            if broken.name == wanted.name and wanted.version in (None, broken.version):
                raise broken.error.with_traceback(None)
        return None

    def _writable_store(self, session: str | None) -> Store:
        if not self._settings.session_scope:
            return self.store
        if session is None:
            message = "this server installs tools per session, and this call has no session"
            run = Action("enact__run", text="or run it without installing it: {}")
            step = "connect with a session or a token"
            raise EnactError("SESSION_REQUIRED", message, step, run)
        return self._sessions.store(session)

    def _not_ours(self, name: str, store: Store) -> EnactError:
        if store is not self.store and name in self.store.tools().tools:
            remove = Action.command("tool", "uninstall", name, text="ask the user to run: {}")
            reason = "was installed for all sessions; a session can remove only its own tools"
            return EnactError("NOT_ALLOWED", f"{name} {reason}", remove, tool=name)
        return EnactError.not_installed(name)


def _script(manifest: Manifest, wanted: Reference) -> Script | None:
    """The script that a reference names."""
    if wanted.script and wanted.script in manifest.scripts:
        return manifest.scripts[wanted.script]
    entries, main = manifest.entries(), Entry(manifest.name)
    if not wanted.script and main in entries:
        return entries[main]
    known = sorted(manifest.scripts)
    said = f"has no script {wanted.script}" if wanted.script else "has several scripts: name one"
    runs = [f"{manifest.name}:{each}" for each in known[:5]]
    raise EnactError(
        "SCRIPT_NOT_FOUND",
        f"{manifest.name} {said}",
        *[Action("enact__run", {"tool": each}, "call {}", "{}") for each in runs],
        *([] if known else [f"run {manifest.name} without a script"]),
        tool=manifest.name,
        scripts=known,
    )
