"""What a tool asks for, and what the person has granted: declaring is asking, never having."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet_agentpack.enact.errors import EnactError, ask_user

if TYPE_CHECKING:
    from fleet_agentpack.enact.config import ExecutionConfig
    from fleet_agentpack.enact.manifest import Manifest, Script

ANYWHERE = "*"
LONGEST_TIMEOUT_S = 3600.0
MOST_WANTED = 64  # hosts, and variables
LONGEST_WANTED = 2_000  # characters of their names, which are in every description


@dataclass(frozen=True)
class Permissions:
    """Reach beyond the sandbox: hosts, variables of the user, files to read or to change."""

    network: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    build: tuple[str, ...] = ()  # hosts, for the commands that build it

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Permissions:
        """Stored permissions. Raises `TypeError` for another shape."""
        return cls(**{kind: _texts(data.get(kind, ())) for kind in KINDS})

    def __bool__(self) -> bool:
        return any(getattr(self, kind) for kind in KINDS)

    def __or__(self, more: Permissions) -> Permissions:
        return self._each(more, lambda own, other: [*own, *other])

    def __sub__(self, less: Permissions) -> Permissions:
        return self._each(less, lambda own, other: [each for each in own if each not in other])

    def said(self) -> str:
        """One line for people and models; empty when there is nothing to say."""
        parts = [
            *([_network(self.network)] if self.network else []),
            *([f"{_network(self.build)} while it is built"] if self.build else []),
            *([f"the variables {', '.join(self.variables)}"] if self.variables else []),
            *([f"reading {', '.join(self.read)}"] if self.read else []),
            *([f"writing to {', '.join(self.write)}"] if self.write else []),
        ]
        return "; ".join(parts)

    def options(self) -> list[str]:
        """The options of `tool allow` that grant exactly this."""
        named = ((option, getattr(self, kind)) for kind, option in KINDS.items())
        return [word for option, each in named if each for word in (option, *each)]

    def _each(self, other: Permissions, merge: Any) -> Permissions:
        merged = {kind: merge(getattr(self, kind), getattr(other, kind)) for kind in KINDS}
        return Permissions(**{kind: tuple(dict.fromkeys(each)) for kind, each in merged.items()})


# What can be granted, and the option of `tool allow` that grants it.
KINDS = {
    "network": "--network",
    "variables": "--env",
    "read": "--read",
    "write": "--write",
    "build": "--build-network",
}
NOTHING = Permissions()


@dataclass(frozen=True)
class Bounds:
    """What a run may use of this machine; nothing of this needs a grant."""

    memory_bytes: int
    processes: int
    time_s: float
    disk_bytes: int  # of scratch space
    image: str | None = None  # by digest, once it is known

    def said(self) -> str:
        """One line for people and models."""
        parts = [
            *([f"the image {self.image}"] if self.image else []),
            f"{self.memory_bytes // 1024**2} MiB of memory",
            f"{self.processes} processes",
            f"{self.time_s:g} s",
            f"{self.disk_bytes // 1024**2} MiB of scratch space",
        ]
        return ", ".join(parts)


def _network(hosts: Sequence[str]) -> str:
    return "the network" if ANYWHERE in hosts else f"the network ({', '.join(hosts)})"


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise TypeError("a list of texts is needed")
    return tuple(values)


def is_too_much(names: Sequence[str]) -> bool:
    """Whether a manifest names more than people would read, and clients should be sent."""
    return len(names) > MOST_WANTED or sum(map(len, names)) > LONGEST_WANTED


def wanted(manifest: Manifest) -> Permissions:
    """Everything that a manifest asks for; files are named by the caller, not by it."""
    variables = tuple(each.name for each in manifest.variables)
    return Permissions(manifest.network, variables, build=manifest.build_network)


def changes(manifest: Manifest) -> tuple[str, ...]:
    """The inputs that take directories which a call may change."""
    from fleet_agentpack.enact.arguments import writable_inputs

    scripts = filter(None, manifest.entries().values())
    named = (name for script in scripts for name in writable_inputs(script.input_schema))
    return tuple(dict.fromkeys(named))


def changes_said(inputs: Iterable[str]) -> str:
    """One line for people and models."""
    return (
        f"It changes the directories that a call names in {', '.join(inputs)}: inside the project, "
        "elsewhere only where a person has granted it."
    )


def asked_for(manifest: Manifest, script: Script | None) -> str:
    """One line for a client's list of tools; empty where a tool stays in its sandbox."""
    from fleet_agentpack.enact.arguments import writable_inputs

    changed = writable_inputs(script.input_schema) if script else []
    parts = [
        wanted(manifest).said(),
        f"changing the directories in {', '.join(changed)}" if changed else "",
        f"running the image {manifest.image}" if manifest.image else "",
    ]
    return "; ".join(filter(None, parts))


