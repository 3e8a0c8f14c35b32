"""A plugin's manifest and parts in any dialect; what registries offer, chosen and fetched whole."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from fleet_agentpack.forge.access import masked_url
from fleet_agentpack.forge.catalogue import (
    GitFolder,
    LocalFolder,
    ManifestFile,
    Offer,
    Unavailable,
    manifest_in,
)
from fleet_agentpack.forge.configuration import Configuration
from fleet_agentpack.forge.definition import (
    PLUGIN_MANIFEST,
    SUFFIXES,
    described,
    strings_of,
    text_of,
)
from fleet_agentpack.forge.errors import SEE_REGISTRIES, ForgeError
from fleet_agentpack.forge.names import (
    Reference,
    checksum_of,
    is_usable_name,
    plain_path,
    safe_url,
    version_order,
)
from fleet_agentpack.forge.registries import RegistryClient, Survey
from fleet_agentpack.forge.results import Components, PluginInfo
from fleet_agentpack.forge.trees import PATIENT_S, FileContent, Snapshot, write_files
from fleet_agentpack.kit.mappings import (
    UnparsableError,
    as_mapping,
    parse_json,
    parse_yaml,
    read_mapping,
)
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.results import UNKNOWN, Maybe, json_file
from fleet_agentpack.kit.semver import best_version
from fleet_agentpack.kit.textsearch import TextIndex

HOOKS, SERVERS = "hooks/hooks.json", ".mcp.json"


def plugin_info(
    name: str, version: str, manifest: Mapping[str, object], parts: Components
) -> PluginInfo:
    """A plugin as its manifest describes it."""
    keywords = strings_of(manifest.get("keywords") or manifest.get("tags"))
    repository = manifest.get("repository")
    inner = repository if isinstance(repository, Mapping) else {"url": repository}
    return PluginInfo(
        **vars(described(name, version, manifest)),
        homepage=text_of(manifest, "homepage"),
        repository=text_of(inner, "url"),
        keywords=tuple(keywords) or UNKNOWN,
        components=parts,
        dependencies=dependencies_of(manifest),
    )


def dependencies_of(manifest: Mapping[str, object]) -> Maybe[dict[str, str]]:
    """The plugins that a plugin needs, written as a map or as a list."""
    found = manifest.get("dependencies", manifest.get("requires"))
    if isinstance(found, Mapping):
        return {str(name): str(wanted) for name, wanted in found.items()}
    if not isinstance(found, list):
        return UNKNOWN
    pairs = {}
    for each in found:
        if isinstance(each, Mapping) and isinstance(each.get("name"), str):
            pairs[each["name"]] = str(each.get("version", "*"))
        elif isinstance(each, str):
            name, _, wanted = each[1:].partition("@")
            pairs[each[:1] + name] = wanted or "*"
    return pairs


def of_offer(offer: Offer) -> dict[str, str | list[str]]:
    """A registry's entry for a plugin in the form of a manifest."""
    names = ("description", "author", "license", "homepage", "repository")
    known = {name: getattr(offer, name) for name in names if getattr(offer, name) is not UNKNOWN}
    return {**known, "tags": list(offer.tags)}


def components(manifest: Mapping[str, object], folder: Path | None = None) -> Components:
    """The names of a plugin's parts: those that its manifest lists, then those only on disk."""
    inner = manifest.get("components")
    table = {**manifest, **inner} if isinstance(inner, Mapping) else manifest

    def named(*fields: str) -> tuple[str, ...]:
        listed = [name for field in fields for name in _names(table.get(field), folder)]
        on_disk = [name for field in fields for name in _names_in(folder, field)]
        return tuple(dict.fromkeys([*listed, *on_disk]))

    return Components(
        agents=named("agents"),
        tools=named("tools", "skills"),
        workflows=named("workflows"),
        hooks=tuple(dict.fromkeys([*_keys_of(table, "hooks", folder, HOOKS), *named("hooks")])),
        commands=named("commands"),
        mcpServers=tuple(dict.fromkeys(_keys_of(table, "mcpServers", folder, SERVERS))) or UNKNOWN,
        instructions=("AGENTS.md",) if folder and (folder / "AGENTS.md").is_file() else UNKNOWN,
    )


