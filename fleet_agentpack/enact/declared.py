"""What a manifest says that a tool needs besides its files: hosts, and commands that build it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleet_agentpack.enact.network import Host, HostError
from fleet_agentpack.enact.permissions import ANYWHERE, MOST_WANTED, is_too_much

MOST_STEPS = 32
LONGEST_STEPS = 16_000  # characters of all commands together


def hosts(data: Mapping[str, object], key: str) -> tuple[str, ...]:
    """The hosts that a tool asks for: `true` for any, or a list of them. Raises `ValueError`."""
    value = data.get(key, False)
    if isinstance(value, bool):
        return (ANYWHERE,) if value else ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{key} must be true, false or a list of hosts")
    if is_too_much(value):
        raise ValueError(f"{key} asks for too much: at most {MOST_WANTED} hosts")
    try:
        for each in value:
            Host.parse(each)
    except HostError as error:
        raise ValueError(f"{key}: {error}") from error
    return tuple(value)


def build_steps(data: Mapping[str, object]) -> tuple[str, ...]:
    """The commands that build a tool before its first run. Raises `ValueError`."""
    own, hooks = data.get("build"), data.get("hooks")
    if hooks is not None and not isinstance(hooks, dict):
        raise ValueError("hooks must be a mapping of names to commands")
    hooked = hooks.get("build") if hooks else None
    steps = _commands("build", own)
    if hooked != own:
        steps += _commands("hooks.build", hooked)
    if len(steps) > MOST_STEPS or sum(map(len, steps)) > LONGEST_STEPS:
        raise ValueError(f"build has too many commands: at most {MOST_STEPS}, of 16,000 characters")
    return tuple(steps)


def build_hosts(data: Mapping[str, object]) -> tuple[str, ...]:
    """The hosts that a build asks for; all where the author does not say. Raises `ValueError`.

    Enact's own manifests never say: there, a build has the whole network.
    """
    named = hosts(data, "x-build-network") if "x-build-network" in data else (ANYWHERE,)
    return named if build_steps(data) else ()


def never_run(name: str, data: Mapping[str, object]) -> Iterator[str]:
    """A warning for each hook that is not carried out."""
    hooks = data.get("hooks")
    if isinstance(hooks, dict):
        for key in sorted(map(str, hooks)):
            if key != "build" and hooks.get(key):
                yield f"{name}: its hooks.{key} commands are never run"


def _commands(key: str, value: object) -> list[str]:
    listed = [value] if isinstance(value, str) else value or []
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise ValueError(f"{key} must be a command or a list of commands")
    return [each for each in listed if each.strip()]
