"""What goes wrong: the contract's error with what to do next, and warnings beside a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar

from fleet_agentpack.kit.actions import Action, called, steps
from fleet_agentpack.kit.errors import AppError, Problem
from fleet_agentpack.kit.results import UNKNOWN, Maybe

Code = Literal[
    "PLUGIN_NOT_FOUND",
    "AGENT_NOT_FOUND",
    "TOOL_NOT_FOUND",
    "VALIDATION_ERROR",
    "PERMISSION_DENIED",
    "NETWORK_ERROR",
    "AUTH_REQUIRED",
    "AUTH_FAILED",
    "CONFIG_ERROR",
    "INTEGRITY_ERROR",
    "DEPENDENCY_ERROR",
    "CONFLICT_ERROR",
    "INTERNAL_ERROR",  # not in the contract: an internal failure has no other name
]

Step = Action | str

SWITCH_ON = "Switch it on: `resolution` in .fractary/config.json"
MOST_SHOWN = 10
COMMANDS = {
    "fractary_forge_agent_list": "forge agent-list",
    "fractary_forge_agent_info": "forge agent-info {name}",
    "fractary_forge_agent_validate": "forge agent-validate {path}",
    "fractary_forge_tool_list": "forge tool-list",
    "fractary_forge_tool_info": "forge tool-info {name}",
    "fractary_forge_tool_validate": "forge tool-validate {path}",
    "fractary_forge_plugin_list": "forge list",
    "fractary_forge_plugin_info": "forge info {plugin}",
    "fractary_forge_plugin_search": "forge search {query}",
    "fractary_forge_config_get": "forge config get {key}",
    "fractary_forge_config_show": "forge config show",
    "fractary_forge_config_registry_list": "forge registry list",
    "fractary_forge_cache_stats": "forge cache stats",
    "fractary_forge_cache_clear": "forge cache clear",
    "fractary_forge_fork_list": "forge fork list",
    "fractary_forge_fork_info": "forge fork info {name}",
    "fractary_forge_fork_diff": "forge fork diff {name}",
    "fractary_forge_fork_check": "forge fork check",
}


def call(tool: str, text: str, **arguments: Any) -> Action:
    """A step that one of the eighteen tools takes; `{}` in the text stands for it."""
    return Action(f"fractary_forge_{tool}", arguments, text)


def run(text: str, *words: str) -> Action:
    """A step that only the command line takes; `{}` in the text stands for it."""
    return Action.command("forge", *words, text=text)


ADD_REGISTRY = run("Add a registry: {}", "registry", "add", "OWNER/REPO")
LOOK_CLOSER = [call(f"{kind}_validate", "Look closer: {}") for kind in ("agent", "tool")]
SEE_REGISTRIES = call("config_registry_list", "See the registries: {}")


def list_all(kind: str) -> Action:
    """The step that shows every name of a kind."""
    return call(f"{kind}_list", "List what there is: {}")


class Failure(TypedDict):
    """A failed call, as callers receive it."""

    error: Literal[True]
    code: str
    message: str
    details: dict[str, Any]
    suggestions: list[str]


class ForgeError(AppError):
    """An expected failure of a forge query or command."""

    commands = COMMANDS

    def __init__(self, code: Code, message: str, *suggestions: Step, **details: Any) -> None:
        super().__init__(message, actions=suggestions)
        self.code = code
        self.details = details

    @property
    def suggestions(self) -> list[str]:
        """What an agent can do next."""
        return steps(self.actions)

    def payload(self) -> Failure:
        """The error as the contract has it."""
        return {
            "error": True,
            "code": self.code,
            "message": str(self),
            "details": self.details,
            "suggestions": self.suggestions,
        }

    @classmethod
    def invalid_arguments(cls, tool: str, problems: Sequence[Problem]) -> ForgeError:
        """A call whose arguments do not fit the tool's schema."""
        return cls(
            "VALIDATION_ERROR",
            f"{called(tool)}: " + "; ".join(str(problem) for problem in problems),
            f"Check the arguments against the input schema of {called(tool)}",
            tool=called(tool),
            problems=[{"field": problem.field, "message": problem.message} for problem in problems],
        )

    @classmethod
    def unexpected(cls, tool: str) -> ForgeError:
        """An internal failure."""
        return cls(
            "INTERNAL_ERROR",
            f"{called(tool)} failed unexpectedly; the server's log has the trace",
            "Try again; if it stays, report it with the server's log",
            tool=called(tool),
        )

    @classmethod
    def invalid(cls, message: str, *suggestions: Step, **details: Any) -> ForgeError:
        """An argument that fits the schema and still cannot be used."""
        return cls("VALIDATION_ERROR", message, *suggestions, **details)

    @classmethod
    def plugin_missing(
        cls,
        name: str,
        *,
        searched: Sequence[str] | None = None,
        versions: Sequence[str] = (),
        similar: Sequence[str] = (),
        noticed: Sequence[str] = (),
    ) -> ForgeError:
        """No plugin of that name or version in the registries searched; without any, installed.

        `noticed` is what went wrong with the registries, since the plugin may be behind that.
        """
        details: dict[str, Any] = {"availableVersions": list(versions)} if versions else {}
        details |= {"similar": list(similar)} if similar else {}
        details |= {"warnings": list(noticed)} if noticed else {}
        unconfigured = searched is not None and not searched
        where = "installed" if searched is None else "found in any registry"
        where += ": none is configured" if unconfigured else ""
        suggestions: list[Step] = ["Check plugin name spelling"]
        if versions:
            where += f"; the versions are {', '.join(versions[:MOST_SHOWN])}"
            suggestions = ["Ask for one of these versions, or for none"]
        elif similar:
            suggestions = [f"Did you mean {', '.join(similar)}?"]
        if noticed and not unconfigured:
            where += f". {'. '.join(noticed[:MOST_SHOWN])}"
        if searched is None:
            suggestions.append(call("plugin_info", "Ask the registries: {}", remote=True))
        suggestions.append(call("plugin_search", "Find plugins: {}"))
        suggestions.append(ADD_REGISTRY if unconfigured else SEE_REGISTRIES)
        return cls(
            "PLUGIN_NOT_FOUND",
            f"Plugin {name} is not {where}",
            *suggestions,
            plugin=name,
            searchedRegistries=list(searched or ()),
            **details,
        )

    @classmethod
    def config(cls, path: object, message: str, **details: Any) -> ForgeError:
        """A configuration file that cannot be used."""
        return cls(
            "CONFIG_ERROR",
            f"{path}: {message}",
            run("Correct the file, or move it away and run: {}", "init"),
            path=str(path),
            **details,
        )

    @classmethod
    def denied(cls, message: str, *suggestions: Step, **details: Any) -> ForgeError:
        """A file or directory that must not or cannot be touched."""
        return cls("PERMISSION_DENIED", message, *suggestions, **details)

    @classmethod
    def unwritable(cls, path: Path, error: OSError) -> ForgeError:
        """A file that could not be written."""
        return cls.denied(
            f"cannot write {path}: {error.strerror or 'refused'}",
            "Check the permissions of the directory",
            path=str(path),
        )

    @classmethod
    def network(cls, message: str, *suggestions: Step, **details: Any) -> ForgeError:
        """A server that did not answer as it should."""
        steps = (*(suggestions or ("Check the connection and try again",)), SEE_REGISTRIES)
        return cls("NETWORK_ERROR", message, *steps, **details)

    @classmethod
    def conflict(cls, message: str, *suggestions: Step, **details: Any) -> ForgeError:
        """A write that would lose changes."""
        return cls("CONFLICT_ERROR", message, *suggestions, **details)

    @classmethod
    def dependency(cls, message: str, *suggestions: Step, **details: Any) -> ForgeError:
        """A base or a dependency that is missing or circular."""
        return cls("DEPENDENCY_ERROR", message, *(suggestions or LOOK_CLOSER), **details)


T = TypeVar("T", covariant=True)
Warnings = Maybe[tuple[str, ...]]  # the field of an answer, left out without any

MOST_WARNINGS = 50


@dataclass(frozen=True)
class Loaded(Generic[T]):
    """A value and the warnings that came up while it was read."""

    value: T
    warnings: tuple[str, ...] = ()


def noted(*groups: Iterable[str]) -> Warnings:
    """The warnings for an answer: each once, and the first fifty of them."""
    warnings = tuple(dict.fromkeys(chain(*groups)))
    left = len(warnings) - MOST_WARNINGS
    if left > 0:
        warnings = (*warnings[:MOST_WARNINGS], f"… and {left} more warnings")
    return warnings or UNKNOWN