def _keys_of(
    table: Mapping[str, object], key: str, folder: Path | None, usual: str
) -> Iterator[str]:
    """The events of hooks or the names of servers: a manifest's own, then those in files."""
    given = table.get(key)
    yield from _keys(given, key)
    for file in (usual, given) if isinstance(given, str) else (usual,):
        yield from _keys_in(folder, file, key)


def _keys(data: object, key: str) -> list[str]:
    """The keys of a table, which may be a table inside of it."""
    inner = data.get(key, data) if isinstance(data, Mapping) else None
    return [str(each) for each in inner] if isinstance(inner, Mapping) else []


def _keys_in(folder: Path | None, name: str, key: str) -> list[str]:
    """The same of a file of a plugin, if it can be read."""
    path = (folder or Path()) / name
    try:
        return _keys(read_mapping(path), key) if folder and is_inside(path, folder) else []
    except (FileNotFoundError, UnparsableError):
        return []


def _names(items: object, folder: Path | None) -> list[str]:
    names: list[str] = []
    for item in [items] if isinstance(items, str) else items if isinstance(items, list) else []:
        name = item.get("name") if isinstance(item, Mapping) else item
        if isinstance(name, str) and name:
            path = PurePosixPath(name)
            is_file = path.suffix in (*SUFFIXES, ".js", ".json")
            if isinstance(items, str) and not is_file:
                names += _names_in(folder, name)  # a directory of them
            elif path.suffix != ".json" or not isinstance(items, str):
                names.append(path.stem if is_file else path.name)
    return names


def _names_in(folder: Path | None, name: str) -> list[str]:
    """The names of the files and directories of a component, those of commands with `:`."""
    if folder is None:
        return []
    base = folder / name
    try:
        entries = sorted(base.iterdir()) if is_inside(base, folder) else []
    except OSError:
        return []
    found = []
    for each in entries:
        if each.name.startswith(".") or each.name in (PurePosixPath(HOOKS).name, "README.md"):
            continue
        if each.is_dir() and name == "commands":
            inner = [path for path in sorted(each.rglob("*.md")) if path.is_file()]
            found += [":".join(path.relative_to(base).with_suffix("").parts) for path in inner]
        else:
            found.append(each.name if each.is_dir() else each.stem)
    return found


# Kind of component → the endings its files may have; the first is the default.
ENDINGS = {
    "agents": (".yaml", ".yml", ".md"),
    "tools": (".yaml", ".yml", ".md"),
    "workflows": (".yaml", ".yml", ".json"),
    "templates": (".yaml", ".yml", ".md"),
    "hooks": (".js", ".sh", ".py"),
    "commands": (".md",),
}


@dataclass(frozen=True)
class ListedComponent:
    """One component as a manifest lists it, not yet checked."""

    kind: str
    name: object
    source: object
    checksum: str | None


def listed_components(manifest: Mapping[str, Any]) -> Iterator[ListedComponent]:
    """The components that a manifest lists."""
    inner = manifest.get("components")
    table = {**manifest, **inner} if isinstance(inner, Mapping) else manifest
    for kind in ENDINGS:
        items = table.get(kind)
        for item in items if isinstance(items, list) else ():
            fields = item if isinstance(item, Mapping) else {"name": item}
            source = fields.get("source") or fields.get("url") or fields.get("file")
            yield ListedComponent(
                kind, fields.get("name"), source, checksum_of(fields.get("checksum"))
            )


def listed_files(
    offer: Offer, origin: ManifestFile, manifest: Mapping[str, Any]
) -> Iterator[tuple[str, str, str | None]]:
    """The files of a plugin: where each goes, where it comes from, what it must hash to."""
    for each in listed_components(manifest):
        url, kind = safe_url(origin.url, each.source), each.kind
        if url is None or not is_usable_name(each.name) or "/" in str(each.name):
            raise ForgeError.invalid(
                f"{offer.name}: one of its {kind} has no usable name or source; "
                "nothing was installed",
                "Tell the plugin's maintainer",
                plugin=offer.name,
            )
        ending = PurePosixPath(urlsplit(url).path).suffix
        file_name = f"{each.name}{ending if ending in ENDINGS[kind] else ENDINGS[kind][0]}"
        yield f"{kind}/{file_name}", url, each.checksum


