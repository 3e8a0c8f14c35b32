"""Agents on this machine: each in its own worktree, each task a detached process."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fleet_agentpack.fleet.backend import Progress
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import AgentFolders, LocalAgent
from fleet_agentpack.fleet.local.programs import Program
from fleet_agentpack.fleet.local.projects import NO_PROJECTS, LocalProjects
from fleet_agentpack.fleet.local.tasks import Launch, TaskFolder
from fleet_agentpack.fleet.local.worktree import Copies
from fleet_agentpack.fleet.models import Glance, Line, Order, Project, Role, Sighting, Task


class LocalBackend:
    """The engine that needs no server."""

    def __init__(
        self,
        projects: LocalProjects,
        programs: Mapping[str, Program],
        program: str,
        folders: AgentFolders,
        copies: Copies,
        environ: Mapping[str, str],
    ) -> None:
        self._projects = projects
        self._programs = programs
        self._program = program
        self._folders = folders
        self._copies = copies
        self._environ = environ

    async def close(self) -> None:
        """Nothing to let go of: tasks go on without us."""

    @property
    def without_projects(self) -> str:
        """See `Catalogue.without_projects`."""
        return NO_PROJECTS

    async def projects(self) -> list[Project]:
        """See `Catalogue.projects`."""
        return await asyncio.to_thread(self._projects.projects)

    async def roles(self, project: str) -> list[Role]:
        """See `Catalogue.roles`."""
        return self._projects.roles(project)

    async def all(self) -> list[Glance]:
        """See `Workspaces.all`."""
        return await asyncio.to_thread(self._all)

    async def look(self, name: str, *, closely: bool) -> Sighting:
        """See `Workspaces.look`; a look is always close here."""
        return await asyncio.to_thread(self._look, name, closely)

    async def create(self, order: Order, report: Progress) -> Sighting:
        """See `Workspaces.create`."""
        return await asyncio.to_thread(self._create, order, report)

    async def delete(self, seen: Sighting, report: Progress) -> str | None:
        """See `Workspaces.delete`."""
        return await asyncio.to_thread(self._delete, seen.handle, report)

    async def ask(self, seen: Sighting) -> Sighting:
        """See `Work.ask`: the process itself is asked."""
        return await asyncio.to_thread(self._look, seen.name, True)

    async def send(self, seen: Sighting, task: Task) -> None:
        """See `Work.send`."""
        await asyncio.to_thread(self._send, seen.handle, task)

    async def interrupt(self, seen: Sighting, task: Task) -> None:
        """See `Work.interrupt`."""
        await asyncio.to_thread(self._folders.new_task(seen.handle, task.id).interrupt)

    async def transcript(self, seen: Sighting) -> list[Line]:
        """See `Work.transcript`: the output of the last task."""
        task = self._folders.current(seen.handle)
        return await asyncio.to_thread(task.lines) if task else []

    def _all(self) -> list[Glance]:
        return [self._glance(agent) for agent in self._folders.all()]

    def _glance(self, agent: LocalAgent) -> Glance:
        seen = self._sighting(agent, closely=False)
        return Glance(agent.id, agent.name, seen.online, seen.reported_at, lambda: seen)

    def _look(self, name: str, closely: bool) -> Sighting:
        agent = self._folders.find(name)
        if agent is None:
            raise FleetError.no_such_agent(name)
        return self._sighting(agent, closely=closely)

    def _create(self, order: Order, report: Progress) -> Sighting:
        try:
            project, path = self._projects.find(order.project)
        except FleetError as error:
            raise FleetError.bad_request(str(error), field="project") from error
        persona = self._projects.persona(order.role)
        program = self._installed(self._program)
        report(0, None, f"Copying {path} for agent '{order.name}'")
        with self._folders.locked(order.name):
            existing = self._folders.find(order.name)
            if existing:
                state = self._sighting(existing, closely=False).state
                raise FleetError.bad_request(
                    f"An agent called '{existing.name}' already exists; it is {state}. Choose"
                    " another name or delete it first.",
                    field="name",
                )
            key = order.name.lower()
            self._copies.set_aside(key)
            copy = self._copies.make(path, key, lambda text: report(0, None, text))
            agent = LocalAgent(
                id=str(uuid.uuid4()),
                name=order.name,
                project=project,
                origin=str(copy.origin),
                directory=str(copy.directory),
                branch=copy.branch,
                role=order.role,
                spec=order.spec,
                instructions=f"{persona.prompt}\n\nYour specification:\n{order.spec}",
                program=program.name,
                created_at=datetime.now(UTC).timestamp(),
            )
            try:
                self._folders.add(agent)
            except BaseException:
                self._copies.remove(copy.origin, key, copy.branch)
                raise
        return self._sighting(agent, closely=False)

    def _delete(self, agent: LocalAgent, report: Progress) -> str | None:
        with self._folders.locked(agent.name):
            if self._folders.find(agent.name) != agent:
                raise FleetError.no_such_agent(agent.name)
            task = self._folders.current(agent)
            if task and task.running:
                report(0, None, "Ending its task")
                task.interrupt()
            report(0, None, "Removing its directory")
            note = self._copies.remove(Path(agent.origin), agent.key, agent.branch)
            self._folders.remove(agent)
        return note

    def _send(self, agent: LocalAgent, task: Task) -> None:
        program = self._installed(agent.program)
        with self._folders.locked(agent.name):
            if self._folders.find(agent.name) != agent:
                raise FleetError.no_such_agent(agent.name)
            previous = self._folders.current(agent)
            if previous and previous.running:
                raise FleetError.conflict(
                    f"Agent '{agent.name}' is at work already.", agent_name=agent.name
                )
            session = self._conversation(previous, program)
            launch = self._launch(agent, task, program, session)
            environ = {k: v for k, v in self._environ.items() if k not in program.unset}
            self._folders.new_task(agent, task.id).start(launch, environ)
            self._folders.make_current(agent, task.id)

    def _launch(
        self, agent: LocalAgent, task: Task, program: Program, session: str | None
    ) -> Launch:
        given = session or str(uuid.uuid4())
        command, prompt = program.launch(
            task.description, agent.instructions, given, continues=session is not None
        )
        command[0] = self._found(program) or command[0]
        directory = Path(agent.directory)
        return Launch(
            task.id,
            task.description,
            program,
            command,
            prompt,
            directory,
            given,
            session is not None,
        )

    def _conversation(self, previous: TaskFolder | None, program: Program) -> str | None:
        """The conversation that the next task continues; None to begin one."""
        if previous is None or not program.converses:
            return None
        about, episode = previous.about, previous.episode(program)
        said = previous.result(program).session
        if about.get("program") != program.name or episode is None:
            return None
        if episode.ended == "failed":
            # The program may never have got as far as a conversation; one it was in goes on.
            return about["session"] if about.get("continues") else None
        return said or (about["session"] if episode.ended == "completed" else None)

    def _installed(self, name: str) -> Program:
        program = self._programs.get(name)
        if program is None:
            raise FleetError.unavailable(
                f"There is no program '{name}'; [fleet] program must be one of"
                f" {', '.join(self._programs)}."
            )
        if self._found(program) is None:
            raise FleetError.unavailable(
                f"{program.command[0]} is not installed or not on the PATH; agents of this machine"
                " need it. Install it, or choose another with [fleet] program.",
                program=program.command[0],
            )
        return program

    def _found(self, program: Program) -> str | None:
        return shutil.which(program.command[0], path=self._environ.get("PATH"))

    def _sighting(self, agent: LocalAgent, *, closely: bool) -> Sighting:
        looked_at = datetime.now(UTC)
        task = self._folders.current(agent)
        episode = task.episode(self._programs.get(agent.program)) if task else None
        there = Path(agent.directory).is_dir()
        moments = [agent.created]
        if episode:
            moments += [episode.opened_at, episode.closed_at or episode.opened_at]
        seen = Sighting(
            workspace_id=agent.id,
            name=agent.name,
            project=agent.project,
            created_at=agent.created,
            updated_at=max(moments),
            looked_at=looked_at,
            build=agent.id,
            alive=True,
            online=there,
            state="ready" if there else f"missing its directory {agent.directory}",
            handle=agent,
            role=agent.role,
            spec=agent.spec,
            episodes=(episode,) if episode else (),
            reported_at=max(moments),
        )
        if not closely:
            return seen
        working = episode is not None and episode.ended is None
        return replace(seen, activity="running" if working else "stable")
