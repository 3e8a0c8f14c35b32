"""Where the files of a root belong: the project, or the home, that the root is in."""

from __future__ import annotations

import os

from fleet_agentpack.deploy.ownership import Holding
from fleet_agentpack.deploy.targets import BY_NAME


def project_of(holding: Holding) -> str:
    """The project whose files these are; nothing for the user's own."""
    return "" if holding.scope == "user" else _top(holding, "project")


def is_in(holding: Holding, project: str) -> bool:
    """Whether these are files of a project, and not of another one inside it."""
    place = project_of(holding)
    return bool(place and project) and os.path.realpath(place) == os.path.realpath(project)


def gone_place(holding: Holding) -> str:
    """The project or home of a root, if it was deleted or moved away."""
    place = project_of(holding)
    if not place:  # the tool's own directory may be gone, the home that it was in is not
        place = os.path.dirname(_top(holding, "user"))
    return "" if not holding.scope or os.path.isdir(place) else place


def _top(holding: Holding, scope: str) -> str:
    """The directory that the areas of a target are in."""
    areas = BY_NAME[holding.target].areas
    inside = [f"/{area.dir}" for area in areas if area.scope == scope and area.dir]
    tops = [holding.root.removesuffix(each) for each in inside if holding.root.endswith(each)]
    return min(tops, key=len, default=holding.root)