LEAST_SHARE = 0.1  # of the best match's score; what is below shares a common word at most
NAME_WEIGHT = 2  # how often a name counts beside the text that describes it
MOST_SIMILAR = 3
LISTED = ("skills", "agents", "commands")  # parts that an entry may list one by one


@dataclass(frozen=True)
class Package:
    """A plugin that a registry offers, with its own manifest, and its files where it has them."""

    offer: Offer
    manifest: dict[str, Any]
    files: dict[str, FileContent] = field(default_factory=dict)
    commit: str = ""
    added: Mapping[str, Any] = field(default_factory=dict)  # to its manifest, by the registry
    warnings: tuple[str, ...] = ()

    @property
    def parts(self) -> Components:
        """The names of what it contains."""
        if not self.files:
            return components(self.manifest)
        with tempfile.TemporaryDirectory() as scratch:
            write_files(self.files, Path(scratch))
            return components(self.manifest, Path(scratch))


def ranked(offers: Sequence[Offer], query: str, tags: Iterable[str]) -> list[Offer]:
    """Matches by how well they match, then by registry; each plugin of a registry once.

    The words of the query count in any order, in part and misspelt; of several tags one is enough.
    """
    wanted = {tag.lower() for tag in tags}
    known: dict[tuple[str, str], Offer] = {}
    for offer in offers:
        if not wanted or wanted & {tag.lower() for tag in offer.tags}:
            known.setdefault((offer.registry.name, offer.name), offer)
    order_of = {offer.registry.name: at for at, offer in reversed(list(enumerate(offers)))}
    kept = sorted(known.values(), key=lambda each: (order_of[each.registry.name], each.name))
    phrase = query.lower().strip()
    if not phrase:
        return kept
    found = TextIndex([_text(offer) for offer in kept]).best(phrase, len(kept))
    scores = {match.position: match.score for match in found}
    least = max(scores.values(), default=0.0) * LEAST_SHARE
    order = sorted(
        (-_named(offer, phrase), -scores.get(at, 0.0), at)
        for at, offer in enumerate(kept)
        if scores.get(at, 0.0) > least or _named(offer, phrase)
    )
    return [kept[at] for *_, at in order]


def _text(offer: Offer) -> str:
    name = offer.name.replace("@", " ").replace("/", " ")
    described = "" if offer.description is UNKNOWN else offer.description
    author = "" if offer.author is UNKNOWN else offer.author
    return " ".join([*[name] * NAME_WEIGHT, *offer.tags, described, author])


def _named(offer: Offer, phrase: str) -> int:
    """How well a whole query fits the name: it is the name, starts it, is inside it, or not."""
    name = offer.name.lower()
    short = name.rpartition("/")[2]
    joined = phrase.replace(" ", "-")
    if joined in (name, short):
        return 3
    if name.startswith(joined) or short.startswith(joined):
        return 2
    return int(joined in name)


def choose(offers: Sequence[Offer], wanted: str) -> Offer | None:
    """The highest offer that fits, the first registry's among equals.

    What is wanted is a range of versions, or the name of a registry as in `name@registry`.
    """
    named = [each for each in offers if each.registry.name == wanted]
    if named:
        offers, wanted = named, "latest"
    version = best_version([offer.version for offer in offers], wanted)
    return next((offer for offer in offers if offer.version == version), None)


def rivals(chosen: Offer, offers: Iterable[Offer]) -> tuple[str, ...]:
    """What to say where other registries have a plugin of the same name."""
    others = {each.registry.name for each in offers if each.name == chosen.name}
    others.discard(chosen.registry.name)
    if not others:
        return ()
    ways = ", ".join(f"{chosen.name}@{each}" for each in sorted(others))
    return (f"{chosen.name} is the one of {chosen.registry.name}; there is also {ways}",)


def newest_first(versions: Sequence[str]) -> tuple[str, ...]:
    """Versions in falling order, each once; what is not a version comes last."""
    return tuple(sorted(dict.fromkeys(versions), key=version_order, reverse=True))


