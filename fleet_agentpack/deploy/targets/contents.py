"""How modules become files: copied, renamed, joined with markers, or wrapped as a rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import wraps
from typing import get_args

from fleet_agentpack.deploy.desired import Part
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.manifest import Module
from fleet_agentpack.deploy.model import Blob, Layer, Output, Root, module_fs_key, safe_name
from fleet_agentpack.deploy.targets.target import Chosen, Contents, Made
from fleet_agentpack.deploy.validate import INSTRUCTIONS, TOML, only_file

SEPARATOR = "\n\n---\n\n"
_MARKER = "<!-- agentpack:module="
END_MARKER = "<!-- /agentpack -->"
LAYERS: tuple[Layer, ...] = get_args(Layer)


def in_one_piece(render: Callable[[Root, Chosen, Made], Iterator[Output]]) -> Contents:
    """Contents whose outputs are a single part."""

    @wraps(render)
    def whole(root: Root, chosen: Chosen, made: Made) -> list[Part]:
        return [Part.of(render(root, chosen, made))]

    return whole


def combined(name: str) -> Contents:
    """All instructions as one file; markers separate two or more."""

    @in_one_piece
    def render(root: Root, chosen: Chosen, made: Made) -> Iterator[Output]:
        chosen = [(module, tree) for module, tree in chosen if INSTRUCTIONS in tree]
        if chosen:
            ids = tuple(module.id for module, _ in chosen)
            yield Output(root, root.path(name), _joined(chosen, made), ids)

    return render


def single_files(suffix: str = ".md") -> Contents:
    """Each module's only file, under its own name with this ending."""

    @in_one_piece
    def render(root: Root, chosen: Chosen, _made: Made) -> Iterator[Output]:
        for module, tree in chosen:
            name, blob = only_file(tree)
            name = module.output or name
            if not name.endswith(suffix):
                name = name.removesuffix(".md") + suffix
            yield Output(root, root.path(name), blob, (module.id,))

    return render


@in_one_piece
def toml_commands(root: Root, chosen: Chosen, _made: Made) -> Iterator[Output]:
    """The commands that are in Gemini's own format."""
    for module, tree in chosen:
        name, blob = only_file(tree)
        if name.endswith(TOML):
            yield Output(root, root.path(module.output or name), blob, (module.id,))


def skills(root: Root, chosen: Chosen, _made: Made) -> Iterator[Part]:
    """Each module's whole tree in a directory of its own."""
    for module, tree in chosen:
        named = module.name if module.name is not None else safe_name(module.id)
        yield Part.of_tree(root, root.path(module.output or named), tree, (module.id,))


def rule_files(suffix: str) -> Contents:
    """The files of instructions modules that are written for one tool, as they are."""

    @in_one_piece
    def render(root: Root, chosen: Chosen, _made: Made) -> Iterator[Output]:
        return _own_rules(root, chosen, suffix)

    return render


def _own_rules(root: Root, chosen: Chosen, suffix: str) -> Iterator[Output]:
    for module, tree in chosen:
        if INSTRUCTIONS not in tree:
            for name, blob in tree.items():
                if name.endswith(suffix):
                    yield Output(root, root.path(name), _plain(blob), (module.id,))


@in_one_piece
def rules(root: Root, chosen: Chosen, made: Made) -> Iterator[Output]:
    """Each instructions module as a rule that always applies; a rule file stays as it is."""
    yield from _own_rules(root, chosen, ".mdc")
    for module, tree in chosen:
        if INSTRUCTIONS not in tree:
            continue
        text = tree[INSTRUCTIONS]
        key = ("rule", module.id, text.sha256, text.layer, text.private)
        if key not in made:
            title = json.dumps(f"agentpack: {module.id}", ensure_ascii=False)
            header = f"---\ndescription: {title}\nglobs: []\nalwaysApply: true\n---\n\n"
            data = header.encode() + text.read()
            whole = data if data.endswith(b"\n") else data + b"\n"
            made[key] = Blob.of(whole, layer=text.layer, private=text.private)
        name = f"{module_fs_key(module.id)}.mdc"
        yield Output(root, root.path(name), made[key], (module.id,))


def _joined(chosen: Chosen, made: Made) -> Blob:
    if len(chosen) == 1:
        return _plain(chosen[0][1][INSTRUCTIONS])
    texts = [(module, tree[INSTRUCTIONS]) for module, tree in chosen]
    key = (
        "joined",
        *((module.id, text.sha256, text.layer, text.private) for module, text in texts),
    )
    if key not in made:
        sections = [_section(module, text) for module, text in texts]
        highest = max((text.layer for _, text in texts), key=LAYERS.index)
        private = any(text.private for _, text in texts)
        joined = SEPARATOR.join(sections).encode()
        made[key] = Blob.of(joined, layer=highest, private=private)
    return made[key]


def section_lines(text: str) -> Iterator[tuple[str, int, int]]:
    """The modules of a joined text, each with its first and last line, the markers included."""
    module_id, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_MARKER) and line.endswith(" -->"):
            module_id, first = line[len(_MARKER) : -len(" -->")], number
        elif line == END_MARKER and module_id:
            yield module_id, first, number
            module_id = ""


def _plain(blob: Blob) -> Blob:
    """Instructions are never executable, whatever the mode of their source."""
    return blob._replace(executable=False) if blob.executable else blob


def _section(module: Module, blob: Blob) -> str:
    try:
        text = blob.read().decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"AGENTS.md of module {module.id} is not UTF-8 text"
        raise DeployError.because("module_invalid", message, module_id=module.id) from error
    newline = "" if text.endswith("\n") else "\n"
    return f"{_MARKER}{module.id} -->\n{text}{newline}{END_MARKER}"
