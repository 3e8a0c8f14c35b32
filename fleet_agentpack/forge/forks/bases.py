"""What a fork is and was: its text cut at keys, its files, and the base that is kept.

`.fractary/forks/agents/NAME/fork.json` is the record, `base/` the files as they were forked or last
merged, and `conflict/` the copies with markers of a merge that a person has to finish.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from fleet_agentpack.forge.definitions.definition import Definition, ForkRecord, text_of
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.names import KINDS, Kind
from fleet_agentpack.forge.registries.trees import FileContent, FolderTree, write_files
from fleet_agentpack.kit import frontmatter, yaml12
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.paths import EscapeError, check_relative
from fleet_agentpack.kit.results import UNKNOWN, json_file
from fleet_agentpack.kit.swap import Area, New, Swap

_FENCE = "---\n"
_TOML_NAME = re.compile(r"^name[ \t]*=.*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """The lines of one top-level key, with the comments above it."""

    key: str
    text: str


@dataclass(frozen=True)
class DefinitionText:
    """A YAML file, or a Markdown file with its header; line ends are `\\n`."""

    lead: str  # what stands before the first key
    blocks: tuple[Block, ...]
    values: Mapping[str, Any]
    body: str | None = None  # of Markdown
    fences: tuple[str, str] = ("", "")

    def block(self, key: str) -> str | None:
        """The lines of a key."""
        return next((each.text for each in self.blocks if each.key == key), None)

    def with_block(self, key: str, text: str, after: str | None = None) -> DefinitionText:
        """The same with other lines for a key, which may be new."""
        new = Block(key, text)
        keys = [each.key for each in self.blocks]
        if key in keys:
            blocks = tuple(new if each.key == key else each for each in self.blocks)
        else:
            at = keys.index(after) + 1 if after in keys else len(keys)
            blocks = (*self.blocks[:at], new, *self.blocks[at:])
        fenced = self.body is None or self.fences[0]
        return replace(self, blocks=blocks, fences=self.fences if fenced else (_FENCE, _FENCE))

    def with_value(self, key: str, value: object) -> DefinitionText:
        """The same with another value for a key; the comments above it stay."""
        before = (self.block(key) or "").splitlines(keepends=True)
        comments = []
        for line in before:
            if line.strip() and not line.lstrip().startswith("#"):
                break
            comments.append(line)
        return self.with_block(key, "".join(comments) + yaml12.dump({key: value}))

    def without(self, key: str) -> DefinitionText:
        """The same without a key."""
        return replace(self, blocks=tuple(each for each in self.blocks if each.key != key))

    def __str__(self) -> str:
        header = self.lead + "".join(each.text for each in self.blocks)
        return f"{self.fences[0]}{header}{self.fences[1]}{self.body or ''}"


def cut(text: str, suffix: str) -> DefinitionText | None:
    """The text in parts; None where it has no top-level keys on lines of their own."""
    text = text.replace("\r\n", "\n")
    if suffix == ".md":
        split = frontmatter.split(text)
        if split.header is None:
            return DefinitionText("", (), {}, text)
        start = text.index("\n") + 1
        closing = text[start + len(split.header) : len(text) - len(split.body)]
        fences = (text[:start], closing if closing.endswith("\n") else f"{closing}\n")
        return _cut_yaml(split.header, split.body, fences)
    return _cut_yaml(text, None, ("", "")) if suffix in (".yaml", ".yml") else None


def renamed(text: str, suffix: str, name: str) -> str:
    """The text under another name; nothing else changes, and a text without a name stays so."""
    if suffix == ".toml":
        return _TOML_NAME.sub(lambda _: f'name = "{name}"', text, count=1)
    parts = cut(text, suffix)
    if parts is None or "name" not in parts.values:
        return text
    return with_line_ends(str(parts.with_value("name", name)), text)


def with_line_ends(text: str, like: str) -> str:
    """The text with the line ends of another."""
    return text.replace("\n", "\r\n") if "\r\n" in like else text


def _cut_yaml(header: str, body: str | None, fences: tuple[str, str]) -> DefinitionText | None:
    try:
        node = yaml12.compose(header)
        values = yaml12.load(header)
    except yaml12.YamlError:
        return None
    if node is None:
        return DefinitionText(header, (), {}, body, fences)
    if not isinstance(node, yaml.MappingNode) or node.flow_style or not isinstance(values, dict):
        return None
    marks = [key.start_mark for key, _ in node.value]
    if any(mark.column for mark in marks) or not all(_is_key(key) for key, _ in node.value):
        return None
    lines = header.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    starts = [_with_comments(lines, mark.line, first=at == 0) for at, mark in enumerate(marks)]
    ends = [*starts[1:], len(lines)]
    keys = [str(key.value) for key, _ in node.value]
    if len(set(keys)) != len(keys):
        return None
    blocks = tuple(
        Block(key, "".join(lines[start:end]))
        for key, start, end in zip(keys, starts, ends, strict=True)
    )
    named = {str(key): value for key, value in values.items()}
    return DefinitionText("".join(lines[: starts[0]]), blocks, named, body, fences)


def _is_key(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


def _with_comments(lines: list[str], start: int, *, first: bool) -> int:
    """The line on which a key begins, the comments above it included."""
    if first:
        return start
    while start and lines[start - 1].startswith("#"):
        start -= 1
    return start


FORMAT = 1
RECORD = "fork.json"

_NOT_COPIED = ("metadata.json",)  # the original's own record of a fork


@dataclass(frozen=True)
class DefinitionFiles:
    """The files of a definition: its own, and those of its directory if it is one."""

    main: str
    files: Mapping[str, FileContent]

    @property
    def text(self) -> str:
        """The definition itself."""
        return self.files[self.main].data.decode("utf-8-sig")

    @property
    def suffix(self) -> str:
        """The ending of the definition's own file."""
        return Path(self.main).suffix

    @property
    def others(self) -> dict[str, FileContent]:
        """Everything but the definition itself."""
        return {name: each for name, each in self.files.items() if name != self.main}


