"""The tool registry's use cases: search, learn, install, uninstall, list, run, and toolsets.

Every server opens this service to list what is installed, so what only a call needs (the registry
client, trust, running tools) is imported by the first call that needs it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fleet_agentpack.enact import permissions, results
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import Reference, is_builtin, parse
from fleet_agentpack.enact.projection import pinned_by
from fleet_agentpack.enact.results import BrokenTool, if_any
from fleet_agentpack.enact.script_choice import script_of
from fleet_agentpack.enact.sessions import Sessions
from fleet_agentpack.enact.store import Store
from fleet_agentpack.enact.tool_lists import ToolsFile
from fleet_agentpack.kit.actions import named
from fleet_agentpack.kit.results import UNKNOWN

if TYPE_CHECKING:
    from fleet_agentpack.enact.audits import Audits
    from fleet_agentpack.enact.config import Config, ConfigFile
    from fleet_agentpack.enact.grants import Grants
    from fleet_agentpack.enact.installer import Installer
    from fleet_agentpack.enact.manifest import Script
    from fleet_agentpack.enact.projection import Installed, Projected, Projection
    from fleet_agentpack.enact.receipt import Receipt
    from fleet_agentpack.enact.registries.sources import Sources
    from fleet_agentpack.enact.runner import Report, Runner
    from fleet_agentpack.enact.runs import Runs
    from fleet_agentpack.enact.settings import EnactSettings
    from fleet_agentpack.enact.toolsets import Toolsets
    from fleet_agentpack.enact.upkeep import Upkeep
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
        folder = settings.state / "enact-sessions"
        self._sessions = Sessions(self.store, folder, own=settings.session_scope)
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
        from fleet_agentpack.enact.trust.accounts import KnownAccounts
        from fleet_agentpack.enact.trust.findings import Findings
        from fleet_agentpack.enact.trust.policy import TrustPolicy
        from fleet_agentpack.enact.trust.vetoes import KnownVetoes

        cache = SearchCache(self._settings.cache / "enact-search")
        state = self._settings.state
        accounts = KnownAccounts(state / "enact-accounts.json")
        vetoes = KnownVetoes(state / "enact-vetoes.json")
        policy = TrustPolicy(self._config_file.path, accounts, vetoes)
        return Sources(policy, Findings(state / "enact-audits.json"), cache, self._settings.home)

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
        bounds = permissions.bounds(acquired.manifest, self.config.execution_or_default)
        text = describe(acquired.manifest, {}, bounds)
        return results.LearnResult(text, if_any(acquired.warnings))

    def documentation(self, tool: str, session: str | None = None) -> str:
        """The documentation of an installed tool; nothing is fetched."""
        from fleet_agentpack.enact.tool_documentation import describe

        wanted = parse(tool)
        found = self._installed(wanted, session)
        if found is None:
            raise EnactError.not_installed(wanted.name)
        image = self._check(found).image
        bounds = permissions.bounds(found.manifest, self.config.execution_or_default, image)
        names = self.projection(session).names.get(found.name, {})
        return describe(found.manifest, names, bounds)

    def install(
        self,
        tool: str,
        version: str | None = None,
        session: str | None = None,
        report: Report = _quiet,
        *,
        project: bool = False,
        allow_downgrade: bool = False,
        accept_signers: Sequence[str] = (),
        agree: Callable[[EnactError], bool] | None = None,
    ) -> results.ChangeResult:
        """Verify a tool and install it; MCP clients see it at once."""
        from fleet_agentpack.enact.installer import Consent

        own = self._sessions.writable(session)
        stores = [self.store] if own is self.store else [self.store, own]
        project_file = self._settings.project_file if project else None
        consent = Consent(allow_downgrade, accept_signers, agree)
        wanted = parse(tool, version)
        return self.installer.install(wanted, stores, report, consent, project_file)

    @cached_property
    def installer(self) -> Installer:
        """Puts verified tools into a store."""
        from fleet_agentpack.enact.installer import Installer

        state = self._settings.state
        return Installer(self._sources, lambda: self.config, lambda: self._runner, state)

    @cached_property
    def grants(self) -> Grants:
        """What the person has granted to installed tools."""
        from fleet_agentpack.enact.grants import Grants

        return Grants(self._settings, self._with_receipt, lambda: self.config.execution_or_default)

    def build(self, tool: str, report: Report = _quiet) -> None:
        """Carry out the build of an installed tool again. Raises `EnactError`."""
        found, receipt = self._with_receipt(tool)
        self._runner.build(found.runnable(receipt), self.config.execution, report)

    def _with_receipt(self, tool: str) -> tuple[Installed, Receipt]:
        wanted = parse(tool)
        found = self._installed(wanted, None)
        if found is None:
            raise EnactError.not_installed(wanted.name)
        return found, self._check(found)

    @cached_property
    def audits(self) -> Audits:
        """What registries say of the installed tools since."""
        from fleet_agentpack.enact.audits import Audits

        return Audits(self._sources, lambda: self.config, self._check)

    def is_confined(self, name: str) -> bool:
        """Whether a tool always runs where it reaches only what its permissions say."""
        from fleet_agentpack.enact.runner import in_scope

        if is_builtin(name):
            return True
        try:
            execution = self.config.execution
        except EnactError:
            return False
        on_host = "local" in (execution.backend, execution.fallback)
        return not on_host and not any(in_scope(name, each) for each in execution.trusted_scopes)

    def mcp_names(self, tool: str, session: str | None = None) -> tuple[str, ...]:
        """Under which names MCP clients see an installed tool; none if a toolset hides it."""
        names = self.projection(session).names.get(parse(tool).name, {})
        return tuple(names.values())

    def uninstall(
        self, tool: str, session: str | None = None, *, project: bool = False
    ) -> results.ChangeResult:
        """Remove a tool."""
        wanted = parse(tool)
        store = self._sessions.writable(session)
        project_file = self._settings.project_file if project else None
        pins = ToolsFile.read(project_file) if project_file else store.tools()
        pinned = pins.tools.get(wanted.name)
        if pinned is None:
            raise self._sessions.not_ours(wanted.name, store)
        if wanted.version and wanted.version != pinned:
            raise EnactError.version_not_found(wanted.name, wanted.version, [pinned])
        removed = store.uninstall(wanted.name, project=project_file)
        self._runner.builds.forget_unneeded(store, wanted.name)
        message = f"Uninstalled {wanted.name}@{removed.version}"
        return results.ChangeResult(message, warnings=if_any(removed.warnings))

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
        if any(not is_builtin(name) for name in projection.installed):
            warnings += self.audits.notes(projection.installed.values())
            self.audits.in_background(projection.installed.values)
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
            return self._run_installed(found, script_of(found.manifest, wanted), given, report)
        config = self.config
        execution = config.execution
        acquired = self._sources.acquire(
            wanted, config, lambda: report(0, None, f"fetching {wanted}")
        )
        script = script_of(acquired.manifest, wanted)
        with acquired.on_disk() as folder:
            is_ours, image = acquired.folder is not None, acquired.manifest.image
            runnable = Runnable(
                acquired.manifest, folder, is_ours, image=image, digest=acquired.receipt.digest
            )
            with self.runs.kept(wanted.name, given) as running:
                result = self._runner.run(runnable, script, given, execution, report)
                running.result = result
        if acquired.manifest.build:
            self._runner.builds.forget_unneeded(self.store, wanted.name)
        told = () if result.warnings is UNKNOWN else result.warnings
        return replace(result, warnings=if_any([*acquired.warnings, *told]))

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

    def settle(self, timeout_s: float) -> None:
        """Wait a little for a daily check that a call has begun."""
        if "audits" in self.__dict__:
            self.audits.wait(timeout_s)

    def close(self) -> None:
        """Close connections and forget every session."""
        if "audits" in self.__dict__:
            self.audits.stop()
        for each in map(self.__dict__.get, ("_sources", "_runner")):
            if each is not None:
                each.close()
        self._sessions.end_all()

    # For people

    @property
    def toolsets(self) -> Toolsets:
        """Which of the installed tools clients see."""
        from fleet_agentpack.enact.toolsets import Toolsets

        return Toolsets(self.store)

    @cached_property
    def upkeep(self) -> Upkeep:
        """Newer versions, lock files, and what is known of each tool."""
        from fleet_agentpack.enact.upkeep import Upkeep

        return Upkeep(
            self, self._sources, lambda: self._settings.project_file, lambda: self._runner.builds
        )

    def _run_installed(
        self, found: Installed, script: Script | None, given: Mapping[str, Any], report: Report
    ) -> results.RunResult:
        if not is_builtin(found.name):
            self.audits.in_background(lambda: [found, *self.projection().installed.values()])
        receipt = self._check(found)
        runnable = found.runnable(receipt)
        with self.runs.kept(found.name, given) as running:
            try:
                execution = self.config.execution
                running.result = self._runner.run(runnable, script, given, execution, report)
            except EnactError as error:
                if error.code == "PERMISSION_REQUIRED":
                    error.remedy = self.grants.remedy(found, receipt, error)
                raise
        return running.result

    @cached_property
    def runs(self) -> Runs:
        """The last runs of every tool."""
        from fleet_agentpack.enact.runs import Runs

        return Runs(self._settings.state / "enact-runs")

    def _check(self, found: Installed) -> Receipt:
        """Refuse changed files and tools that today's policy would not let in."""
        receipt = found.store.verify(found.name, found.version)
        self._sources.recheck(receipt, found.manifest.image, self.config)
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
        settings = self._settings
        pinned = (
            pinned_by(settings.project_file, wanted.name, self.store) if settings.project else None
        )
        found = pinned or projection.installed.get(wanted.name)
        if found:
            return found if wanted.version in (None, found.version) else None
        for broken in projection.broken:
            if broken.name == wanted.name and wanted.version in (None, broken.version):
                raise broken.error.with_traceback(None)
        return None
