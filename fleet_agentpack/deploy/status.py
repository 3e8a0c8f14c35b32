"""The answer to status: what differs from the pack, who moved, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable

from fleet_agentpack.deploy.actions import status_actions
from fleet_agentpack.deploy.apply import Proposal
from fleet_agentpack.deploy.compare import drift, summary_by_root, summary_of
from fleet_agentpack.deploy.left_out import left_out
from fleet_agentpack.deploy.model import FileState, Root
from fleet_agentpack.deploy.results import StatusData
from fleet_agentpack.kit.results import UNKNOWN


def status_data(found: Proposal, extras: Iterable[tuple[Root, str, FileState]]) -> StatusData:
    """Every difference, or those of the kinds that were asked for."""
    survey, request = found.survey, found.workspace.request
    meant = left_out(found.workspace.home)
    rows = drift(survey, found.plan, (each for each in extras if not meant.covers(each[1])))
    shown = [row for row in rows if not request.only or row.kind in request.only]
    actions = status_actions(request, rows, needs_deploy=bool(survey.unrecorded))
    return StatusData(
        shown,
        request.profile,
        summary_of(shown),
        summary_by_root(shown),
        found.targets,
        summary_of(rows) if request.only else UNKNOWN,
        [action.command for action in actions] or UNKNOWN,
        actions or UNKNOWN,
        found.workspace.profiles_used,
        survey.target_errors,
    )
