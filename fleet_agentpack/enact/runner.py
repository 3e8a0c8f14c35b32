"""Runs a tool: checks arguments, chooses a backend, enforces limits, parses the output."""

from __future__ import annotations

import errno
import fnmatch
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fleet_agentpack.enact import aftermath, arguments, permissions, schemas, template, variables
from fleet_agentpack.enact.backends.bubblewrap import Bubblewrap
from fleet_agentpack.enact.backends.child import LARGEST_OUTPUT, Ended
from fleet_agentpack.enact.backends.container import Container
from fleet_agentpack.enact.backends.dagger import Dagger
from fleet_agentpack.enact.backends.host import Host
from fleet_agentpack.enact.backends.job import Backend, Job, with_our_python
from fleet_agentpack.enact.backends.seatbelt import Seatbelt
from fleet_agentpack.enact.builds import Builds
from fleet_agentpack.enact.config import ExecutionConfig
from fleet_agentpack.enact.denied import DenyList
from fleet_agentpack.enact.errors import PUBLISHER, EnactError, ask_user, then_again
from fleet_agentpack.enact.manifest import Manifest, Script
from fleet_agentpack.enact.permissions import NOTHING, Permissions
from fleet_agentpack.enact.proxy import Proxy
from fleet_agentpack.enact.results import RunResult, if_any
from fleet_agentpack.enact.settings import EnactSettings
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.visible import visible

LONGEST_EXCERPT = 4000
DEEPEST_OUTPUT = 64

Report = Callable[[float, float | None, str], None]


@dataclass(frozen=True)
class Runnable:
    """A tool ready to run: its manifest and its verified files."""

    manifest: Manifest
    folder: Path
    builtin: bool = False
    granted: Permissions = NOTHING
    image: str | None = None  # by digest
    digest: str = ""  # sha256 of the bundle
    in_image: bool = False  # whether it was built there, its files with it


