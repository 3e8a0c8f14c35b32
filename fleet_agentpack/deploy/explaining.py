"""`explain`: which module and which layer each line of a deployed file comes from."""

from __future__ import annotations

import os

from fleet_agentpack.deploy.apply import Proposal
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.model import Output
from fleet_agentpack.deploy.targets.contents import section_lines
from fleet_agentpack.deploy.upkeep_results import Explanation, SectionRow
from fleet_agentpack.deploy.validate import INSTRUCTIONS


def explain(found: Proposal, path: str) -> Explanation:
    """Where a file comes from. Raises `DeployError` when no module writes it."""
    place = os.path.normpath(path)
    output = next((each for each in found.survey.desired.all if each.path == place), None)
    if output is None:
        raise DeployError.because(
            "not_in_pack",
            f"no module of the pack writes {place}; plan lists every file that one does",
            path=place,
        )
    change = next((each for each in found.plan.changes if each.path == place), None)
    state = "as the pack has it" if change is None else _state(change.op, change.edited_by_hand)
    scope = found.workspace.scope_of(output)
    return Explanation(place, output.root.target, scope, state, _sections(found, output))


def _state(op: str, edited: bool) -> str:
    if edited:
        return "edited by hand"
    return {"create": "missing", "update": "not as the pack has it"}.get(op, op)


def _sections(found: Proposal, output: Output) -> list[SectionRow]:
    data = output.blob.read()
    last = data.count(b"\n") + (not data.endswith(b"\n"))
    if len(output.module_ids) == 1:
        return [_row(found, output, output.module_ids[0], 1, last)]
    return [
        _row(found, output, module_id, first, end)
        for module_id, first, end in section_lines(data.decode("utf-8"))
    ]


def _row(found: Proposal, output: Output, module_id: str, first: int, last: int) -> SectionRow:
    tree = found.workspace.tree(module_id, output)
    blob = tree.get(INSTRUCTIONS) or output.blob
    file = blob.path or output.blob.path
    if not file:  # made by a patch
        overlays = found.workspace.overlays.of(module_id)
        file = overlays[-1].directory if overlays else ""
    return SectionRow(first, last, module_id, blob.layer, file)
