"""What registries and the stockyard list, entry by entry, and where the files of each are."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args
from urllib.parse import quote, urlencode

from fleet_agentpack.forge.access import masked_url
from fleet_agentpack.forge.definition import (
    MARKETPLACE,
    PLUGIN_MANIFEST,
    Definition,
    described,
    strings_of,
    text_of,
    version_of,
)
from fleet_agentpack.forge.errors import Loaded
from fleet_agentpack.forge.names import (
    NO_VERSION,
    Kind,
    Reference,
    Registry,
    checksum_of,
    git_url,
    is_commit,
    is_ref,
    is_registry_url,
    is_usable_name,
    local_path,
    path_in_market,
    plain_path,
    safe_url,
)
from fleet_agentpack.forge.results import DefinitionRow, Described
from fleet_agentpack.forge.trees import Tree
from fleet_agentpack.kit.mappings import UnparsableError, as_mapping, parse_object
from fleet_agentpack.kit.results import UNKNOWN, Maybe
from fleet_agentpack.kit.shapes import objects

if TYPE_CHECKING:
    from fleet_agentpack.forge.registries import RegistryAnswer, RegistryClient


@dataclass(frozen=True)
class ManifestFile:
    """A plugin whose manifest names its files, each by a URL."""

    url: str
    checksum: str | None = None  # hexadecimal SHA-256


@dataclass(frozen=True)
class GitFolder:
    """A directory in a git repository, at a commit where one is pinned."""

    url: str
    path: str = ""
    ref: str = ""
    commit: str = ""


@dataclass(frozen=True)
class LocalFolder:
    """A directory on this machine, below the registry's own."""

    root: str
    path: str = ""


@dataclass(frozen=True)
class Unavailable:
    """A plugin that is listed and cannot be installed from here."""

    why: str


Origin = ManifestFile | GitFolder | LocalFolder | Unavailable


def origin_as_text(origin: Origin) -> dict[str, str]:
    """Where a plugin came from, for a lockfile."""
    if isinstance(origin, ManifestFile):
        checksum = {"checksum": f"sha256-{origin.checksum}"} if origin.checksum else {}
        return {"type": "manifest", "url": origin.url, **checksum}
    if isinstance(origin, GitFolder):
        ref = {"ref": origin.ref} if origin.ref else {}
        return {"type": "git", "url": origin.url, "path": origin.path, **ref}
    if isinstance(origin, LocalFolder):
        return {"type": "directory", "url": Path(origin.root).as_uri(), "path": origin.path}
    return {"type": "unavailable"}


def origin_of_text(source: Mapping[str, str], commit: str) -> Origin | None:
    """The same read back and checked again: a lockfile comes from others too."""
    kind, url, path = source.get("type"), source.get("url", ""), plain_path(source.get("path"))
    if kind == "manifest" and is_registry_url(url):
        return ManifestFile(url, checksum_of(source.get("checksum")))
    if kind == "git" and path is not None and is_commit(commit) and git_url(url) == url:
        return GitFolder(url, path, "", commit)
    if kind == "directory" and path is not None and url.startswith("file:"):
        return LocalFolder(str(local_path(url)), path)
    return None


def elsewhere(registry: Registry, source: Mapping[str, object]) -> Origin | str:
    """What an entry's `source` object means, or why it cannot be used at all."""
    kind = source.get("source")
    if kind in ("npm", "pip"):
        package = source.get("package")
        return Unavailable(
            f"it is the {kind} package {package!r:.80}; packages are not installed here. "
            "Claude Code can: claude plugin install NAME@MARKETPLACE"
        )
    given = source.get("repo") if kind == "github" else source.get("url")
    if kind not in ("github", "url", "git", "git-subdir") or not isinstance(given, str):
        return Unavailable(f"its source {kind!r:.40} is of no known kind")
    url = git_url(given)
    if url is None or (url.startswith("file:") and not registry.url.startswith("file:")):
        return f"has a source that git must not fetch: {given!r:.80}"
    ref, commit, path = source.get("ref"), source.get("sha"), source.get("path")
    if ref and not is_ref(ref):
        return f"asks for {ref!r:.80}, which is no branch or tag"
    if commit and not is_commit(commit):
        return f"is pinned to {commit!r:.80}, which is no commit"
    inside = plain_path(path) if path else ""
    if inside is None:
        return f"has a path outside its repository: {path!r:.80}"
    return GitFolder(url, inside, str(ref or ""), str(commit or ""))


Format = Literal["claude", "fractary", "plugins"]
FORMATS = get_args(Format)
MOST_NAMED = 5  # entries that a warning names

_MANIFESTS = ("registry.json", "manifest.json")
_PLUGIN_FILES = (PLUGIN_MANIFEST, "plugin.json")
# What says something of the entry, and nothing of the plugin.
_OF_THE_ENTRY = ("source", "category", "tags", "strict", "revision", "manifest_url", "checksum")
# What an entry may take from the plugin's own manifest.
_DESCRIBING = ("description", "author", "license", "homepage", "repository", "keywords")


@dataclass(frozen=True)
class Offer(Described):
    """One plugin as a registry lists it."""

    registry: Registry
    origin: Origin
    homepage: Maybe[str] = UNKNOWN
    repository: Maybe[str] = UNKNOWN
    tags: tuple[str, ...] = ()
    downloads: Maybe[int] = UNKNOWN
    versions: tuple[str, ...] = ()  # this and any other that the registry names
    revision: str = ""  # what identifies the content; tells versions apart where there are none
    entry: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Catalogue:
    """What a registry lists, as it was parsed; what its entries lack may have been filled in."""

    data: Mapping[str, object]

    @property
    def name(self) -> object:
        """What the registry calls itself, if that is a text."""
        return self.data.get("name")

    @property
    def format(self) -> Format:
        """Which dialect it is in."""
        if (known := self.data.get("format")) in FORMATS:
            return cast("Format", known)
        first = next((each for each in self.entries if isinstance(each, dict)), {})
        return "claude" if "source" in first and "manifest_url" not in first else "fractary"

    @property
    def entries(self) -> tuple[object, ...]:
        """What it lists, readable or not."""
        entries = self.data.get("plugins")
        return tuple(entries) if isinstance(entries, list) else ()

    @property
    def commit(self) -> str:
        """The commit that it was read at; empty outside git."""
        commit = self.data.get("commit")
        return str(commit) if is_commit(commit) else ""


@dataclass(frozen=True)
class Manifest:
    """A plugin's own manifest, empty without one; a broken one is empty too, and says why."""

    data: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    problem: str = ""

    def added(self, entry: Mapping[str, object]) -> Manifest:
        """What a marketplace's entry adds: all that it says of a plugin without a manifest.

        An entry that only describes the plugin in other terms adds nothing.
        """
        given = {key: value for key, value in entry.items() if key not in _OF_THE_ENTRY}
        if not self.data:
            return Manifest(given)
        known = {"name", "version", "displayName", *_DESCRIBING, *self.data}
        return Manifest({key: value for key, value in given.items() if key not in known})


def read_catalogue(tree: Tree, name: str) -> Catalogue:
    """What a repository or a directory offers. Raises `UnparsableError` when that is nothing."""
    found = tree.read(MARKETPLACE, *_MANIFESTS)
    for path in (MARKETPLACE, *_MANIFESTS):
        read = _parsed(found, path)
        if isinstance(read.data.get("plugins"), list):
            kind: Format = "claude" if path == MARKETPLACE else "fractary"
            return _completed(tree, Catalogue({**read.data, "format": kind}))
        if path == MARKETPLACE and path in found:
            raise UnparsableError(read.problem or f"{path}: plugins must be an array")
    entries = list(_plugin_entries(tree, name))
    if not entries:
        looked = ", ".join((MARKETPLACE, *_MANIFESTS, *_PLUGIN_FILES))
        raise UnparsableError(f"there is no marketplace, manifest or plugin in it ({looked})")
    return _completed(tree, Catalogue({"name": name, "plugins": entries, "format": "plugins"}))


