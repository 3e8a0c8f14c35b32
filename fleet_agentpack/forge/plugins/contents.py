"""A plugin on disk: its manifest in any dialect, its files, and the lockfile that pins them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit

from fleet_agentpack.forge.config.addresses import checksum_of, safe_url
from fleet_agentpack.forge.definitions.definition import SUFFIXES, described, strings_of, text_of
from fleet_agentpack.forge.definitions.repository import MANIFESTS
from fleet_agentpack.forge.errors import MOST_SHOWN, ForgeError, run
from fleet_agentpack.forge.files import MAX_MANIFEST_BYTES
from fleet_agentpack.forge.names import NO_VERSION, Scope, is_usable_name
from fleet_agentpack.forge.registries.catalogue import ManifestFile, Offer
from fleet_agentpack.forge.registries.trees import FileContent
from fleet_agentpack.forge.results import Components, PluginInfo, PluginVersion
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.results import UNKNOWN, Maybe, json_file
from fleet_agentpack.kit.semver import is_newer
from fleet_agentpack.kit.swap import Area, Swap

HOOKS = "hooks/hooks.json"


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
        hooks=tuple(dict.fromkeys([*_hook_events(table, folder), *named("hooks")])),
        commands=named("commands"),
        mcpServers=_servers(table, folder) or UNKNOWN,
        instructions=("AGENTS.md",) if folder and (folder / "AGENTS.md").is_file() else UNKNOWN,
    )


def _hook_events(table: Mapping[str, object], folder: Path | None) -> list[str]:
    """The events that hooks are for, from the manifest or from the file that it names."""
    given = table.get("hooks")
    files = (HOOKS, given) if isinstance(given, str) else (HOOKS,)
    return [*_keys(given, "hooks"), *(each for f in files for each in _keys_in(folder, f, "hooks"))]


def _servers(table: Mapping[str, object], folder: Path | None) -> tuple[str, ...]:
    """The MCP servers that a plugin brings."""
    given, key = table.get("mcpServers"), "mcpServers"
    files = (".mcp.json", given) if isinstance(given, str) else (".mcp.json",)
    found = [*_keys(given, key), *(each for f in files for each in _keys_in(folder, f, key))]
    return tuple(dict.fromkeys(found))


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


FORMAT = 1

Program = Literal["fractary", "claude"]


@dataclass(frozen=True)
class Pin:
    """What was installed: where it came from, its commit, and a checksum of every file."""

    version: str
    registry: str
    source: Mapping[str, str]  # `manifest`, or `git` with its path, or `directory` with its path
    files: Mapping[str, str] = field(default_factory=dict)  # path → SHA-256
    commit: str = ""
    revision: str = ""
    added: Mapping[str, Any] = field(default_factory=dict)  # to its manifest, by the registry

    @property
    def integrity(self) -> str:
        """One checksum of all files."""
        return integrity_of(self.files)


@dataclass(frozen=True)
class Place:
    """A directory of plugins that one program finds, in a project or for a user."""

    scope: Scope
    program: Program
    base: Path

    @property
    def lockfile(self) -> Path:
        """Beside the directory, to be kept under version control with the project."""
        name = "plugins.lock.json" if self.program == "fractary" else "forge-plugins.lock.json"
        return self.base.parent / name

    @property
    def swap(self) -> Swap:
        """Replaces plugin folders and the lockfile together; the caller holds the lock."""
        hidden = self.base.parent / ".forge" if self.program == "claude" else self.base
        staging = hidden / ".staging"
        return Swap(Area(staging / "journal.json", staging, hidden / ".kept"))

    def pins(self) -> dict[str, Pin]:
        """What the lockfile says, by the plugin's name. Raises `ForgeError` if it is unusable."""
        try:
            data = read_mapping(self.lockfile, MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            return {}
        except UnparsableError as error:
            raise ForgeError.config(self.lockfile, str(error)) from error
        if data.get("version") != FORMAT or not isinstance(data.get("plugins"), dict):
            raise ForgeError.config(self.lockfile, "not a lockfile of plugins that can be read")
        return {name: pin for name, row in data["plugins"].items() if (pin := _pin(row))}


@dataclass(frozen=True)
class InstalledPlugin(PluginVersion):
    """A plugin on disk."""

    folder: Path
    manifest: Mapping[str, Any]
    place: Place
    pin: Pin | None = None  # what the lockfile says of it

    def is_behind(self, offer: Offer) -> bool:
        """Whether an offer is newer; without versions another revision is."""
        if is_newer(offer.version, self.version):
            return True
        unversioned = offer.version == NO_VERSION and self.pin and self.pin.revision
        return bool(unversioned and offer.revision and offer.revision != unversioned)

    def is_offered_by(self, offer: Offer) -> bool:
        """Whether an offer is of this plugin: one that came from a registry stays with it.

        What somebody else put where another program finds it came from no registry of ours.
        """
        if self.pin is None and self.place.program != "fractary":
            return False
        known = self.pin.registry if self.pin else ""
        return offer.name == self.name and known in ("", offer.registry.name)


def lock_of(pins: Mapping[str, Pin]) -> bytes:
    """The lockfile for some plugins."""
    rows = {
        name: {
            "version": pin.version,
            "registry": pin.registry,
            "source": dict(pin.source),
            **({"commit": pin.commit} if pin.commit else {}),
            **({"revision": pin.revision} if pin.revision else {}),
            **({"added": dict(pin.added)} if pin.added else {}),
            "integrity": pin.integrity,
            "files": dict(sorted(pin.files.items())),
        }
        for name, pin in sorted(pins.items())
    }
    return json_file({"version": FORMAT, "plugins": rows})


def checksums(files: Mapping[str, FileContent]) -> dict[str, str]:
    """The checksum of every file; one that can be run counts as another file."""
    return {
        name: f"sha256-{hashlib.sha256(each.data).hexdigest()}{'+x' if each.executable else ''}"
        for name, each in files.items()
    }


def integrity_of(files: Mapping[str, str]) -> str:
    """One checksum for many."""
    rows = "".join(f"{name}\0{digest}\n" for name, digest in sorted(files.items()))
    return f"sha256-{hashlib.sha256(rows.encode()).hexdigest()}"


def _pin(row: object) -> Pin | None:
    table = row if isinstance(row, dict) else {}
    texts = {key: table.get(key, "") for key in ("version", "registry", "commit", "revision")}
    source, files = _texts(table.get("source")), _texts(table.get("files"))
    if source is None or files is None or not all(isinstance(x, str) for x in texts.values()):
        return None
    added = table.get("added")
    return Pin(**texts, source=source, files=files, added=added if isinstance(added, dict) else {})


def _texts(value: object) -> dict[str, str] | None:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        return None
    return value


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


def refuse_edited(plugin: InstalledPlugin) -> None:
    """Refuse to change a plugin with edited or added files: the user wants to keep them."""
    edited = edited_files(plugin)
    if edited:
        more = f" and {len(edited) - MOST_SHOWN} more" if len(edited) > MOST_SHOWN else ""
        raise ForgeError.conflict(
            f"{plugin.name} contains files that were edited or added after installation: "
            f"{', '.join(edited[:MOST_SHOWN])}{more}; nothing was changed",
            run("Keep your version as a fork: {}", "fork", "create", "NAME", "MY-NAME"),
            "Then use --force",
            plugin=plugin.name,
            edited=edited[:MOST_SHOWN],
        )


def edited_files(plugin: InstalledPlugin) -> list[str]:
    """The files that are not as they were installed, by the lockfile or else by the manifest."""
    if plugin.pin:
        recorded: dict[str, str | None] = {
            name: digest.removeprefix("sha256-").removesuffix("+x")
            for name, digest in plugin.pin.files.items()
        }
    else:
        recorded = {**dict(_recorded(plugin)), **dict.fromkeys(MANIFESTS)}
    files = [path for path in sorted(plugin.folder.rglob("*")) if not path.is_dir()]
    names = {path.relative_to(plugin.folder).as_posix(): path for path in files}
    return [
        name
        for name, path in names.items()
        if name not in recorded or _differs(path, recorded[name])
    ]


def _recorded(plugin: InstalledPlugin) -> Iterator[tuple[str, str | None]]:
    """The files that the manifest accounts for, each with its checksum if there is one."""
    for each in listed_components(plugin.manifest):
        for ending in ENDINGS[each.kind]:
            yield f"{each.kind}/{each.name}{ending}", each.checksum


def _differs(path: Path, digest: str | None) -> bool:
    return digest is not None and hashlib.sha256(path.read_bytes()).hexdigest() != digest
