"""Names the modules that imported files become; equal ones of several tools become one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations, count

from fleet_agentpack.deploy.importing.items import Item
from fleet_agentpack.deploy.manifest import IMPORTED, Scope
from fleet_agentpack.deploy.manifest_edit import LocalEntry, ModuleEntry, SourceEntry
from fleet_agentpack.kit.results import UNKNOWN

_NEARLY = 0.8  # the part of two texts that is the same
_WHOLE = {"one_file", "named_file"}  # all that a tool reads of one scope
_LONGEST_COMPARED = 200_000

_FOLDERS = {"prompt": "prompts", "skill": "skills", "command": "claude-commands"}


@dataclass(frozen=True)
class NewModule:
    """A module that does not exist yet, and what it is made from."""

    id: str
    items: tuple[Item, ...]
    tags: tuple[str, ...]
    path: str  # in the repo: a file, or a directory

    @property
    def item(self) -> Item:
        """Any of its items: they are equal."""
        return self.items[0]

    @property
    def targets(self) -> tuple[str, ...]:
        """The tools that it was found in, and goes back to."""
        return tuple(sorted({item.target for item in self.items}))

    @property
    def output(self) -> str:
        """Where it goes, if neither its id nor its file says so."""
        item = self.item
        if item.kind == "instructions":
            return ""
        told = self.id.partition(":")[2] if item.kind == "skill" else self.path.rpartition("/")[2]
        return "" if told == item.name else item.name

    @property
    def files(self) -> Mapping[str, tuple[bytes, bool]]:
        """Its files in the repo, with their contents and whether they are executable."""
        tree = self.item.tree
        single = self.item.kind in ("prompt", "command")
        return {
            self.path if single else f"{self.path}/{name}": (blob.read(), blob.executable)
            for name, blob in tree.items()
        }

    @property
    def entry(self) -> ModuleEntry:
        """Its entry in `agentpack.yaml`."""
        return ModuleEntry(
            id=self.id,
            type=self.item.kind,
            scope=self.item.scope,
            tags=self.tags,
            targets=self.targets,
            output=self.output or UNKNOWN,
            source=SourceEntry(local_path=LocalEntry(self.path)),
        )


def modules_from(
    items: Sequence[Item],
    project_id: str,
    base_tag: str | None,
    is_taken: Callable[[str], bool],
    known_ids: frozenset[str],
) -> list[NewModule]:
    """A module for each item or group of equal ones, in a stable order.

    `is_taken` tells whether a path of the repo is in use.
    """
    ids, paths = set(known_ids), set[str]()
    made = []
    groups = _groups(items)
    mains = _main_instructions(groups)
    for group in groups:
        first = group[0]
        owner = "user" if first.scope == "user" else f"project-{project_id}"
        name, path = _names(group, owner, project_id, is_main=group in mains)
        module_id = _free(f"{first.kind}:{name}", _suffixes(group), ids.__contains__)
        place = _free_path(path, lambda place: place in paths or is_taken(place))
        ids.add(module_id)
        paths.add(place)
        made.append(NewModule(module_id, group, _tags(group, owner, base_tag), place))
    return made


def nearly_equal(items: Sequence[Item]) -> Iterator[str]:
    """Pairs of instructions or skills that differ a little and could have been one module."""
    alike = [item for item in items if item.kind in ("instructions", "skill")]
    for one, other in combinations(alike, 2):
        comparable = one.kind == other.kind and one.scope == other.scope
        whole = {one.place.reading.shape, other.place.reading.shape} <= _WHOLE
        if not comparable or not (whole or (one.kind == "skill" and one.name == other.name)):
            continue
        if one.digest == other.digest or one.target == other.target:
            continue
        share = _similarity(one.text, other.text)
        if share == 1.0 and one.kind == "instructions":
            yield f"{one.path} and {other.path} are the same, but each has a form of its own"
        elif share >= _NEARLY:
            yield (
                f"{one.path} and {other.path} are {share:.0%} the same; they become two modules."
                " Make them equal before the import to have one"
            )


def _similarity(one: str, other: str) -> float:
    if len(one) + len(other) > _LONGEST_COMPARED:
        return 0.0
    return SequenceMatcher(None, one.splitlines(), other.splitlines(), autojunk=False).ratio()


def _groups(items: Sequence[Item]) -> list[tuple[Item, ...]]:
    found: dict[tuple[str, str, str, str], list[Item]] = {}
    for item in items:
        name = "" if item.place.reading.shape == "one_file" else item.name
        found.setdefault((item.kind, item.scope, name, item.digest), []).append(item)
    return [tuple(group) for group in found.values()]


def _main_instructions(groups: Sequence[tuple[Item, ...]]) -> list[tuple[Item, ...]]:
    """For the user and the project, the group whose id needs no tool in it."""
    scopes: tuple[Scope, ...] = ("user", "project")
    found = []
    for scope in scopes:
        whole = [
            group
            for group in groups
            if group[0].place.reading.shape == "one_file" and group[0].scope == scope
        ]
        codex = [group for group in whole if any(item.target == "codex" for item in group)]
        found += codex[:1] or (whole if len(whole) == 1 else [])
    return found


def _names(
    group: tuple[Item, ...], owner: str, project_id: str, *, is_main: bool
) -> tuple[str, str]:
    """The name in the module's id, and its path in the repo."""
    item = group[0]
    if item.place.reading.shape == "one_file":
        tool = "" if is_main else f"-{item.target.replace('_', '-')}"
        folder = "user" if item.scope == "user" else project_id
        return f"{owner}{tool}", f"modules/instructions/imported/{folder}{tool}"
    plain = _canonical(item.name)
    name = plain if item.scope == "user" else f"{owner}-{plain}"
    if item.kind == "instructions":
        folder = "user" if item.scope == "user" else project_id
        return name, f"modules/instructions/imported/{folder}-{plain}"
    # Where 0.9.1 has a place for it, it is that place.
    inside = "" if item.scope == "user" and item.kind != "command" else f"{owner}/"
    kind = "gemini-commands" if item.target == "gemini" else _FOLDERS[item.kind]
    return name, f"modules/{kind}/imported/{inside}{item.name}"


def _canonical(name: str) -> str:
    stem = re.sub(r"(\.prompt|\.instructions)?\.mdc?\Z|\.toml\Z", "", name)
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "item"


def _tags(group: tuple[Item, ...], owner: str, base_tag: str | None) -> tuple[str, ...]:
    tools = sorted({item.target for item in group})
    if group[0].scope == "user":
        return (*([base_tag] if base_tag else []), IMPORTED, "user", *tools)
    return (IMPORTED, "project", owner, *tools)


def _suffixes(group: tuple[Item, ...]) -> Iterator[str]:
    yield ""
    yield f"-{group[0].target.replace('_', '-')}"
    yield from (f"-{number}" for number in count(2))


def _free(name: str, suffixes: Iterator[str], is_taken: Callable[[str], bool]) -> str:
    return next(name + suffix for suffix in suffixes if not is_taken(name + suffix))


def _free_path(path: str, is_taken: Callable[[str], bool]) -> str:
    if not is_taken(path):
        return path
    folder, _, name = path.rpartition("/")
    stem, dot, ending = name.partition(".")
    tries = (f"{folder}/{stem}-{number}{dot}{ending}" for number in count(2))
    return next(place for place in tries if not is_taken(place))
