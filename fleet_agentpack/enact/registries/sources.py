"""Which registry a tool comes from; fetches, verifies and applies the trust policy."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fleet_agentpack.enact import bundle, manifest
from fleet_agentpack.enact.config import Config, RegistryConfig
from fleet_agentpack.enact.errors import EnactError, ask_user
from fleet_agentpack.enact.names import BUILTIN_NAMESPACE, Reference, is_builtin, is_reserved
from fleet_agentpack.enact.receipt import BUILTIN, Receipt
from fleet_agentpack.enact.registries.directory import DirectoryRegistry
from fleet_agentpack.enact.registries.registry import Registry, Release, Tick, no_tick, rank
from fleet_agentpack.enact.registries.remote import RemoteRegistry
from fleet_agentpack.enact.registries.search_cache import SearchCache
from fleet_agentpack.enact.registries.transport import RegistryHttp
from fleet_agentpack.enact.results import Hit
from fleet_agentpack.enact.schemas import check_schemas
from fleet_agentpack.enact.store import write_tree
from fleet_agentpack.enact.trust.attestations import Subject
from fleet_agentpack.enact.trust.findings import Finding, Findings
from fleet_agentpack.enact.trust.policy import Trusted, TrustPolicy
from fleet_agentpack.kit.paths import expand_home
from fleet_agentpack.kit.results import jsonable

BUILTIN_ROOT = Path(__file__).parent.parent / "builtin"


@dataclass(frozen=True)
class Acquired:
    """A tool's files, verified and trusted, in memory only."""

    package: bundle.Package
    manifest: manifest.Manifest
    receipt: Receipt
    warnings: tuple[str, ...]
    folder: Path | None = None  # where a built-in tool is on disk

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """A directory with the tool's files, for as long as it is needed."""
        if self.folder:
            yield self.folder.resolve()
            return
        with tempfile.TemporaryDirectory(prefix="enact-run-") as scratch:
            folder = Path(scratch).resolve() / "tool"
            write_tree(folder, self.package)
            yield folder


