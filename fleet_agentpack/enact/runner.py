"""Runs a tool: checks arguments, chooses a backend, enforces limits, parses the output."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fleet_agentpack.enact import arguments, schemas, template, variables
from fleet_agentpack.enact.backends.bubblewrap import Bubblewrap
from fleet_agentpack.enact.backends.child import LARGEST_OUTPUT, Ended, execute
from fleet_agentpack.enact.backends.container import Container
from fleet_agentpack.enact.backends.dagger import Dagger
from fleet_agentpack.enact.backends.host import Host
from fleet_agentpack.enact.backends.job import Backend, Job, with_our_python
from fleet_agentpack.enact.config import ExecutionConfig
from fleet_agentpack.enact.errors import PUBLISHER, EnactError, ask_user, then_again
from fleet_agentpack.enact.manifest import Manifest, Script
from fleet_agentpack.enact.results import RunResult
from fleet_agentpack.enact.settings import EnactSettings
from fleet_agentpack.kit.actions import Action

LONGEST_TIMEOUT_S = 3600.0
LONGEST_EXCERPT = 4000

Report = Callable[[float, float | None, str], None]


@dataclass(frozen=True)
class Runnable:
    """A tool ready to run: its manifest and its verified files."""

    manifest: Manifest
    folder: Path
    builtin: bool = False


class Runner:
    """Runs scripts of tools."""

    def __init__(self, settings: EnactSettings) -> None:
        self._settings = settings
        self._path_rules = arguments.PathRules(
            settings.paths, settings.home, (settings.root, *settings.own)
        )
        # A project's own `.enact/.env` is not read: a repository that the user merely opened must
        # not choose where a tool that holds the user's secrets sends them.
        self._variables = variables.VariableSources(
            settings.environ,
            settings.root / ".env",
            settings.keyring or variables.system_keyring,
        )

    def run(
        self,
        subject: Runnable,
        script: Script | None,
        given: Mapping[str, Any],
        execution: ExecutionConfig,
        report: Report,
    ) -> RunResult:
        """Run one script with these arguments. Raises `EnactError`."""
        if script is None:
            return _instructions(subject.manifest, given)
        tool = subject.manifest.name
        prepared = arguments.prepare(tool, script.input_schema, given, self._path_rules)
        resolved = variables.resolve(tool, subject.manifest.variables, self._variables)
        job = self._job(subject, script, prepared, resolved)
        provider = self._provider(subject, execution)
        timeout_s = min(subject.manifest.timeout_s or execution.timeout_s, LONGEST_TIMEOUT_S)
        ended = self._execute(provider, job, timeout_s, report)
        return _result(tool, script, ended, provider.name, resolved)

    def _job(
        self,
        subject: Runnable,
        script: Script,
        prepared: arguments.Prepared,
        resolved: variables.Resolved,
    ) -> Job:
        try:
            argv = template.render(script.command, prepared.values, script.input_schema)
        except template.ValueRefused as refused:
            raise EnactError.bad_argument(refused.parameter, refused.reason) from refused
        stdin = json.dumps(prepared.values).encode() if subject.manifest.stdin_json else b""
        job = Job(
            tool=subject.manifest.name,
            folder=subject.folder,
            argv=argv,
            env=resolved.values,
            mounts=prepared.mounts,
            network=subject.manifest.network,
            image=subject.manifest.image,
            stdin=stdin,
        )
        return with_our_python(job) if subject.builtin else job

    def _execute(self, provider: Backend, job: Job, timeout_s: float, report: Report) -> Ended:
        def tick(elapsed_s: float) -> None:
            report(round(elapsed_s, 1), None, f"{job.tool} has been running for {elapsed_s:.0f} s")

        with provider.prepared(job) as start:
            try:
                ended = execute(
                    start.command, timeout_s=timeout_s, tick=tick, on_kill=start.on_kill
                )
            except OSError as error:
                reason = f"{start.command.argv[0]}: {error.strerror or error}"
                step = ask_user(f"install what {job.tool} needs, or call another tool")
                raise EnactError.backend_unavailable(job.tool, reason, step) from error
        if ended.reason == "exit" and ended.exit_code == start.failed_status:
            said = ended.stderr.decode("utf-8", "replace").strip()[-LONGEST_EXCERPT:]
            step = ask_user(f"check that {provider.name} works and can pull {job.image}")
            raise EnactError.backend_unavailable(job.tool, f"{provider.name} failed: {said}", step)
        return ended

    def _provider(self, subject: Runnable, execution: ExecutionConfig) -> Backend:
        name = subject.manifest.name
        provider: Backend
        if subject.builtin:
            sandboxed = execution.backend != "local" and not self._bubblewrap.unavailable()
            provider = self._bubblewrap if sandboxed else Host(self._path, "direct")
        elif any(_in_scope(name, scope) for scope in execution.trusted_scopes):
            return Host(self._path)
        else:
            natural = "container" if subject.manifest.image else "bubblewrap"
            provider = self._backend(execution.backend or natural)
            if provider.unavailable() and execution.fallback:
                provider = self._backend(execution.fallback)
        if reason := provider.unavailable():
            step = ask_user("install it, or choose execution.default in ~/.enact/config.yaml")
            raise EnactError.backend_unavailable(name, reason, step)
        return provider

    def _backend(self, name: str) -> Backend:
        if name == "bubblewrap":
            return self._bubblewrap
        if name == "local":
            return Host(self._path)
        if name == "dagger":
            return Dagger(self._settings.environ)
        wanted = None if name == "container" else name
        return Container(self._settings.container, self._settings.environ, wanted)

    @cached_property
    def _bubblewrap(self) -> Bubblewrap:
        return Bubblewrap(self._path, self._settings.home)

    @property
    def _path(self) -> str:
        return self._settings.environ.get("PATH", "")


def _in_scope(name: str, scope: str) -> bool:
    return name == scope or (scope.endswith("/*") and fnmatch.fnmatchcase(name, scope))


def _instructions(manifest: Manifest, given: Mapping[str, Any]) -> RunResult:
    """A tool without a command is text for the agent to follow."""
    text = manifest.documentation
    if given:
        text += f"\n\nInputs provided: {json.dumps(given, ensure_ascii=False, indent=2)}"
    return RunResult(text, 0, 0, "instructions")


def _result(
    tool: str, script: Script, ended: Ended, provider: str, resolved: variables.Resolved
) -> RunResult:
    stdout = resolved.masked(ended.stdout.decode("utf-8", "replace"))
    stderr = resolved.masked(ended.stderr.decode("utf-8", "replace"))
    duration_ms = round(ended.duration_s * 1000)

    def failed(code: str, message: str, action: Action | str) -> EnactError:
        return EnactError(
            code,
            f"{tool} {message}",
            action,
            tool=tool,
            provider=provider,
            exit_code=ended.exit_code,
            duration_ms=duration_ms,
            stdout=stdout[:LONGEST_EXCERPT],
            stderr=stderr[-LONGEST_EXCERPT:],
        )

    if ended.reason == "timeout":
        message = f"did not finish within {ended.duration_s:.0f} s and was stopped"
        raise failed("TIMEOUT", message, "give it less to do")
    if ended.reason == "output":
        message = f"printed more than {LARGEST_OUTPUT} bytes and was stopped"
        raise failed("OUTPUT_TOO_LARGE", message, "narrow the request: output is limited to 1 MiB")
    if ended.exit_code != 0:
        last = stderr.strip().splitlines()[-1:] or stdout.strip().splitlines()[-1:] or [""]
        message = f"exited with code {ended.exit_code}: {last[0][:300]}".rstrip(": ")
        step = then_again("read details.stderr, correct the arguments")
        raise failed("EXECUTION_FAILED", message, step)
    try:
        output = _parsed(tool, script, stdout)
    except _OutputInvalid as error:
        message = f"printed output that does not match its own schema: {error}"
        raise failed("OUTPUT_INVALID", message, PUBLISHER) from error
    return RunResult(output, 0, duration_ms, provider)


class _OutputInvalid(ValueError):
    """Output that does not match the tool's schema."""


def _parsed(tool: str, script: Script, stdout: str) -> object:
    schema, text = script.output_schema, stdout.strip()
    if schema is None and not text.startswith(("{", "[")):
        return stdout
    try:
        output = json.loads(text)
    except (ValueError, RecursionError) as error:
        if schema is None:
            return stdout
        raise _OutputInvalid("it is not JSON") from error
    if schema is not None and (problems := schemas.check(tool, schema, output)):
        raise _OutputInvalid("; ".join(map(str, problems[:3])))
    return output