class Runner:
    """Runs scripts of tools."""

    def __init__(self, settings: EnactSettings) -> None:
        self._settings = settings
        self._path_rules = arguments.PathRules(settings.paths, DenyList.of(settings))
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
        granted = subject.granted
        rules = replace(self._path_rules, granted=granted.write, readable=granted.read)
        prepared = arguments.prepare(tool, script.input_schema, given, rules)
        permissions.require(tool, permissions.needed(subject.manifest, granted), granted)
        resolved = variables.resolve(
            tool, subject.manifest.variables, self._variables, granted.variables
        )
        provider = self._provider(subject, execution)
        subject = self.builds.ready(subject, provider, execution, report)
        bounds = permissions.bounds(subject.manifest, execution, subject.image)
        job = self._job(subject, script, prepared, resolved, bounds)
        if not (subject.builtin or isinstance(provider, Host)):
            seen = [job.folder, *(each.path for each in job.mounts)]
            arguments.check_declared(tool, script.input_schema, given, rules, seen)
        before = aftermath.look(job.mounts)
        ended, told = self._execute(provider, job, report, resolved)
        told += aftermath.tidied(job.mounts, before)
        result = _result(tool, script, ended, provider.name, resolved, told)
        return replace(result, warnings=if_any(told))

    def pinned(
        self, image: str, execution: ExecutionConfig, report: Report
    ) -> tuple[str | None, list[str]]:
        """An image by digest, and what went wrong; without one, the tool cannot run yet."""
        report(1, 2, f"looking for the image {image}")
        reasons = []
        for name in filter(None, (execution.backend or "container", execution.fallback)):
            backend = self._backend(name)
            if not isinstance(backend, Container | Dagger):
                continue
            try:
                if not (reason := backend.unavailable()):
                    return backend.pinned(image), []
            except EnactError as error:
                reason = error.message
            reasons.append(f"its image was not pinned, so it cannot run yet: {reason}")
        return None, reasons[:1]

    def _job(
        self,
        subject: Runnable,
        script: Script,
        prepared: arguments.Prepared,
        resolved: variables.Resolved,
        bounds: permissions.Bounds,
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
            plain=[key for key, each in resolved.values.items() if each not in resolved.secrets],
            mounts=(*prepared.mounts, *self._granted_mounts(subject.granted, prepared)),
            network=subject.granted.network if subject.manifest.network else (),
            bounds=bounds,
            stdin=stdin,
            in_image=subject.in_image,
        )
        return with_our_python(job) if subject.builtin else job

    def _granted_mounts(
        self, granted: Permissions, prepared: arguments.Prepared
    ) -> Iterator[arguments.Mount]:
        """What a person lets the tool read at every call, as far as it is still there."""
        named = {each.path for each in prepared.mounts}
        denied = self._path_rules.denied
        for path in map(Path, granted.read):
            # A file that was granted may have become a link to one that was not.
            is_same = path.exists() and path.resolve() == path
            if path not in named and is_same and not denied.reason(path):
                yield arguments.Mount(path, hidden=denied.inside(path, writable=False))

    def _execute(
        self, provider: Backend, job: Job, report: Report, resolved: variables.Resolved
    ) -> tuple[Ended, list[str]]:
        """How a run ended, and what has to be told of it."""

        def tick(elapsed_s: float) -> None:
            report(round(elapsed_s, 1), None, f"{job.tool} has been running for {elapsed_s:.0f} s")

        with provider.prepared(job) as start:
            try:
                ended = start.carry_out(
                    start.command, timeout_s=job.bounds.time_s, tick=tick, on_kill=start.on_kill
                )
            except OSError as error:
                if error.errno == errno.E2BIG:
                    raise _too_long(job) from error
                reason = f"{start.command.argv[0]}: {error.strerror or error}"
                step = ask_user(f"install what {job.tool} needs, or call another tool")
                raise EnactError.backend_unavailable(job.tool, reason, step) from error
        if ended.reason == "exit" and ended.exit_code == start.failed_status:
            whole = resolved.masked(ended.stderr.decode("utf-8", "replace"))
            said = visible(whole.strip()[-LONGEST_EXCERPT:])
            step = ask_user(f"check that {provider.name} works and can pull {job.bounds.image}")
            raise EnactError.backend_unavailable(job.tool, f"{provider.name} failed: {said}", step)
        notes = [*ended.notes, *_network_notes(job, start.proxy, ended)]
        return ended, [visible(resolved.masked(each)) for each in notes]

    def _provider(self, subject: Runnable, execution: ExecutionConfig) -> Backend:
        name = subject.manifest.name
        provider: Backend
        if subject.builtin:
            sandboxed = execution.backend != "local" and not self._sandbox.unavailable()
            provider = self._sandbox if sandboxed else Host(self._path, "direct")
        elif any(in_scope(name, scope) for scope in execution.trusted_scopes):
            return Host(self._path)
        else:
            natural = "container" if subject.manifest.image else self._sandbox.name
            provider = self._backend(execution.backend or natural)
            image = subject.image or subject.manifest.image
            if execution.fallback and provider.unavailable(image):
                provider = self._backend(execution.fallback)
        if reason := provider.unavailable():
            step = ask_user("install it, or choose execution.default in ~/.enact/config.yaml")
            raise EnactError.backend_unavailable(name, reason, step)
        _check_sandbox(subject, provider, execution)
        return provider

    def _backend(self, name: str) -> Backend:
        if name in ("bubblewrap", "seatbelt"):
            return self._sandbox
        if name == "local":
            return Host(self._path)
        if name == "dagger":
            return self._dagger
        wanted = None if name == "container" else name
        return Container(self._settings.container, self._settings.environ, wanted)

    def build(self, subject: Runnable, execution: ExecutionConfig, report: Report) -> None:
        """Build a tool anew. Raises `EnactError`."""
        granted = subject.granted
        needed = permissions.needed(subject.manifest, granted).build
        permissions.require(subject.manifest.name, Permissions(build=needed), granted)
        provider = self._provider(subject, execution)
        self.builds.ready(subject, provider, execution, report, again=True)

    @cached_property
    def builds(self) -> Builds:
        """What was built."""
        return Builds(self._settings)

    def close(self) -> None:
        """End connections that were kept open."""
        if "_dagger" in self.__dict__:
            self._dagger.close()

    @cached_property
    def _dagger(self) -> Dagger:
        return Dagger(self._settings.environ)

    @cached_property
    def _sandbox(self) -> Bubblewrap | Seatbelt:
        return sandbox_of(self._path, self._settings.home)

    @property
    def _path(self) -> str:
        return self._settings.environ.get("PATH", "")