class Sources:
    """The built-in registry and the configured one."""

    def __init__(
        self, policy: TrustPolicy, findings: Findings, cache: SearchCache, home: Path
    ) -> None:
        self.builtin = DirectoryRegistry(BUILTIN_ROOT, BUILTIN, f"{BUILTIN_NAMESPACE}/")
        self.findings = findings
        self._policy = policy
        self._cache = cache
        self._home = home
        self._builtin_hits: list[Hit] | None = None
        self._builtin_files: dict[str, dict[str, bundle.FileRecord]] = {}
        self._remotes: dict[RegistryConfig, Registry] = {}

    def search(self, query: str, limit: int, config: Config) -> tuple[list[Hit], list[str]]:
        """The best matches of all registries, the built-in tools first, and what went wrong."""
        if self._builtin_hits is None:
            self._builtin_hits = self.builtin.hits()
        found = rank(self._builtin_hits, query)
        remote, warnings = self._search_configured(query, limit, config)
        known = {hit.name for hit in found}
        found += [hit for hit in remote if hit.name not in known and not is_reserved(hit.name)]
        if not found and not warnings and config.registry.url is None:
            warnings = [f"only built-in tools were searched: {config.path} sets no registry.url"]
        return found[:limit], [*config.warnings, *warnings]

    def acquire(self, wanted: Reference, config: Config, tick: Tick = no_tick) -> Acquired:
        """Fetch and verify a tool, apply the trust policy, write nothing. Raises `EnactError`."""
        trust = config.trust
        registry = self._registry_of(wanted.name, config)
        release = registry.release(wanted.name, wanted.version)
        data = registry.download(release, tick)
        digest = hashlib.sha256(data).hexdigest()
        subject = Subject(release.name, release.version, digest)
        if registry is self.builtin:
            trusted = Trusted(BUILTIN)
        else:
            fetch = partial(registry.attestations, release, tick)
            trusted = self._policy.decide(subject, trust, fetch)
        package, read = _opened(release, data)
        self._policy.check_image(f"{release.name}@{release.version}", read.image, trust)
        receipt = Receipt(
            name=release.name,
            version=release.version,
            source=registry.label,
            digest=digest,
            files=package.records(),
            trust={"policy": trusted.policy, "signers": jsonable(trusted.signers)},
        )
        folder = self.builtin.folder(release) if registry is self.builtin else None
        warnings = (*config.warnings, *trusted.warnings, *read.warnings)
        return Acquired(package, read, receipt, warnings, folder)

    def versions(self, name: str, config: Config) -> Mapping[str, bool]:
        """The versions that a registry offers, and which are withdrawn. Raises `EnactError`."""
        return self._registry_of(name, config).versions(name)

    def audit(self, receipt: Receipt, config: Config, tick: Tick = no_tick) -> Finding:
        """Ask the registry about an installed version again, and keep what it says.

        Raises `EnactError` when it does not tell; what is known stays known.
        """
        registry = self._registry_of(receipt.name, config)
        if registry.label != receipt.source:
            raise EnactError.registry_error(
                registry.label,
                f"{receipt.name} came from {receipt.source}, which is not the registry any more",
            )
        subject = Subject(receipt.name, receipt.version, receipt.digest)
        try:
            release = registry.release(receipt.name, receipt.version)
        except EnactError as error:
            if error.code != "VERSION_YANKED":
                raise
            found = Finding(receipt.digest, time.time(), withdrawn=error.message)
        else:
            fetch = partial(registry.attestations, release, tick)
            found = self._policy.look_again(subject, config.trust, fetch)
        self.findings.keep(subject.label, found)
        return found

    def renew(self, receipt: Receipt, config: Config) -> None:
        """Let what an install has just found take the place of what an earlier check did."""
        label = f"{receipt.name}@{receipt.version}"
        if self.findings.of(label, receipt.digest):
            auditors = tuple(each.text for each in config.trust.auditors)
            found = Finding(receipt.digest, time.time(), auditors, receipt.signers)
            self.findings.keep(label, found)

    def recheck(self, receipt: Receipt, image: str | None, config: Config) -> None:
        """Check an installed tool against today's policy. Raises `EnactError` if it is refused."""
        trust = config.trust
        if not receipt.is_builtin:
            finding = self.findings.of(f"{receipt.name}@{receipt.version}", receipt.digest)
            self._policy.recheck(receipt, finding, trust)
            self._policy.check_image(f"{receipt.name}@{receipt.version}", image, trust)
        elif self._files_of_builtin(receipt) != receipt.files:
            change = "this version of fleet-agentpack has different files for it"
            raise EnactError.tool_changed(receipt.name, receipt.version, change)

    def close(self) -> None:
        """Close the connections."""
        for registry in self._remotes.values():
            if isinstance(registry, RemoteRegistry):
                registry.close()

    def _files_of_builtin(self, receipt: Receipt) -> dict[str, bundle.FileRecord] | None:
        """The files that this package has for a built-in tool, whatever the receipt says."""
        key = f"{receipt.name}@{receipt.version}"
        if key not in self._builtin_files:
            try:
                release = self.builtin.release(receipt.name, receipt.version)
                package = bundle.unpack(self.builtin.download(release))
            except (EnactError, bundle.BundleError):
                return None
            self._builtin_files[key] = package.records()
        return self._builtin_files[key]

    def _registry_of(self, name: str, config: Config) -> Registry:
        if is_reserved(name):
            if is_builtin(name):
                return self.builtin
            raise EnactError.tool_not_found(name, "that is the name of a meta-tool")
        registry = self._configured(config)
        if registry is None:
            hint = "no registry is configured, so only the built-in tools are available"
            step = ask_user(f"set registry.url in {config.path}")
            raise EnactError.tool_not_found(name, hint, step)
        return registry

    def _search_configured(
        self, query: str, limit: int, config: Config
    ) -> tuple[Sequence[Hit], list[str]]:
        try:
            registry = self._configured(config)
            if isinstance(registry, DirectoryRegistry):
                return registry.search(query, limit), []
        except EnactError as error:
            return [], [f"{error.message}; only built-in tools were searched"]
        if not isinstance(registry, RemoteRegistry):
            return [], []
        plain = " ".join(query.replace('"', " ").replace("\x00", " ").split())
        return self._cache.search(registry, plain, limit, config.registry)

    def _configured(self, config: Config) -> Registry | None:
        settings = config.registry
        if settings.url is None:
            return None
        if settings not in self._remotes:
            self._remotes[settings] = self._open(settings.url.strip(), config)
        return self._remotes[settings]

    def _open(self, url: str, config: Config) -> Registry:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return RemoteRegistry(RegistryHttp(url, config.registry.token))
        is_file = parts.scheme == "file"
        folder = Path(unquote(parts.path)) if is_file else expand_home(url, self._home)
        if (parts.scheme and not is_file) or not folder.is_absolute():
            reason = f"{url[:200]!r} is neither http(s), file: nor an absolute path"
            raise EnactError.config_invalid(config.path, f"registry.url: {reason}")
        return DirectoryRegistry(folder, str(folder))


def _opened(release: Release, data: bytes) -> tuple[bundle.Package, manifest.Manifest]:
    """Unpack a verified bundle and compare its manifest with what was asked for."""
    label = f"{release.name}@{release.version}"
    try:
        package = bundle.unpack(data)
    except bundle.BundleError as error:
        raise EnactError.bundle_invalid(label, str(error)) from error
    try:
        read = manifest.load(package)
        if not is_builtin(release.name):
            scripts = [script for script in read.entries().values() if script]
            both = (each for s in scripts for each in (s.input_schema, s.output_schema))
            check_schemas([schema for schema in both if schema is not None])
    except manifest.ManifestError as error:
        raise EnactError.manifest_invalid(label, str(error)) from error
    if read.name != release.name or (read.version or release.version) != release.version:
        own = f"it calls itself {read.name}@{read.version or 'no version'}"
        raise EnactError.manifest_invalid(label, own)
    return package, read