def not_offered(reference: Reference, survey: Survey, versions: Sequence[str] = ()) -> ForgeError:
    """No registry has a plugin; says what is like it, and which entries could not be read."""
    names = {offer.name for offer in survey.offers}
    return ForgeError.plugin_missing(
        str(reference),
        searched=survey.searched,
        versions=versions,
        similar=similar_names(reference.name, names - {reference.name}),
        noticed=survey.warnings,
    )


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """The names that may have been meant: alike, or the same without a scope."""
    names = sorted(known)
    short = name.rpartition("/")[2].lower()
    same = [each for each in names if each.rpartition("/")[2].lower() == short]
    inside = [each for each in names if len(short) > 3 and short in each.lower()]
    close = difflib.get_close_matches(name, names, n=MOST_SIMILAR)
    return list(dict.fromkeys([*same, *close, *inside]))[:MOST_SIMILAR]


def package_of(
    offer: Offer,
    client: RegistryClient,
    configuration: Configuration,
    deadline_s: float = PATIENT_S,
) -> Package:
    """The plugin's own manifest and files, their checksums verified. Raises `ForgeError`."""
    origin = offer.origin
    if isinstance(origin, Unavailable):
        raise ForgeError.invalid(
            f"{offer.name} is listed by {offer.registry.name}, but {origin.why}",
            SEE_REGISTRIES,
            plugin=offer.name,
        )
    if isinstance(origin, ManifestFile):
        return _by_manifest(offer, origin, client, configuration)
    return _by_folder(offer, origin, client, deadline_s)


def _by_folder(
    offer: Offer, origin: GitFolder | LocalFolder, client: RegistryClient, deadline_s: float
) -> Package:
    tree, commit = client.tree_of(origin, deadline_s)
    taken: Snapshot = tree.snapshot(origin.path)
    files = dict(taken.files)
    own = manifest_in({name: each.data for name, each in files.items()})
    added = own.added(offer.entry).data
    manifest = {"name": offer.name, **added, **own.data}
    if not own.data:
        files = _listed_alone(files, added)
    if added or not own.data:
        files[PLUGIN_MANIFEST] = FileContent(json_file(manifest))
    left = [own.problem, *taken.left_out] if own.problem else taken.left_out
    noticed = tuple(f"{offer.name}: {each}" for each in left)
    return Package(offer, manifest, files, commit, added, noticed)


def _listed_alone(
    files: dict[str, FileContent], entry: Mapping[str, object]
) -> dict[str, FileContent]:
    """The files without parts that an entry does not list: where it is the manifest, it is whole.

    Several plugins of a marketplace may share one directory and take different skills of it.
    """
    for kind in LISTED:
        given = entry.get(kind)
        paths = [given] if isinstance(given, str) else strings_of(given)
        kept = tuple(f"{path}/" for each in paths if (path := plain_path(each)))
        if kept:
            files = {
                name: each
                for name, each in files.items()
                if not name.startswith(f"{kind}/") or f"{name}/".startswith(kept)
            }
    return files


def _by_manifest(
    offer: Offer, origin: ManifestFile, client: RegistryClient, configuration: Configuration
) -> Package:
    warnings: list[str] = []
    if origin.checksum is None:
        warnings.append(f"Registry {offer.registry.name} has no checksum for {offer.name}")
    try:
        body = client.download(offer, origin.url, origin.checksum)
    except ForgeError as error:
        if error.code != "INTEGRITY_ERROR" or configuration.verify_checksums:
            raise
        warnings.append(f"{error} (install.verify_checksums is off)")
        body = client.download(offer, origin.url, None)
    try:
        text = body.decode("utf-8-sig")
        is_yaml = origin.url.endswith((".yaml", ".yml"))
        manifest = as_mapping(parse_yaml(text) if is_yaml else parse_json(text))
    except (UnicodeDecodeError, UnparsableError) as error:
        raise ForgeError.network(
            f"invalid plugin manifest from {masked_url(origin.url)}", plugin=offer.name
        ) from error
    return Package(offer, manifest, warnings=tuple(warnings))
