"""`explain`: which module and which layer each line of a deployed file comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple, TypeVar

from fleet_agentpack.deploy.apply import Proposal
from fleet_agentpack.deploy.compare import Change
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.keeping.unrender import CannotSplitError, file_of
from fleet_agentpack.deploy.model import Output, read_file
from fleet_agentpack.deploy.same_place import is_at
from fleet_agentpack.deploy.targets.contents import section_lines
from fleet_agentpack.deploy.upkeep_results import Explanation, SectionRow
from fleet_agentpack.kit.results import UNKNOWN, Maybe

T = TypeVar("T")
BY_HAND = "by hand"
MOST_LINES = 5_000  # of a text that is compared line by line


class _Origin(NamedTuple):
    """Where a line comes from; `edit_in` is an overlay's copy of its file, if there is one."""

    module_id: str
    layer: str
    file: str
    edit_in: Maybe[str] = UNKNOWN


_Origins = list[_Origin | None]  # by line; None between the sections of a joined file


def explain(found: Proposal, path: str) -> Explanation:
    """Where a file comes from. Raises `DeployError` when no module writes it."""
    place = os.path.normpath(path)
    outputs = list(found.survey.desired.all)
    output = next((each for each in outputs if each.path == place), None)
    output = output or next((each for each in outputs if is_at(each.path, place)), None)
    if output is None or os.path.isdir(place):
        raise DeployError.because(
            "not_in_pack",
            f"no module of the pack writes {place}; plan lists every file that one does",
            path=place,
        )
    change = next((each for each in found.plan.changes if each.path == output.path), None)
    state = "as the pack has it" if change is None else _state(change.op, change.edited_by_hand)
    scope = found.workspace.scope_of(output)
    origins = _origins(found, output)
    if change is not None and change.cause == "edited":
        origins = _with_edits(origins, output, change)
    return Explanation(place, output.root.target, scope, state, list(_sections(origins)))


def _state(op: str, edited: bool) -> str:
    if edited:
        return "edited by hand"
    return {"create": "missing", "update": "not as the pack has it"}.get(op, op)


def _sections(origins: _Origins) -> Iterator[SectionRow]:
    for origin, numbered in groupby(enumerate(origins, 1), key=lambda each: each[1]):
        lines = [number for number, _ in numbered]
        if origin is not None:
            module_id, layer, file, edit_in = origin
            yield SectionRow(lines[0], lines[-1], module_id, layer, file, edit_in)


def _origins(found: Proposal, output: Output) -> _Origins:
    """The origin of each line of a file as the pack has it."""
    data = output.blob.read()
    count = len(_lines(data))
    sections = list(section_lines(data.decode("utf-8", "replace")))
    if len(output.module_ids) == 1 or not sections:
        whose = ", ".join(output.module_ids)  # several that have the same text
        own = _of_module(found, output, output.module_ids[0])
        return _spread([origin._replace(module_id=whose) for origin in own], count, 0)
    origins: _Origins = [None] * count
    for module_id, first, last in sections:
        own = _of_module(found, output, module_id)
        # A marker stands before the text and one after it.
        origins[first - 1 : last] = _spread(own, last - first + 1, 1)
    return origins


def _spread(own: Sequence[_Origin], count: int, after: int) -> _Origins:
    """Origins for as many lines: what was added around the text goes with its ends."""
    before = max(count - after - len(own), 0)
    origins: _Origins = [*[own[0]] * before, *own, *[own[-1]] * after]
    return origins[:count]


def _of_module(found: Proposal, output: Output, module_id: str) -> list[_Origin]:
    """The origin of each line of a module's text, from its own file up through its overlays."""
    workspace = found.workspace
    module = workspace.module(module_id)
    stages = workspace.modules.stages(module, workspace.scope_of(output))
    try:
        name = file_of(output, stages[-1].tree)
    except CannotSplitError:
        name = ""
    before: list[bytes] = []
    origins: list[_Origin] = []
    for stage in stages:
        blob = stage.tree.get(name)
        if blob is None or blob.layer != stage.layer:
            continue
        lines = _lines(blob.read())
        new = _Origin(module_id, stage.layer, blob.path or stage.patch_of(name))
        if blob.path:  # a whole file, so a line that it has in common is to be changed in it
            origins = [origin._replace(edit_in=blob.path) for origin in origins]
        origins = _kept(before, lines, origins, [new] * len(lines))
        before = lines
    return origins or [_Origin(module_id, output.blob.layer, output.blob.path)]


def _with_edits(origins: _Origins, output: Output, change: Change) -> _Origins:
    """The origin of each line of the file as somebody edited it."""
    before, lines = _lines(output.blob.read()), _lines(read_file(change.path))
    edited = _Origin(", ".join(output.module_ids), BY_HAND, change.path)
    new: _Origins = [edited] * len(lines)
    return _kept(before, lines, origins, new)


def _kept(
    before: Sequence[bytes], lines: Sequence[bytes], old: Sequence[T], new: list[T]
) -> list[T]:
    """What is known of lines that are still there, and for the others what is new."""
    if max(len(before), len(lines)) > MOST_LINES:
        return new
    matcher = SequenceMatcher(None, before, lines, autojunk=False)
    for start, to, size in matcher.get_matching_blocks():
        new[to : to + size] = old[start : start + size]
    return new


def _lines(data: bytes) -> list[bytes]:
    """The lines, at least one; the last may have no line break."""
    lines = data.split(b"\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines
