"""How modules become files: copied, renamed, joined with markers, or wrapped as a rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import get_args

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.manifest import Module
from fleet_agentpack.deploy.model import Blob, Layer, Output, Root, module_fs_key, safe_name
from fleet_agentpack.deploy.targets.target import Chosen, Contents, Made
from fleet_agentpack.deploy.validate import only_file

SEPARATOR = "\n\n---\n\n"
END_MARKER = "<!-- /agentpack -->"
LAYERS: tuple[Layer, ...] = get_args(Layer)


def combined(name: str) -> Contents:
    """All instructions as one file; markers separate two or more."""

    def render(root: Root, chosen: Chosen, made: Made) -> Iterator[Output]:
        if chosen:
            ids = tuple(module.id for module, _ in chosen)
            yield Output(root, root.path(name), _joined(chosen, made), ids)

    return render


def single_files(suffix: str = ".md") -> Contents:
    """Each module's only file, under its own name with this ending."""

    def render(root: Root, chosen: Chosen, _made: Made) -> Iterator[Output]:
        for module, tree in chosen:
            name, blob = only_file(tree)
            if not name.endswith(suffix):
                name = name.removesuffix(".md") + suffix
            yield Output(root, root.path(name), blob, (module.id,))

    return render


def skills(root: Root, chosen: Chosen, _made: Made) -> Iterator[Output]:
    """Each module's whole tree in a directory of its own."""
    for module, tree in chosen:
        directory = module.name if module.name is not None else safe_name(module.id)
        prefix, ids = root.path(f"{directory}/"), (module.id,)
        yield from [Output(root, prefix + name, blob, ids) for name, blob in tree.items()]


def rules(root: Root, chosen: Chosen, made: Made) -> Iterator[Output]:
    """Each instructions module as a rule file that always applies."""
    for module, tree in chosen:
        text = tree["AGENTS.md"]
        key = ("rule", module.id, text.sha256, text.layer)
        if key not in made:
            title = json.dumps(f"agentpack: {module.id}", ensure_ascii=False)
            header = f"---\ndescription: {title}\nglobs: []\nalwaysApply: true\n---\n\n"
            data = header.encode() + text.read()
            whole = data if data.endswith(b"\n") else data + b"\n"
            made[key] = Blob.of(whole, layer=text.layer)
        name = f"{module_fs_key(module.id)}.mdc"
        yield Output(root, root.path(name), made[key], (module.id,))


def _joined(chosen: Chosen, made: Made) -> Blob:
    if len(chosen) == 1:
        return _plain(chosen[0][1]["AGENTS.md"])
    texts = [(module, tree["AGENTS.md"]) for module, tree in chosen]
    key = ("joined", *((module.id, text.sha256, text.layer) for module, text in texts))
    if key not in made:
        sections = [_section(module, text) for module, text in texts]
        highest = max((text.layer for _, text in texts), key=LAYERS.index)
        made[key] = Blob.of(SEPARATOR.join(sections).encode(), layer=highest)
    return made[key]


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
    return f"<!-- agentpack:module={module.id} -->\n{text}{newline}{END_MARKER}"
