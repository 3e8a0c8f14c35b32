"""What an agent on this machine has made: the commits, files and diff of its branch."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import LocalAgent
from fleet_agentpack.fleet.local.branches import Branches
from fleet_agentpack.fleet.local.copies import WorkingCopies
from fleet_agentpack.fleet.local.git import PLAIN_DIFF, Git, Repository
from fleet_agentpack.fleet.local.pull_requests import pull_request_of
from fleet_agentpack.fleet.models import ChangedFile, Product, shorten


def product_of(copies: WorkingCopies, agent: LocalAgent) -> Product:
    """The work on an agent's branch since it started. Raises 503 when the repository is gone."""
    if agent.branch is None:
        return Product(agent.directory)
    git, origin = copies.git, copies.origin_of(agent)
    base, tip = span_of(git, origin, agent)
    diff = git.run(origin, "diff", *PLAIN_DIFF, base, tip)
    files = _files(git, origin, base, tip)
    return Product(
        agent.directory, agent.branch, base, _ahead(git, origin, base, tip), files, diff.text
    )


def span_of(git: Git, origin: Repository, agent: LocalAgent) -> tuple[str, str]:
    """Where an agent's work begins and ends: what its branch shares with the one it came from."""
    tip = git.commit_of(origin, f"refs/heads/{agent.branch}") or agent.base or "HEAD"
    ref = Branches(git, origin).ref_of(agent.base_branch)
    begun = git.commit_of(origin, ref) if ref else None
    shared = git.text(origin, "merge-base", begun or agent.base or "HEAD", tip)
    return shared or agent.base or tip, tip


def facts_of(
    copies: WorkingCopies, agent: LocalAgent, folder: Path, question: str | None
) -> dict[str, str]:
    """What `show_agent` says about an agent's work, under the names that Coder's templates use."""
    facts = {"directory": agent.directory}
    if agent.branch is not None:
        facts["branch"] = agent.branch
        with suppress(FleetError, TimeoutError):
            git, origin = copies.git, copies.origin_of(agent)
            base, tip = span_of(git, origin, agent)
            facts["base"] = base
            facts["ahead"] = str(_ahead(git, origin, base, tip))
            facts["changed_files"] = str(len(_files(git, origin, base, tip)))
    if agent.ports:
        facts["ports"] = f"{agent.ports[0]}-{agent.ports[1]}"
    if question:
        facts["question"] = shorten(question, 500)
    pull_request = pull_request_of(folder)
    facts |= {f"pull_request_{name}": value for name, value in pull_request.items()}
    return {f"fleet_mcp_{name}": value for name, value in facts.items()}


def _ahead(git: Git, origin: Repository, base: str, tip: str) -> int:
    return int(git.text(origin, "rev-list", "--count", f"{base}..{tip}") or 0)


def _files(git: Git, origin: Repository, base: str, tip: str) -> tuple[ChangedFile, ...]:
    options = ("--numstat", "--no-renames", "-z", "--no-ext-diff", "--no-textconv")
    counted = git.run(origin, "diff", *options, base, tip).text
    return tuple(_changed(row) for row in counted.split("\0") if row)


def _changed(row: str) -> ChangedFile:
    """A row of `--numstat`; git writes `-` for a file that is not text."""
    added, removed, path = row.split("\t", 2)
    return ChangedFile(
        path,
        int(added) if added.isdigit() else None,
        int(removed) if removed.isdigit() else None,
    )