def bounds(manifest: Manifest, execution: ExecutionConfig, image: str | None = None) -> Bounds:
    """What a run may use: what the configuration allows, or less where a manifest says so."""
    asked = manifest.resources
    return Bounds(
        memory_bytes=min(asked.memory_bytes or execution.memory_bytes, execution.memory_bytes),
        processes=execution.processes,
        time_s=min(manifest.timeout_s or execution.timeout_s, LONGEST_TIMEOUT_S),
        disk_bytes=min(asked.disk_bytes or execution.scratch_bytes, execution.scratch_bytes),
        image=image or manifest.image,
    )


def needed(manifest: Manifest, granted: Permissions) -> Permissions:
    """What no call can do without: a variable with a default, or an optional one, may be absent.

    Of the hosts, those that were granted have to do; the proxy says which it has refused.
    """
    named = (each for each in manifest.variables if each.required and each.default is None)
    network = () if granted.network else manifest.network
    # Enact's own manifests do not say whether a build needs a network: it is tried without.
    is_open = granted.build or ANYWHERE in manifest.build_network
    build = () if is_open else manifest.build_network
    return Permissions(network, tuple(each.name for each in named), build=build)


def require(tool: str, needs: Permissions, granted: Permissions) -> None:
    """Refuse a call that needs more than was granted. Raises `EnactError`."""
    if missing := needs - granted:
        raise required(tool, missing)


def required(tool: str, missing: Permissions, message: str = "") -> EnactError:
    """The refusal of a call, with the command that grants what is missing."""
    command = allow_command(tool, missing)
    return EnactError(
        "PERMISSION_REQUIRED",
        message or f"{tool} needs {missing.said()}, which nobody has granted it",
        ask_user(f"install the tool if it is not installed, and decide whether to run: {command}"),
        tool=tool,
        missing={kind: list(getattr(missing, kind)) for kind in KINDS if getattr(missing, kind)},
        command=command,
    )


def undeclared(tool: str, name: str, path: str) -> EnactError:
    """The refusal of a file that a tool cannot see, since its author has not declared it."""
    message = (
        f"{tool} cannot see {path}, which its input {name} names: the tool's author should declare "
        f"{name} with `format: path`; until then, a person can let the tool read that file, and "
        f"the call has to name it as {path}"
    )
    return required(tool, Permissions(read=(path,)), message)


def allow_command(tool: str, missing: Permissions) -> str:
    """The command line that grants it."""
    return shlex.join(["fleet-agentpack", "tool", "allow", tool, *missing.options()])


def is_read_only(manifest: Manifest, script: Script | None, *, confined: bool) -> bool:
    """Whether a call can change nothing, by what it may reach and never by what it says."""
    from fleet_agentpack.enact.arguments import writes

    if script is None:
        return True
    return confined and not manifest.network and not writes(script.input_schema)


def check_grant(more: Permissions, asked: Permissions) -> None:
    """Refuse to grant what was not asked for. Raises `EnactError`."""
    from fleet_agentpack.enact.network import HostError, covered

    for field, hosts, wanted_hosts in (
        ("network", more.network, asked.network),
        ("build-network", more.build, asked.build),
    ):
        for host in hosts:
            try:
                known = bool(wanted_hosts) and covered(wanted_hosts, host)
            except HostError as error:
                raise EnactError.bad_argument(field, str(error)) from error
            if not known:
                raise EnactError.bad_argument(field, f"the tool does not ask for {host}")
    if strange := [each for each in more.variables if each not in asked.variables]:
        raise EnactError.bad_argument("env", f"the tool does not ask for {strange[0]}")


def lines(asked: Permissions, granted: Permissions) -> Iterable[str]:
    """Each permission that a tool asks for or has, and whether it is granted."""
    for kind in KINDS:
        has = getattr(granted, kind)
        for each in dict.fromkeys([*getattr(asked, kind), *has]):
            label = "build network" if kind == "build" else kind.removesuffix("s")
            yield f"{label} {each}: {'granted' if each in has else 'not granted'}"
