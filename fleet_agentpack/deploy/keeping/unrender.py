"""From a deployed file back to the files of the modules that it was made from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleet_agentpack.deploy.model import Output
from fleet_agentpack.deploy.targets.contents import END_MARKER, SEPARATOR
from fleet_agentpack.deploy.trees import Tree
from fleet_agentpack.deploy.validate import INSTRUCTIONS

_SECTION = re.compile(
    rf"<!-- agentpack:module=(?P<id>[^\r\n]+) -->\r?\n(?P<text>.*?){re.escape(END_MARKER)}",
    re.DOTALL,
)
_RULE = re.compile(
    r"---\ndescription: (?P<title>[^\n]*)\nglobs: \[\]\nalwaysApply: true\n---\n\n", re.DOTALL
)


class CannotSplitError(ValueError):
    """A file that does not say which part belongs to which module; the message says why."""


@dataclass(frozen=True)
class Part:
    """What one file of a module becomes."""

    module_id: str
    name: str  # of the file in the module
    data: bytes


def parts_of(output: Output, trees: Mapping[str, Tree], data: bytes) -> list[Part]:
    """The files of the modules for the new content of a deployed file.

    `trees` has each module's files as they are now. Raises `CannotSplitError`.
    """
    module_ids = output.module_ids
    if len(module_ids) > 1:
        return _sections(module_ids, trees, data)
    module_id = module_ids[0]
    tree = trees[module_id]
    if INSTRUCTIONS in tree and output.path.endswith(".mdc"):
        return [_rule(module_id, tree, data)]
    return [Part(module_id, file_of(output, tree), data)]


def file_of(output: Output, tree: Tree) -> str:
    """The file of a module that a deployed one is made from. Raises `CannotSplitError`."""
    if INSTRUCTIONS in tree:
        return INSTRUCTIONS
    # It was copied, so the path ends with its name.
    fitting = [name for name in tree if output.path.endswith(f"/{name}")]
    if fitting:
        return max(fitting, key=len)
    if len(tree) == 1:  # a single file under another name
        return next(iter(tree))
    raise CannotSplitError("its module no longer has this file")


def _rule(module_id: str, tree: Tree, data: bytes) -> Part:
    text = data.decode("utf-8", "surrogateescape")
    header = _RULE.match(text)
    if header is None or header["title"] != _title(module_id):
        raise CannotSplitError("its header is made from the module, and was edited too")
    body = text[header.end() :]
    # A line break at the end was added if the module has none.
    if not tree[INSTRUCTIONS].read().endswith(b"\n"):
        body = body.removesuffix("\n")
    return Part(module_id, INSTRUCTIONS, body.encode("utf-8", "surrogateescape"))


def _title(module_id: str) -> str:
    return json.dumps(f"agentpack: {module_id}", ensure_ascii=False)


def _sections(module_ids: tuple[str, ...], trees: Mapping[str, Tree], data: bytes) -> list[Part]:
    text = data.decode("utf-8", "surrogateescape")
    found = list(_SECTION.finditer(text))
    ids = [match["id"] for match in found]
    gone = [module_id for module_id in module_ids if module_id not in ids]
    if gone and ids == [module_id for module_id in module_ids if module_id in ids] and ids:
        raise CannotSplitError(
            f"the section of {gone[0]} is gone with its markers; `fleet-agentpack remove {gone[0]}`"
            " takes the module out of the pack"
        )
    if ids != list(module_ids):
        raise CannotSplitError("the markers that separate its modules were changed")
    between = _SECTION.sub("", text).replace("\r\n", "\n")
    if between.strip() and between.replace(SEPARATOR, "").strip():
        raise CannotSplitError("there is text outside the markers of its modules")
    parts = []
    for match in found:
        body = match["text"]
        if not trees[match["id"]][INSTRUCTIONS].read().endswith(b"\n"):
            body = body.removesuffix("\n").removesuffix("\r")
        parts.append(Part(match["id"], INSTRUCTIONS, body.encode("utf-8", "surrogateescape")))
    return parts