def files_of(definition: Definition) -> DefinitionFiles:
    """The files of a definition as they are now. Raises `ForgeError` when they cannot be read."""
    if definition.file is None:
        data = yaml12.dump(dict(definition.data)).encode()
        return DefinitionFiles(
            f"{definition.kind}.yaml", {f"{definition.kind}.yaml": FileContent(data)}
        )
    folder, main = definition.file.parent, definition.file.name
    whole = definition.identity.directory is not None
    try:
        found = FolderTree(folder).snapshot("").files if whole else {}
        files = {name: each for name, each in found.items() if name not in _NOT_COPIED}
        files[main] = FileContent(definition.file.read_bytes())
        DefinitionFiles(main, files).text  # noqa: B018 - raises for what is not text
    except (OSError, UnicodeDecodeError) as error:
        raise ForgeError.invalid(f"{definition.path} cannot be read: {error}") from error
    return DefinitionFiles(main, files)


@dataclass(frozen=True)
class KeptFork:
    """The record of a fork."""

    kind: Kind
    name: str
    path: Path  # of the definition
    record: ForkRecord
    main: str
    details: Mapping[str, str] = field(default_factory=dict)  # more about upstream


class ForkBases:
    """The kept bases of a project's forks."""

    def __init__(self, project: Path) -> None:
        self._root = project.parent
        self._directory = project / "forks"

    @property
    def swap(self) -> Swap:
        """Replaces a fork's files and its base together; the caller holds the lock."""
        staging = self._directory / ".staging"
        return Swap(Area(staging / "journal.json", staging, self._directory / ".kept"))

    def folder(self, kind: Kind, name: str) -> Path:
        """Where everything about one fork is."""
        return self._directory / f"{kind}s" / quote(name, safe="@")

    def all(self) -> Iterator[KeptFork]:
        """Every record that can be read."""
        for kind in KINDS:
            try:
                folders = sorted((self._directory / f"{kind}s").iterdir())
            except OSError:
                continue
            for folder in folders:
                try:
                    kept = self._read(kind, read_mapping(folder / RECORD))
                except (FileNotFoundError, UnparsableError):
                    continue
                if kept:
                    yield kept

    def find(self, kind: Kind, name: str) -> KeptFork | None:
        """The record of one fork."""
        try:
            return self._read(kind, read_mapping(self.folder(kind, name) / RECORD))
        except (FileNotFoundError, UnparsableError):
            return None

    def base(self, kept: KeptFork) -> DefinitionFiles | None:
        """The files that were forked or last merged, None where they are gone."""
        folder = self.folder(kept.kind, kept.name) / "base"
        try:
            files = FolderTree(folder).snapshot("").files
        except ForgeError:
            return None
        return DefinitionFiles(kept.main, files) if kept.main in files else None

    def conflicts(self, kind: Kind, name: str) -> Path:
        """Where copies with markers are put."""
        return self.folder(kind, name) / "conflict"

    def changes(self, kept: KeptFork, base: DefinitionFiles) -> dict[Path, New]:
        """What keeps a base: to be written together with the fork itself."""
        folder = self.folder(kept.kind, kept.name)
        return {
            folder / RECORD: self._written(kept),
            folder / "base": partial(write_files, base.files),
        }

    def _written(self, kept: KeptFork) -> bytes:
        record = kept.record
        merged = {} if record.merged_at is UNKNOWN else {"merged_at": record.merged_at}
        below = kept.path.is_relative_to(self._root)
        path = kept.path.relative_to(self._root) if below else kept.path
        data = {
            "version": FORMAT,
            "name": kept.name,
            "type": kept.kind,
            "path": path.as_posix(),
            "main": kept.main,
            "upstream": {"name": record.name, "version": record.version, **kept.details},
            "created_at": record.created_at,
            **merged,
        }
        return json_file(data)

    def _read(self, kind: Kind, data: Mapping[str, Any]) -> KeptFork | None:
        name, path, main = (text_of(data, key) for key in ("name", "path", "main"))
        upstream = data.get("upstream")
        if name is UNKNOWN or path is UNKNOWN or main is UNKNOWN or not isinstance(upstream, dict):
            return None
        try:
            check_relative(main)
        except EscapeError:
            return None
        texts = {key: each for key, each in upstream.items() if isinstance(each, str)}
        created = text_of(data, "created_at")
        record = ForkRecord(
            texts.pop("name", ""),
            texts.pop("version", ""),
            "" if created is UNKNOWN else created,
            text_of(data, "merged_at"),
        )
        return KeptFork(kind, name, self._root / path, record, main, texts) if record.name else None