def offers_of(registry: Registry, catalogue: Catalogue) -> Loaded[list[Offer]]:
    """The plugins of a catalogue; an entry that cannot be shown at all is named in a warning."""
    offers: list[Offer] = []
    broken: list[str] = []
    for number, entry in enumerate(catalogue.entries, 1):
        found = _offer(registry, catalogue, entry, number)
        if isinstance(found, Offer):
            offers.append(found)
        else:
            broken.append(found)
    if not broken:
        return Loaded(offers)
    named = "; ".join(broken[:MOST_NAMED])
    more = f"; and {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else ""
    left = f"{len(broken)} of {len(catalogue.entries)} entries left out: {named}{more}"
    return Loaded(offers, (f"Registry {registry.name}: {left}",))


def _offer(registry: Registry, catalogue: Catalogue, entry: Any, number: int) -> Offer | str:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not is_usable_name(name):
        given = f"{name!r:.80} is not a usable name" if name else "has no name"
        return f"entry {number} {given}"
    origin = _origin(registry, catalogue, entry)
    if isinstance(origin, str):
        return f"{name} {origin}"
    version, downloads = version_of(entry), entry.get("downloads")
    if not version and isinstance(origin, ManifestFile):
        return f"{name} has no version"
    version = version or NO_VERSION
    others = [
        version_of(each) if isinstance(each, dict) else str(each)
        for each in (entry["versions"] if isinstance(entry.get("versions"), list) else [])
    ]
    category = strings_of([entry.get("category")])
    revision = next(iter(filter(None, strings_of([entry.get("revision")]))), "")
    if not revision and isinstance(origin, GitFolder):
        revision = origin.commit
    tags = [*strings_of(entry.get("tags")), *strings_of(entry.get("keywords")), *category]
    return Offer(
        **vars(described(entry["name"], version, entry)),
        registry=registry,
        origin=origin,
        homepage=text_of(entry, "homepage"),
        repository=text_of(entry, "repository"),
        tags=tuple(dict.fromkeys(tags)),
        downloads=downloads if type(downloads) is int else UNKNOWN,
        versions=tuple(dict.fromkeys([version, *(each for each in others if each)])),
        revision=revision,
        entry=entry,
    )


def _origin(registry: Registry, catalogue: Catalogue, entry: Mapping[str, object]) -> Origin | str:
    """Where a plugin's files are, or why the entry cannot be used at all."""
    manifest = entry.get("manifest_url") or entry.get("manifest")
    source = entry.get("source")
    if isinstance(manifest, str) and manifest:
        if registry.kind != "manifest" and "://" not in manifest:
            source = f"./{posixpath.dirname(manifest)}"
        else:
            url = safe_url(registry.url, manifest)
            checksum = checksum_of(entry.get("checksum"))
            return ManifestFile(url, checksum) if url else "has no usable manifest_url"
    if isinstance(source, str):
        return _relative(registry, catalogue, source)
    if not isinstance(source, Mapping):
        return "has neither a manifest_url nor a source"
    return elsewhere(registry, source)


def _relative(registry: Registry, catalogue: Catalogue, source: str) -> Origin | str:
    path = path_in_market(catalogue.data, source)
    if path is None:
        return f"has a source outside the marketplace: {source!r:.80}"
    if registry.kind == "git":
        return GitFolder(registry.url, path, registry.ref, catalogue.commit)
    if registry.kind == "directory":
        return LocalFolder(str(local_path(registry.url)), path)
    return Unavailable(
        "its files lie beside the marketplace, of which only the JSON file was added; "
        "add the repository instead: fleet-agentpack forge registry add OWNER/REPO"
    )


