"""Gives agents on this machine their tasks; all is recorded before anything is started."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import AgentFolders, LocalAgent
from fleet_agentpack.fleet.local.collect import collect
from fleet_agentpack.fleet.local.kept import named
from fleet_agentpack.fleet.local.launching import Launcher
from fleet_agentpack.fleet.local.places import Places
from fleet_agentpack.fleet.local.programs import Order, Program
from fleet_agentpack.fleet.local.projects import LocalProjects
from fleet_agentpack.fleet.local.tasks import TaskFolder, TaskRecord
from fleet_agentpack.fleet.models import Task
from fleet_agentpack.kit.actions import Action


@dataclass(frozen=True)
class Starter:
    """Starts tasks, as many of a project at once as it allows."""

    catalogue: LocalProjects
    programs: Mapping[str, Program]
    folders: AgentFolders
    launcher: Launcher

    def give(self, agent: LocalAgent, task: Task, *, may_wait: bool) -> tuple[str, ...]:
        """Give an agent a task; returns those whose end it waits for, if it does.

        Raises 409 for a busy agent, and 503 where there is no room and it may not wait.
        """
        program = self.installed(agent.program)
        with self.folders.locked(agent.name) as found:
            if found != agent:
                raise FleetError.no_such_agent(agent.name)
            previous = self.folders.current(agent)
            if previous and previous.running:
                raise FleetError.busy(agent.name)
            if previous:
                self._finish(agent, previous)
            places = self._places(agent)
            if places is None:
                self._start(agent, program, task, previous)
                return ()
            return self._take_turn(agent, program, task, previous, places, may_wait)

    def _take_turn(
        self,
        agent: LocalAgent,
        program: Program,
        task: Task,
        previous: TaskFolder | None,
        places: Places,
        may_wait: bool,
    ) -> tuple[str, ...]:
        place = None if places.waiting() else places.take()
        running = () if place is not None else self._running(agent.project)
        if place is None and not running:  # the last one has only just ended
            place = places.take()
        if place is None and not may_wait:
            raise no_room(agent.project, places.count, running)
        try:
            self._start(agent, program, task, previous, place, places)
        finally:
            if place is not None:
                os.close(place)
        return running

    def installed(self, name: str) -> Program:
        """A program that agents can run. Raises 503."""
        program = self.programs.get(name)
        if program is None:
            raise FleetError.unavailable(
                f"There is no program '{name}'; [fleet] program must be one of"
                f" {', '.join(self.programs)}."
            )
        if self.launcher.path_of(program) is None:
            raise FleetError.unavailable(
                f"{program.command[0]} is not installed or not on the PATH; agents on this machine"
                " need it. Install it, or choose another program with [fleet] program.",
                program=program.command[0],
            )
        return program

    def _start(
        self,
        agent: LocalAgent,
        program: Program,
        task: Task,
        previous: TaskFolder | None,
        place: int | None = None,
        places: Places | None = None,
    ) -> None:
        role = self.catalogue.known(agent.role)
        order = self._order(agent, program, task, previous)
        launch, prompt = self.launcher.launch(agent, role, program, order)
        if places and place is None:
            launch = replace(launch, places=str(places.folder), places_count=places.count)
        record = TaskRecord(
            task.id,
            task.description,
            agent.program,
            order.session,
            order.continues,
            time.time(),
            program.readings,
            order.sandboxed,
            program.denied_in_errors,
        )
        folder = self.folders.task(agent, task.id)
        lock = folder.prepare(record, launch, prompt)
        try:
            if places and place is None:
                places.queue(folder.path)
            self.folders.make_current(agent, task.id)
            folder.start(launch, lock, place, self.launcher.variables(program, agent))
        except FleetError:  # it never ran
            self.folders.withdraw(agent, folder, previous)
            raise
        finally:
            os.close(lock)

    def _order(
        self, agent: LocalAgent, program: Program, task: Task, previous: TaskFolder | None
    ) -> Order:
        role, sandboxed = self.catalogue.known(agent.role), self.launcher.sandbox is not None
        continued = previous and _session_to_continue(previous, agent.program, program, sandboxed)
        return Order(
            task.description,
            agent.instructions,
            continued or str(uuid.uuid4()),
            bool(continued),
            agent.directory,
            sandboxed,
            role.commands if role else (),
            agent.model or (role.model if role else None),
            role.max_cost_usd if role else None,
        )

    def _finish(self, agent: LocalAgent, previous: TaskFolder) -> None:
        """Do what the runner of the previous task did not, if it was killed."""
        previous.end_left_overs()
        record = previous.record
        if previous.ended is None and record:
            job = self.launcher.collection(agent, self.launcher.message(record.description, agent))
            if job:
                collect(job)

    def _places(self, agent: LocalAgent) -> Places | None:
        """The places of an agent's project; None if it has no limit."""
        count = self.catalogue.max_running(agent.project)
        if count is None:
            return None
        name = hashlib.sha256(agent.project.encode()).hexdigest()[:16]
        return Places(self.folders.root.parent / "locks" / f"places-{name}", count)

    def _running(self, project: str) -> tuple[str, ...]:
        """The agents of a project whose task runs, or waits before ours."""
        tasks = [(each, self.folders.current(each)) for each in self.folders.all()]
        return tuple(
            each.name for each, task in tasks if each.project == project and task and task.running
        )


def no_room(project: str, limit: int, running: tuple[str, ...]) -> FleetError:
    """503: as many tasks of a project run as may."""
    return FleetError.unavailable(
        f"Project '{project}' may run {limit} task{'s' if limit > 1 else ''} at once"
        f" (max_running), and these agents have one: {named(running)}.",
        Action(
            "wait_for_agents",
            {"agent_names": [*running]},
            "Call {}, then start the task.",
            person="wait for one of them, or let the task wait with: fleet start --queue",
        ),
        limit=limit,
        running=[*running],
    )


def _session_to_continue(
    previous: TaskFolder, name: str, program: Program, sandboxed: bool
) -> str | None:
    """The conversation that the next task continues; None to begin one."""
    record, episode = previous.record, previous.episode()
    if not program.next or record is None or episode is None or record.program != name:
        return None
    if record.sandboxed != sandboxed:  # the program looks for it in another home
        return None
    # What the program itself said counts: a conversation exists once it has named it.
    told = previous.result().session
    ended = previous.ended
    refused = episode.ended == "failed" and ended is not None and (ended.status or 0) > 0
    begun = episode.ended == "completed" or (record.continues and not refused)
    return told or (record.session if begun else None)
