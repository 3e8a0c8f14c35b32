"""This machine as an engine: each agent has its own repository, each task a detached process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from fleet_agentpack.fleet.backend import Progress
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import AgentFolders, LocalAgent
from fleet_agentpack.fleet.local.copies import WorkingCopies
from fleet_agentpack.fleet.local.environments import (
    Environment,
    Limits,
    about_ports,
    free_ports,
)
from fleet_agentpack.fleet.local.finishing import LocalFinishing
from fleet_agentpack.fleet.local.launching import Launcher
from fleet_agentpack.fleet.local.products import facts_of, product_of
from fleet_agentpack.fleet.local.programs import Program
from fleet_agentpack.fleet.local.projects import LocalProjects, in_thread
from fleet_agentpack.fleet.local.starting import Starter
from fleet_agentpack.fleet.models import (
    NEEDS_INPUT,
    AgentSnapshot,
    ListedAgent,
    Message,
    NewAgent,
    Product,
    Task,
    shorten,
)
from fleet_agentpack.kit.actions import Action

READY = "ready"


@dataclass(frozen=True)
class LocalBackend:
    """The engine that needs no server."""

    catalogue: LocalProjects
    programs: Mapping[str, Program]
    program: str
    folders: AgentFolders
    copies: WorkingCopies
    launcher: Launcher
    limits: Limits

    @property
    def starter(self) -> Starter:
        """What gives agents their tasks."""
        return Starter(self.catalogue, self.programs, self.folders, self.launcher)

    @property
    def finishing(self) -> LocalFinishing:
        """What can be done with agents' work."""
        return LocalFinishing(self.catalogue, self.folders, self.copies, self.launcher)

    async def close(self) -> None:
        """Nothing to close: tasks continue without us."""

    @in_thread
    def agents(self) -> list[ListedAgent]:
        """See `Workspaces.agents`."""
        return [self._listed(agent) for agent in self.folders.all()]

    @in_thread
    def find(self, name: str, *, detailed: bool) -> AgentSnapshot:
        """See `Workspaces.find`."""
        agent = self.folders.find(name)
        if agent is None:
            raise FleetError.no_such_agent(name)
        return self._snapshot(agent, detailed=detailed)

    async def with_activity(self, agent: AgentSnapshot) -> AgentSnapshot:
        """See `Tasks.with_activity`: the operating system knows."""
        return await self._asked(agent.name)

    @in_thread
    def _asked(self, name: str) -> AgentSnapshot:
        agent = self.folders.find(name)
        if agent is None:
            raise FleetError.no_such_agent(name)
        seen = self._snapshot(agent, detailed=False)
        working = any(episode.ended is None for episode in seen.episodes)
        return replace(seen, activity="running" if working else "stable")

    @in_thread
    def interrupt(self, agent: AgentSnapshot, task: Task) -> None:
        """See `Tasks.interrupt`."""
        self.folders.task(agent.handle, task.id).interrupt()

    @in_thread
    def messages(self, agent: AgentSnapshot) -> list[Message]:
        """See `Tasks.messages`: the output of the last task."""
        task = self.folders.current(agent.handle)
        return task.messages() if task else []

    @in_thread
    def product(self, agent: AgentSnapshot) -> Product:
        """See `Works.product`."""
        return product_of(self.copies, agent.handle)

    @in_thread
    def create(self, new: NewAgent, report: Progress) -> AgentSnapshot:
        """See `Workspaces.create`."""
        project, configured = self.catalogue.find(new.project)
        persona = self.catalogue.persona(new.role)
        chosen = new.choices.program or persona.program or self.program
        self.starter.installed(chosen)
        self.limits.check(self.folders.all())
        wanted = replace(
            configured,
            base=new.choices.start or configured.base,
            with_changes=new.choices.with_changes or configured.with_changes,
        )
        report(0, None, f"Copying {wanted.path} for agent '{new.name}'")
        with self.folders.locked(new.name) as existing:
            if existing:
                state = self._snapshot(existing, detailed=False).state
                raise FleetError.bad_request(
                    f"An agent called '{existing.name}' already exists; it is {state}.",
                    Action(
                        "delete_agent",
                        {"agent_name": existing.name},
                        "Choose another name, or delete it with {}.",
                        "choose another name, or run: {}",
                    ),
                    field="name",
                )
            key = new.name.lower()
            self.copies.set_aside(key)
            copy = self.copies.make(wanted, key, lambda text: report(0, None, text))
            agent = LocalAgent(
                id=str(uuid.uuid4()),
                name=new.name,
                project=project,
                origin=str(copy.origin),
                directory=str(copy.directory),
                branch=copy.branch,
                role=new.role,
                spec=new.spec,
                instructions=f"{persona.prompt}\n\nYour specification:\n{new.spec}",
                program=chosen,
                created_at=time.time(),
                base=copy.base,
                base_branch=copy.base_branch,
                model=new.choices.model,
                copied=copy.copied,
                submodules=copy.submodules,
            )
            try:
                agent = self._added(agent, wanted)
                if wanted.setup:
                    report(0, None, f"Running the project's setup: {shorten(wanted.setup)}")
                    self.launcher.set_up(agent, persona, wanted)
                self.folders.mark_ready(agent)
            except BaseException:
                self._discard(agent)
                raise
        return replace(self._snapshot(agent, detailed=True), warnings=copy.warnings)

    def _added(self, agent: LocalAgent, wanted: Environment) -> LocalAgent:
        """Store a new agent with ports of its own; it is not ready yet. Raises 503."""
        with self.folders.counting() as others:
            self.limits.check(others)
            ports = free_ports(wanted, others)
            told = agent.instructions + about_ports(ports)
            added = replace(agent, ports=ports, instructions=told)
            self.folders.mark_unready(added)
            self.folders.add(added)
        return added

    def _discard(self, agent: LocalAgent) -> None:
        """Remove an agent that nobody has given work to."""
        with self.copies.locked(Path(agent.origin)):
            self.copies.discard(agent)
        self.folders.remove(agent)

    async def wake(self, agent: AgentSnapshot, report: Progress) -> AgentSnapshot:  # noqa: ARG002
        """See `Workspaces.wake`: a directory that is missing cannot be brought back."""
        return agent

    @in_thread
    def unsaved(self, snapshot: AgentSnapshot) -> list[str]:
        """See `Workspaces.unsaved`."""
        agent: LocalAgent = snapshot.handle
        return self.copies.of(agent).unsaved()

    @in_thread
    def delete(self, snapshot: AgentSnapshot, report: Progress) -> str | None:
        """See `Workspaces.delete`."""
        agent: LocalAgent = snapshot.handle
        with self.folders.locked(agent.name) as found:
            if found != agent:
                raise FleetError.no_such_agent(agent.name)
            for task in self.folders.tasks(agent):
                if task.running:
                    report(0, None, "Stopping its task")
                    task.interrupt()
                task.end_left_overs()
            report(0, None, "Removing its directory")
            with self.copies.locked(Path(agent.origin)):
                note = self.copies.of(agent).remove()
            self.folders.remove(agent)
        return note

    @in_thread
    def send(self, snapshot: AgentSnapshot, task: Task) -> None:
        """See `Tasks.send`."""
        self.starter.give(snapshot.handle, task, may_wait=False)

    @in_thread
    def enqueue(self, snapshot: AgentSnapshot, task: Task) -> tuple[str, ...]:
        """See `Queueing.enqueue`."""
        return self.starter.give(snapshot.handle, task, may_wait=True)

    def _listed(self, agent: LocalAgent) -> ListedAgent:
        task = self.folders.current(agent)
        online = self._state(agent) == READY
        news = (online, task.fingerprint if task else None)
        return ListedAgent(
            agent.id, agent.name, online, news, lambda: self._snapshot(agent, detailed=False)
        )

    def _state(self, agent: LocalAgent) -> str:
        """What an agent's directory is like."""
        if not Path(agent.directory).is_dir():
            return f"missing its directory {agent.directory}"
        return READY if self.folders.is_ready(agent) else "not set up yet, or not to its end"

    def _facts(self, agent: LocalAgent, question: str | None) -> dict[str, str]:
        return facts_of(self.copies, agent, self.folders.root / agent.key, question)

    def _snapshot(self, agent: LocalAgent, *, detailed: bool) -> AgentSnapshot:
        taken_at = datetime.now(UTC)
        task = self.folders.current(agent)
        episode = task.episode() if task else None
        question = task.question if task else None
        state = self._state(agent)
        created_at = datetime.fromtimestamp(agent.created_at, UTC)
        moments = [created_at]
        if episode:
            moments += [episode.opened_at, episode.closed_at or episode.opened_at]
        working = episode is not None and episode.ended is None
        return AgentSnapshot(
            workspace_id=agent.id,
            name=agent.name,
            project=agent.project,
            created_at=created_at,
            updated_at=max(moments),
            taken_at=taken_at,
            build=agent.id,
            alive=True,
            online=state == READY,
            state=state,
            handle=agent,
            role=agent.role,
            spec=agent.spec,
            episodes=(episode,) if episode else (),
            reported_at=max(moments),
            activity=None if not detailed else "running" if working else "stable",
            metadata=self._facts(agent, question) if detailed else {},
            attention=NEEDS_INPUT if question else "",
            queued=task.path.name if task and task.waiting else None,
        )