def _completed(tree: Tree, catalogue: Catalogue) -> Catalogue:
    """A catalogue with what the plugins' own manifests say, where those are at hand."""
    entries = list(catalogue.entries)
    paths: dict[int, str] = {}
    for number, entry in enumerate(entries):
        source = entry.get("source") if isinstance(entry, dict) else None
        path = path_in_market(catalogue.data, source)
        if path is not None:
            paths[number] = path
    files = tree.read(*(posixpath.join(p, f) for p in paths.values() for f in _PLUGIN_FILES))
    for number, path in paths.items():
        own, entry = manifest_in(files, path).data, as_mapping(entries[number])
        entry = {**{key: own[key] for key in _DESCRIBING if key in own}, **entry}
        entry["version"] = version_of(own) or version_of(entry)
        if not entry["version"]:
            entry["revision"] = tree.revision(path)
            del entry["version"]
        entries[number] = entry
    return Catalogue({**catalogue.data, "plugins": entries})


def manifest_in(files: Mapping[str, bytes], path: str = "") -> Manifest:
    """The manifest of the plugin in a directory, among some files."""
    found = (posixpath.join(path, name) for name in _PLUGIN_FILES)
    return next((_parsed(files, each) for each in found if each in files), Manifest())


def _plugin_entries(tree: Tree, name: str) -> Iterator[dict[str, str]]:
    """The plugins in a tree without a catalogue: itself, or directories in it."""
    for top in (None, "plugins", ""):
        inside = [""] if top is None else [posixpath.join(top, each) for each in tree.folders(top)]
        files = tree.read(*(posixpath.join(path, f) for path in inside for f in _PLUGIN_FILES))
        found = [(path, manifest_in(files, path)) for path in inside]
        for path, own in found:
            if own.path:
                known = own.data.get("name")
                usable = known if isinstance(known, str) and is_usable_name(known) else ""
                last = posixpath.basename(path) or name
                yield {"name": usable or last, "source": f"./{path}"}
        if any(own.path for _, own in found):
            return


def _parsed(files: Mapping[str, bytes], path: str) -> Manifest:
    if path not in files:
        return Manifest()
    try:
        return Manifest(parse_object(files[path]), path)
    except UnparsableError as error:
        return Manifest({}, path, f"{path}: {error}")


PAGE_SIZE = 100
MAX_PAGES = 20
MOST_METADATA = 100


