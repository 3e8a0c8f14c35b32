"""The answer to status: drift, counted and with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from fleet_agentpack.deploy.actions import status_actions
from fleet_agentpack.deploy.compare import summary_by_root, summary_of
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import DriftRow, StatusData
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.kit.results import UNKNOWN


def status_data(
    request: Request, targets: Sequence[str], survey: Survey, rows: Sequence[DriftRow]
) -> StatusData:
    """What status answers about these rows; some may not have been asked for."""
    shown = [row for row in rows if not request.only or row.kind in request.only]
    total = summary_of(rows)
    actions = status_actions(request, total, needs_deploy=bool(survey.unrecorded))
    return StatusData(
        shown,
        request.profile,
        summary_of(shown),
        summary_by_root(shown),
        targets,
        total if request.only else UNKNOWN,
        [action.command for action in actions] or UNKNOWN,
        actions or UNKNOWN,
    )
