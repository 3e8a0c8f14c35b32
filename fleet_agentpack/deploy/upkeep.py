"""The upkeep of a config repo: start one, pin its modules, fetch what is pinned."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from fleet_agentpack.deploy import manifest_file, module_entries, results
from fleet_agentpack.deploy.errors import DeployError, naming
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.manifest import FILE_NAME, Manifest
from fleet_agentpack.deploy.module_entries import NewEntry
from fleet_agentpack.deploy.pinning import Pinning
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.repo_write import LOCK_TIMEOUT_S, finish_writing
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import Envelope
from fleet_agentpack.deploy.running import locked
from fleet_agentpack.deploy.starter import make_starter
from fleet_agentpack.deploy.targets import OPTIONS, PROJECT_ONLY
from fleet_agentpack.deploy.transaction import Report, silent
from fleet_agentpack.deploy.upkeep_results import ModuleChanged, OutdatedData

Wish = bool | None  # None: as it fits


class Upkeep:
    """What changes a config repo and the store of checkouts, and no deployed file."""

    def __init__(
        self, home: Home, cache: Callable[[Request], AbstractContextManager[RepoCache]]
    ) -> None:
        self._home = home
        self._cache = cache

    def init(self, repo: str | None, *, with_git: bool = False) -> Envelope[results.Initialized]:
        """Write a starter repo."""
        with naming("init"):
            made = make_starter(self._home, self._home.repo(repo), with_git=with_git)
            return Envelope.of("init", made)

    def has_repo(self, repo: str | None) -> bool:
        """Whether there is a manifest already."""
        return (self._home.repo(repo) / FILE_NAME).exists()

    def add(self, request: Request, entry: NewEntry) -> Envelope[ModuleChanged]:
        """Add a module to the manifest."""
        with naming("add"):
            repo = self._home.repo(request.repo)
            finish_writing(self._home, repo)
            with locked(self._home, LOCK_TIMEOUT_S):
                return Envelope.of("add", module_entries.add(repo, entry))

    def remove(self, request: Request, module_id: str) -> Envelope[ModuleChanged]:
        """Take a module out of the manifest."""
        with naming("remove"):
            repo = self._home.repo(request.repo)
            finish_writing(self._home, repo)
            with locked(self._home, LOCK_TIMEOUT_S):
                return Envelope.of("remove", module_entries.remove(repo, module_id))

    def outdated(self, request: Request, report: Report = silent) -> Envelope[OutdatedData]:
        """Compare the pinned git modules with what their refs point to now."""
        with naming("outdated"), self._cache(request) as cache:
            pinning = self._pinning(request, cache, report)
            return Envelope.of("outdated", OutdatedData(pinning.outdated(self._manifest(request))))

    def lock(self, request: Request, report: Report = silent) -> Envelope[results.Locked]:
        """Pin every module."""
        with naming("lock"), self._cache(request) as cache:
            pinning = self._pinning(request, cache, report)
            return Envelope.of("lock", pinning.lock(self._manifest(request)))

    def fetch(self, request: Request, report: Report = silent) -> Envelope[results.Fetched]:
        """Bring every pinned commit here."""
        with naming("fetch"), self._cache(request) as cache:
            return Envelope.of("fetch", self._pinning(request, cache, report).fetch())

    def update(
        self,
        request: Request,
        report: Report = silent,
        *,
        lock: Wish = None,
        fetch: Wish = None,
        moving: tuple[str, ...] = (),
    ) -> Envelope[results.Updated]:
        """Pin what is not pinned yet (all anew when asked), then fetch (unless asked not to).

        With modules that are `moving`, these are pinned anew and no others.
        """
        with naming("update"), self._cache(request) as cache:
            wants_lock, wants_fetch = self.update_steps(
                request, lock=lock, fetch=fetch, moving=moving
            )
            pinning, found = self._pinning(request, cache, report), self._manifest(request)
            keep = not lock or bool(moving)
            wants = {"lock": wants_lock, "fetch": wants_fetch, "keep": keep}
            done = pinning.update(found, **wants, moving=moving)
            return Envelope.of("update", done)

    def update_steps(
        self,
        request: Request,
        *,
        lock: bool | None,
        fetch: bool | None,
        moving: tuple[str, ...] = (),
    ) -> tuple[bool, bool]:
        """Whether an update would lock, and whether it would fetch."""
        manifest = self._manifest(request) if moving else None
        for module_id in moving:
            if manifest and module_id not in {module.id for module in manifest.modules}:
                raise module_entries.no_module(module_id, manifest)
        lock = True if moving else lock
        with naming("update"), self._cache(request) as cache:
            pinning, wants_fetch = self._pinning(request, cache), fetch is not False
            if lock is False and wants_fetch and not pinning.path.exists():
                raise DeployError.because(
                    "lockfile_missing",
                    f"lockfile missing: {pinning.path}; run `fleet-agentpack lock`, or drop"
                    " --no-lock",
                    next_actions=("run_lock", "retry_command"),
                )
            wants_lock = pinning.is_due(lambda: self._manifest(request)) if lock is None else lock
            return wants_lock, wants_fetch

    def _pinning(self, request: Request, cache: RepoCache, report: Report = silent) -> Pinning:
        return Pinning(self._home, self._home.repo(request.repo), cache.reader.hashes, report)

    def _manifest(self, request: Request) -> Manifest:
        return manifest_file.load(self._home.repo(request.repo), OPTIONS, PROJECT_ONLY)
