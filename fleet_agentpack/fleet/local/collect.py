"""Brings the work of a task to its agent's branch, once the program has ended."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import find_agent
from fleet_agentpack.fleet.local.copies import WorkingCopies
from fleet_agentpack.fleet.local.directory_state import too_large
from fleet_agentpack.fleet.local.git import Git, Repository
from fleet_agentpack.fleet.local.kept import KeptFiles
from fleet_agentpack.fleet.local.repository import OwnRepository, UnfetchableError
from fleet_agentpack.fleet.local.tasks import Collection


def is_sound(job: Collection) -> bool:
    """Whether git can be expected to come to an end in the agent's repository."""
    copies = _copies(job)
    root = copies.root / job.agent.lower()
    if too_large(root):
        return False
    with suppress(UnfetchableError):
        return bool(OwnRepository(copies.git, Repository(root), root, "").tip())
    return False


def _copies(job: Collection) -> WorkingCopies:
    kept, locks = KeptFiles(Path(job.kept)), Path(job.locks)
    return WorkingCopies(Path(job.copies), kept, locks, Git(os.environ), job.author)


def collect(job: Collection) -> tuple[bool | None, str | None]:
    """Whether the branch has news now, and what stood in the way."""
    copies = _copies(job)
    git = copies.git
    try:
        agent = find_agent(Path(job.agents), job.agent)
        if agent is None or agent.branch is None:
            return None, None
        origin, branch = copies.origin_of(agent), f"refs/heads/{agent.branch}"
        before = git.commit_of(origin, branch)
        with copies.locked(Path(agent.origin)):
            problem = copies.of(agent).collect(job.message)
        return git.commit_of(origin, branch) != before, problem
    except (FleetError, OSError, TimeoutError) as error:
        return None, f"Its work was not fetched: {error}"