def sandbox_of(path: str, home: Path) -> Bubblewrap | Seatbelt:
    """This machine's own sandbox."""
    return Seatbelt(path) if sys.platform == "darwin" else Bubblewrap(path, home)


def _check_sandbox(subject: Runnable, provider: Backend, execution: ExecutionConfig) -> None:
    """Refuse an image that was never pinned, and a sandbox that is not whole if it has to be."""
    name, image = subject.manifest.name, subject.manifest.image
    if isinstance(provider, Container | Dagger) and image and subject.image is None:
        again = Action("enact__install", {"tool": name}, "call {} again", "{}")
        reason = f"its image {image} was not pinned when it was installed"
        raise EnactError.backend_unavailable(name, reason, again)
    if execution.strict and (missing := _missing_parts(provider)):
        step = ask_user("provide it, or take `sandbox: strict` out of ~/.enact/config.yaml")
        raise EnactError.backend_unavailable(name, f"the sandbox lacks {missing}", step)


def _missing_parts(provider: Backend) -> str:
    """The parts of a sandbox that do not hold here."""
    if isinstance(provider, Bubblewrap | Seatbelt):
        return ", ".join(part for part, holds in provider.parts().items() if not holds)
    return "" if isinstance(provider, Container) else f"everything: {provider.name}"


def in_scope(name: str, scope: str) -> bool:
    """Whether a tool is in a scope such as `owner/*`."""
    return name == scope or (scope.endswith("/*") and fnmatch.fnmatchcase(name, scope))


def _instructions(manifest: Manifest, given: Mapping[str, Any]) -> RunResult:
    """A tool without a command is text for the agent to follow."""
    text = manifest.documentation
    if given:
        text += f"\n\nInputs provided: {json.dumps(given, ensure_ascii=False, indent=2)}"
    return RunResult(text, 0, 0, "instructions")


def _network_notes(job: Job, proxy: Proxy | None, ended: Ended) -> list[str]:
    """What a tool tried to reach and may not; or that it ignored the only way out."""
    if proxy is None:
        return []
    notes = []
    for target, why in proxy.refused.items():
        host = target.removesuffix(":443").removesuffix(":80")
        command = permissions.allow_command(job.tool, Permissions(network=(host,)))
        notes.append(f"{job.tool} may not reach {target}: {why}; a person can grant it: {command}")
    if ended.exit_code and not proxy.used:
        notes.append(
            f"{job.tool} reaches the network only through the proxy that HTTP_PROXY and HTTPS_PROXY"
            " name; it did not use it, and a program that ignores these variables has no network"
        )
    return notes


def _too_long(job: Job) -> EnactError:
    """The refusal of a call whose values are too long for the arguments of a program."""
    message = f"{job.tool} takes its input as arguments of a program, which are limited to 128 KiB"
    step = "shorten the input, or tell the publisher to read it from standard input (x-stdin: json)"
    return EnactError("INVALID_ARGUMENTS", f"{message} each", step, tool=job.tool)


def _result(
    tool: str,
    script: Script,
    ended: Ended,
    provider: str,
    resolved: variables.Resolved,
    hints: Sequence[str] = (),
) -> RunResult:
    stdout = resolved.masked(ended.stdout.decode("utf-8", "replace"))
    stderr = resolved.masked(ended.stderr.decode("utf-8", "replace"))
    duration_ms = round(ended.duration_s * 1000)

    def failed(code: str, message: str, action: Action | str) -> EnactError:
        return EnactError(
            code,
            visible(f"{tool} {message}"),
            action,
            *hints,
            tool=tool,
            provider=provider,
            exit_code=ended.exit_code,
            duration_ms=duration_ms,
            stdout=visible(stdout[:LONGEST_EXCERPT]),
            stderr=visible(stderr[-LONGEST_EXCERPT:]),
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
        output = resolved.masked_throughout(_parsed(tool, script, stdout))
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
        if schemas.is_deeper(output, DEEPEST_OUTPUT):
            raise ValueError("too deep")
    except (ValueError, RecursionError) as error:
        if schema is None:
            return stdout
        raise _OutputInvalid(f"it is not JSON of at most {DEEPEST_OUTPUT} levels") from error
    if schema is not None and (problems := schemas.check(tool, schema, output)):
        raise _OutputInvalid("; ".join(map(str, problems[:3])))
    return output