class Stockyard:
    """One server of the stockyard API, through the cache."""

    def __init__(self, registry: Registry, client: RegistryClient) -> None:
        self._registry = registry
        self._client = client

    def listing(self, kind: Kind, *, want_tags: bool) -> Loaded[list[DefinitionRow]]:
        """Everything of a kind, a page at a time; nothing when a page is missing."""
        first = self._ask([_search_path(kind, 1)])[0]
        total = first.data["total"] if type(first.data.get("total")) is int else 0
        pages = min(MAX_PAGES, -(-total // PAGE_SIZE))
        answers = [first, *self._ask([_search_path(kind, n) for n in range(2, pages + 1)])]
        lost = [answer for answer in answers if _is_lost(answer)]
        if lost:
            return Loaded([], _warnings(lost[0]))
        warnings = list(_warnings(*answers))
        rows = [
            row
            for answer in answers
            for row in objects(answer.data.get("results"))
            if row.get("type", kind) == kind
        ]
        if len(rows) < total:
            warnings.append(f"The stockyard has {total} {kind}s; the first {len(rows)} are listed")
        usable = [row for row in rows if is_usable_name(row.get("name"), kind)]
        tags = self._tags(kind, usable) if want_tags else Loaded({})
        listed = [
            DefinitionRow(
                row["name"],
                version_of(row),
                text_of(row, "description"),
                tags.value.get(row["name"], UNKNOWN),
                "stockyard",
                self._shown(_definition_path(kind, row["name"], version_of(row))),
            )
            for row in usable
        ]
        return Loaded(listed, (*warnings, *tags.warnings))

    def versions(self, kind: Kind, name: str) -> Loaded[list[str]]:
        """The stable versions of a name."""
        answer = self._ask([_metadata_path(kind, name)])[0]
        return Loaded(_stable_versions(answer.data), _warnings(answer))

    def resolve(self, kind: Kind, reference: Reference) -> Loaded[Definition | None]:
        """The definition that a reference means."""
        metadata = self._ask([_metadata_path(kind, reference.name)])[0]
        chosen = reference.choose(_stable_versions(metadata.data))
        if chosen is None:
            return Loaded(None, _warnings(metadata))
        path = _definition_path(kind, reference.name, chosen)
        answer = self._ask([path])[0]
        warnings = _warnings(metadata, answer)
        if not answer.data:
            return Loaded(None, warnings)
        known = metadata.data.get("stockyard")
        extra = known if isinstance(known, dict) else {}
        defaults = {key: extra[key] for key in ("author", "license") if key in extra}
        data = {**defaults, **answer.data}
        shown = self._shown(path)
        return Loaded(Definition(kind, reference.name, chosen, "stockyard", shown, data), warnings)

    def _tags(
        self, kind: Kind, rows: Sequence[Mapping[str, Any]]
    ) -> Loaded[dict[str, tuple[str, ...]]]:
        """Tags are not part of a search result; they take one question for each name."""
        tags = {row["name"]: tuple(strings_of(row["tags"])) for row in rows if "tags" in row}
        unknown = [row["name"] for row in rows if row["name"] not in tags][:MOST_METADATA]
        answers = self._ask([_metadata_path(kind, name) for name in unknown])
        for name, answer in zip(unknown, answers, strict=True):
            extra = answer.data.get("stockyard")
            tags[name] = tuple(strings_of(extra.get("tags")) if isinstance(extra, dict) else [])
        return Loaded(tags, _warnings(*(each for each in answers if not _is_lost(each))))

    def _absolute(self, path: str) -> str:
        base = self._registry.url.rstrip("/")
        return f"{base}/{path}" if base.endswith("/api/v1") else f"{base}/api/v1/{path}"

    def _shown(self, path: str) -> str:
        return masked_url(self._absolute(path))

    def _ask(self, paths: Sequence[str]) -> list[RegistryAnswer]:
        asked = [(self._registry, self._absolute(each)) for each in paths]
        return [_known(answer) for answer in self._client.ask(asked)]


def _known(answer: RegistryAnswer) -> RegistryAnswer:
    """The answer; that there is no such name is no error."""
    is_missing = answer.error is not None and answer.error.details.get("status") == 404
    return replace(answer, data={}, error=None) if is_missing else answer


def _is_lost(answer: RegistryAnswer) -> bool:
    return answer.error is not None and not answer.data


def _warnings(*answers: RegistryAnswer) -> tuple[str, ...]:
    """Why answers are missing or old."""
    return tuple(
        f"The stockyard could not be read: {answer.error}"
        + ("" if _is_lost(answer) else "; using its last answer")
        for answer in answers
        if answer.error
    )


def _search_path(kind: Kind, page: int) -> str:
    return "search?" + urlencode({"q": "", "type": kind, "page": page, "pageSize": PAGE_SIZE})


def _metadata_path(kind: Kind, name: str) -> str:
    return f"{kind}s/{quote(name, safe='@')}/metadata"


def _definition_path(kind: Kind, name: str, version: str) -> str:
    return f"{kind}s/{quote(name, safe='@')}/versions/{quote(version, safe='')}"


def _stable_versions(metadata: Mapping[str, Any]) -> list[str]:
    return [
        row["version"]
        for row in objects(metadata.get("versions"))
        if isinstance(row.get("version"), str) and row.get("status", "stable") == "stable"
    ]
