"""This machine as an engine: each agent has its own worktree, each task a detached process."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fleet_agentpack.fleet.backend import Progress
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import AgentFolders, LocalAgent
from fleet_agentpack.fleet.local.programs import Program
from fleet_agentpack.fleet.local.projects import LocalProjects, in_thread
from fleet_agentpack.fleet.local.tasks import Launch, TaskFolder, TaskRecord
from fleet_agentpack.fleet.local.worktree import WorkingCopies
from fleet_agentpack.fleet.models import AgentSnapshot, ListedAgent, Message, NewAgent, Task
from fleet_agentpack.kit.actions import Action


@dataclass(frozen=True)
class LocalBackend:
    """The engine that needs no server."""

    catalogue: LocalProjects
    programs: Mapping[str, Program]
    program: str
    folders: AgentFolders
    copies: WorkingCopies
    environ: Mapping[str, str]

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
        return await self.find(agent.name, detailed=True)

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
    def create(self, new: NewAgent, report: Progress) -> AgentSnapshot:
        """See `Workspaces.create`."""
        project, path = self.catalogue.find(new.project)
        persona = self.catalogue.persona(new.role)
        self._installed(self.program)
        report(0, None, f"Copying {path} for agent '{new.name}'")
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
            copy = self.copies.make(path, key, lambda text: report(0, None, text))
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
                program=self.program,
                created_at=time.time(),
            )
            try:
                self.folders.add(agent)
            except BaseException:
                self.copies.remove(copy.origin, key, copy.branch)
                raise
        return self._snapshot(agent, detailed=False)

    @in_thread
    def unsaved(self, snapshot: AgentSnapshot) -> list[str]:
        """See `Workspaces.unsaved`."""
        agent: LocalAgent = snapshot.handle
        return self.copies.unsaved(Path(agent.origin), agent.key, agent.branch)

    @in_thread
    def delete(self, snapshot: AgentSnapshot, report: Progress) -> str | None:
        """See `Workspaces.delete`."""
        agent: LocalAgent = snapshot.handle
        with self.folders.locked(agent.name) as found:
            if found != agent:
                raise FleetError.no_such_agent(agent.name)
            task = self.folders.current(agent)
            if task and task.running:
                report(0, None, "Stopping its task")
                task.interrupt()
            report(0, None, "Removing its directory")
            note = self.copies.remove(Path(agent.origin), agent.key, agent.branch)
            self.folders.remove(agent)
        return note

    @in_thread
    def send(self, snapshot: AgentSnapshot, task: Task) -> None:
        """See `Tasks.send`."""
        agent: LocalAgent = snapshot.handle
        program = self._installed(agent.program)
        with self.folders.locked(agent.name) as found:
            if found != agent:
                raise FleetError.no_such_agent(agent.name)
            previous = self.folders.current(agent)
            if previous and previous.running:
                raise FleetError.busy(agent.name)
            continued = previous and _session_to_continue(previous, agent.program, program)
            session, continues = continued or str(uuid.uuid4()), bool(continued)
            record = TaskRecord(
                task.id, task.description, agent.program, session, continues, time.time()
            )
            command, prompt = program.launch(
                task.description, agent.instructions, session, continues=continues
            )
            launch = Launch([self._path_of(program) or command[0], *command[1:]], agent.directory)
            environ = {k: v for k, v in self.environ.items() if k not in program.unset}
            self.folders.task(agent, task.id).start(record, launch, prompt, environ)
            self.folders.make_current(agent, task.id)

    def _listed(self, agent: LocalAgent) -> ListedAgent:
        snapshot = self._snapshot(agent, detailed=False)
        return ListedAgent(
            agent.id, agent.name, snapshot.online, snapshot.reported_at, lambda: snapshot
        )

    def _installed(self, name: str) -> Program:
        program = self.programs.get(name)
        if program is None:
            raise FleetError.unavailable(
                f"There is no program '{name}'; [fleet] program must be one of"
                f" {', '.join(self.programs)}."
            )
        if self._path_of(program) is None:
            raise FleetError.unavailable(
                f"{program.command[0]} is not installed or not on the PATH; agents on this machine"
                " need it. Install it, or choose another program with [fleet] program.",
                program=program.command[0],
            )
        return program

    def _path_of(self, program: Program) -> str | None:
        return shutil.which(program.command[0], path=self.environ.get("PATH"))

    def _snapshot(self, agent: LocalAgent, *, detailed: bool) -> AgentSnapshot:
        taken_at = datetime.now(UTC)
        task = self.folders.current(agent)
        episode = task.episode(self.programs.get(agent.program)) if task else None
        exists = Path(agent.directory).is_dir()
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
            online=exists,
            state="ready" if exists else f"missing its directory {agent.directory}",
            handle=agent,
            role=agent.role,
            spec=agent.spec,
            episodes=(episode,) if episode else (),
            reported_at=max(moments),
            activity=None if not detailed else "running" if working else "stable",
        )


def _session_to_continue(previous: TaskFolder, name: str, program: Program) -> str | None:
    """The conversation that the next task continues; None to begin one."""
    record, episode = previous.record, previous.episode(program)
    if not program.next or record is None or episode is None or record.program != name:
        return None
    if episode.ended == "failed":
        # A first task may have failed before the conversation existed.
        return record.session if record.continues else None
    told = previous.result(program).session
    return told or (record.session if episode.ended == "completed" else None)
