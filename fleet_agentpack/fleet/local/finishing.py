"""What becomes of an agent's work on this machine: merged, rebased, or made a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import AgentFolders, LocalAgent
from fleet_agentpack.fleet.local.branches import Branches
from fleet_agentpack.fleet.local.collect import collect
from fleet_agentpack.fleet.local.copies import WorkingCopies
from fleet_agentpack.fleet.local.git import NOTHING_OF_ITS_OWN, Git, Repository
from fleet_agentpack.fleet.local.kept import named
from fleet_agentpack.fleet.local.launching import Launcher
from fleet_agentpack.fleet.local.merging import MergePlan, Merger
from fleet_agentpack.fleet.local.projects import LocalProjects, in_thread
from fleet_agentpack.fleet.local.pull_requests import PullRequests
from fleet_agentpack.fleet.local.repository import OwnRepository
from fleet_agentpack.fleet.models import AgentSnapshot, Merged, PullRequest, shorten
from fleet_agentpack.fleet.roles import Persona
from fleet_agentpack.kit.approval import Group, Question, digest_of
from fleet_agentpack.kit.process import Completed, run

REBASE_S = 300.0
TITLE = 70  # characters of a pull request's title


@dataclass(frozen=True)
class LocalFinishing:
    """The work of agents on this machine."""

    catalogue: LocalProjects
    folders: AgentFolders
    copies: WorkingCopies
    launcher: Launcher

    @in_thread
    def merging(self, agent: AgentSnapshot, into: str | None, squash: bool) -> Question:
        """See `Finishing.merging`."""
        return _question(agent.name, self._plan(agent.handle, into), squash)

    @in_thread
    def merge(
        self, agent: AgentSnapshot, into: str | None, squash: bool, approved: str | None
    ) -> Merged:
        """See `Finishing.merge`."""
        local: LocalAgent = agent.handle
        with self._at_rest(local) as origin, self.copies.locked(Path(local.origin)):
            plan = self._plan(local, into)
            if approved is not None:
                _question(agent.name, plan, squash).check(approved)
            who = self._git.identity(origin, self.copies.author)
            message = self._message(origin, plan, local, squash)
            return Merger(self._git, origin).merge(plan, squash=squash, message=message, who=who)

    @in_thread
    def pull_request(self, agent: AgentSnapshot) -> PullRequest:
        """See `Finishing.pull_request`."""
        local: LocalAgent = agent.handle
        _branch_of(local)
        origin = self.copies.origin_of(local)
        requests = PullRequests(self._git, origin, self.launcher.environ)
        return requests.open(local, shorten(local.spec, TITLE), self.folders.root / local.key)

    @in_thread
    def sync(self, agent: AgentSnapshot) -> str:
        """See `Finishing.sync`: a rebase, inside the agent's sandbox."""
        local: LocalAgent = agent.handle
        role = self.catalogue.known(local.role)
        branch = _branch_of(local)
        with self._at_rest(local) as origin:
            ref = Branches(self._git, origin).ref_of(local.base_branch)
            base = ref and self._git.commit_of(origin, ref)
            if not base:
                raise FleetError.bad_request(
                    f"{branch} came from no branch, or from one that is gone."
                )
            if self._git.succeeds(
                origin, "merge-base", "--is-ancestor", base, f"refs/heads/{branch}"
            ):
                return f"{branch} is up to date with {local.base_branch}."
            own = OwnRepository(self._git, origin, self.copies.root / local.key, local.key)
            self._rebase(local, role, own.inside, base)
            self._git.run(origin, "update-ref", own.kept_base, base)
            self.folders.add(replace(local, base=base))
            job = self.launcher.collection(local, None)
            problem = collect(job)[1] if job else None
        return problem or f"{branch} is on top of {local.base_branch} now."

    def _rebase(
        self, agent: LocalAgent, role: Persona | None, inside: Repository, base: str
    ) -> None:
        def git(*words: str) -> Completed:
            command = ["git", "--no-pager", *inside.arguments, *NOTHING_OF_ITS_OWN, *words]
            room = self.launcher.inside(agent, role)
            return run([*room, *command], env=self.launcher.environ, timeout_s=REBASE_S)

        if git("rebase", "--quiet", "--no-autostash", base).status == 0:
            return
        listed = git("diff", "--name-only", "--diff-filter=U", "-z").text
        conflicts = [path for path in listed.split("\0") if path]
        git("rebase", "--abort")
        where = f" in {named(conflicts)}" if conflicts else ""
        raise FleetError.conflict(
            f"{agent.branch} conflicts with {agent.base_branch}{where}; nothing was changed."
            " Give the agent the task to rebase, or merge by hand.",
            conflicts=conflicts,
        )

    @contextmanager
    def _at_rest(self, agent: LocalAgent) -> Iterator[Repository]:
        """The user's repository, while the agent does nothing. Raises 409 when it works."""
        with self.folders.locked(agent.name) as found:
            if found is None or found.id != agent.id:
                raise FleetError.no_such_agent(agent.name)
            task = self.folders.current(agent)
            if task and task.running:
                raise FleetError.busy(agent.name)
            yield self.copies.origin_of(agent)

    def _plan(self, agent: LocalAgent, into: str | None) -> MergePlan:
        origin = self.copies.origin_of(agent)
        base = agent.base_branch
        is_ours = Branches(self._git, origin).ref_of(base) == f"refs/heads/{base}"
        default = base if is_ours else None  # the one that is checked out
        return Merger(self._git, origin).plan(_branch_of(agent), into or default)

    def _message(self, origin: Repository, plan: MergePlan, agent: LocalAgent, squash: bool) -> str:
        if not squash:
            return f"Merge branch '{plan.branch}' into {plan.into}"
        log = self._git.run(
            origin, "log", "--reverse", "--format=* %s", f"{plan.target}..{plan.work}"
        )
        return f"{shorten(agent.spec, TITLE)}\n\n{log.text.strip()}\n\nAgent: {agent.name}"

    @property
    def _git(self) -> Git:
        return self.copies.git


def _branch_of(agent: LocalAgent) -> str:
    """The branch of an agent's work. Raises 400 for a plain copy."""
    if agent.branch is None:
        raise FleetError.bad_request(
            f"{agent.origin} is no git repository; the work of agent '{agent.name}' is in"
            f" {agent.directory}."
        )
    return agent.branch


def _question(name: str, plan: MergePlan, squash: bool) -> Question:
    """What a person is asked before a merge."""
    how = " as one commit" if squash else ""
    what = f"{plan.commits} commit{'' if plan.commits == 1 else 's'}"
    told = f"Merge {what} of agent {name} ({plan.branch}) into {plan.into}{how}."
    groups = [Group("Files", plan.files)] if plan.files else []
    digest = digest_of(plan.work, plan.target, plan.into, squash)
    return Question(told, groups, "Merge this work", bool(plan.commits), digest)
