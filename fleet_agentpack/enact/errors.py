"""EnactError: every refusal of the tool registry, with what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, TypedDict

from fleet_agentpack.kit.actions import Action, Commands, called, steps
from fleet_agentpack.kit.errors import AppError, Problem

FIND_ANOTHER = Action(
    "enact__search", text="call {} for another tool", person="find another tool with {}"
)
FIND_NAME = Action(
    "enact__search", text="call {} to find the tool's name", person="find the tool's name with {}"
)
CALL_LATER = Action.instruction("call again later", "try again later")
PUBLISHER = "tell the publisher of the tool"


def ask_user(step: str) -> Action:
    """A step that only the user can take."""
    return Action.instruction(f"ask the user to {step}", step)


def then_again(step: str) -> Action:
    """A step after which the same call can succeed."""
    return Action.instruction(f"{step}, then call again", step)


class Reason(TypedDict):
    """Why a call was refused, and what to do next."""

    code: str
    message: str
    details: dict[str, Any]
    next_actions: list[str]


class Refusal(TypedDict):
    """A refused call, as callers receive it."""

    success: Literal[False]
    error: Reason


class EnactError(AppError):
    """An expected failure with a code, details, and the caller's next steps."""

    commands: ClassVar[Commands] = {
        "enact__search": "tool search {query}",
        "enact__learn": "tool learn {tool}",
        "enact__install": "tool install {tool}",
        "enact__list": "tool list",
        "enact__run": "tool run {tool}",
    }

    def __init__(self, code: str, message: str, *actions: Action | str, **details: Any) -> None:
        super().__init__(message, actions=actions)
        self.code = code
        self.message = message
        self.details = details

    @property
    def next_actions(self) -> list[str]:
        """What an agent can do next."""
        return steps(self.actions)

    def payload(self) -> Refusal:
        """The error as callers receive it."""
        return {
            "success": False,
            "error": {
                "code": self.code,
                "message": self.message,
                "details": self.details,
                "next_actions": self.next_actions,
            },
        }

    @classmethod
    def invalid_arguments(cls, tool: str, problems: Sequence[Problem]) -> Self:
        """The error for a call whose arguments do not fit the tool's schema."""
        listed = [{"field": problem.field, "message": problem.message} for problem in problems]
        learn = Action(
            "enact__learn",
            {"tool": tool},
            text="call {} to read what it takes",
            person="read what it takes with {}",
        )
        actions = [then_again("correct the arguments"), *([learn] if "/" in tool else [])]
        message = f"{called(tool)}: {'; '.join(map(str, problems))}"
        return cls("INVALID_ARGUMENTS", message, *actions, tool=called(tool), problems=listed)

    @classmethod
    def bad_argument(cls, field: str, message: str, *actions: Action | str) -> Self:
        """The error for one argument with a value that cannot be used."""
        problems = [{"field": field, "message": message}]
        actions = actions or (then_again(f"correct {field}"),)
        return cls("INVALID_ARGUMENTS", f"{field}: {message}", *actions, problems=problems)

    @classmethod
    def unexpected(cls, tool: str) -> Self:
        """The error for an internal failure."""
        message = f"{called(tool)} failed unexpectedly; the server's log says why"
        return cls("INTERNAL_ERROR", message, "look at the server's standard error")

    @classmethod
    def tool_not_found(cls, name: str, hint: str = "", *actions: Action) -> Self:
        """None of the configured registries has this tool."""
        message = f"no tool called {name}" + (f"; {hint}" if hint else "")
        return cls("TOOL_NOT_FOUND", message, FIND_NAME, *actions, tool=name)

    @classmethod
    def version_not_found(cls, name: str, version: str, known: Sequence[str] = ()) -> Self:
        """The tool exists, this version does not."""
        choose = f"choose one of {', '.join(known)}"
        return cls(
            "VERSION_NOT_FOUND",
            f"{name} has no version {version}",
            choose if known else "leave the version out for the latest",
            tool=name,
            version=version,
            versions=list(known),
        )

    @classmethod
    def not_installed(cls, name: str) -> Self:
        """The call needs an installed tool, and this one is not."""
        look = Action(
            "enact__list",
            text="call {} for what is installed",
            person="see what is installed with {}",
        )
        return cls("NOT_INSTALLED", f"{name} is not installed", look, tool=name)

    @classmethod
    def config_invalid(cls, path: object, reason: str) -> Self:
        """The user's configuration cannot be used, so whatever needs it is refused."""
        step = then_again(f"correct {path}")
        return cls("CONFIG_INVALID", f"{path}: {reason}", step, file=str(path), reason=reason)

    @classmethod
    def store_corrupt(cls, path: object, reason: str) -> Self:
        """A file of the store cannot be read; it is left as it is."""
        message = f"{path} cannot be used: {reason}"
        step = f"repair {path}, or move it away and install the tools again"
        return cls("STORE_CORRUPT", message, step, file=str(path), reason=reason)

    @classmethod
    def store_unavailable(cls, root: object, reason: str) -> Self:
        """The store cannot be written to; nothing in it has changed."""
        message = f"{root} cannot be changed: {reason}"
        step = then_again(f"check free space and permissions of {root}")
        return cls("STORE_UNAVAILABLE", message, step, store=str(root), reason=reason)

    @classmethod
    def busy(cls, path: object) -> Self:
        """Another process is changing the store."""
        message = "another process is installing or removing tools"
        return cls("BUSY", message, then_again("wait a moment"), lock=str(path))

    @classmethod
    def bundle_invalid(cls, name: str, reason: str) -> Self:
        """An archive that must not be unpacked."""
        message = f"the bundle of {name} is refused: {reason}"
        step = f"{PUBLISHER}; nothing was installed"
        return cls("BUNDLE_INVALID", message, step, tool=name, reason=reason)

    @classmethod
    def integrity_failed(cls, name: str, reason: str, **details: str) -> Self:
        """The downloaded bytes are not what was promised."""
        step = "try again later; if it happens again, do not trust this registry"
        return cls("INTEGRITY_FAILED", f"{name}: {reason}", step, tool=name, **details)

    @classmethod
    def manifest_invalid(cls, name: str, reason: str) -> Self:
        """A tool whose manifest cannot be used."""
        message = f"the manifest of {name} cannot be used: {reason}"
        step = f"choose another version, or {PUBLISHER}"
        return cls("MANIFEST_INVALID", message, step, tool=name, reason=reason)

    @classmethod
    def trust_refused(cls, name: str, reason: str, path: object, **details: Any) -> Self:
        """The trust policy does not let this tool through."""
        message = f"{name} is not trusted: {reason}"
        step = ask_user(f"add an auditor of this tool to trust.trusted_auditors in {path}")
        return cls("TRUST_REFUSED", message, step, FIND_ANOTHER, tool=name, **details)

    @classmethod
    def vetoed(cls, name: str, auditor: str) -> Self:
        """A trusted auditor has reported this version as failed."""
        message = f"{name} failed an audit by {auditor}, whom you trust"
        step = "choose another version or another tool"
        return cls("TRUST_VETO", message, step, tool=name, auditor=auditor)

    @classmethod
    def tool_changed(cls, name: str, version: str, what: str) -> Self:
        """Installed files are no longer those that were verified."""
        restore = Action(
            "enact__install",
            {"tool": name},
            text="call {} to put the verified files back",
            person="put the verified files back with {}",
        )
        message = f"the files of {name}@{version} are not those that were installed: {what}"
        return cls("TOOL_CHANGED", message, restore, tool=name, version=version, change=what)

    @classmethod
    def output_too_long(cls, name: str, how: str) -> Self:
        """A tool ran, but a shortened output would not be what it promises."""
        message = f"{name} ran, but its output is too long for an answer"
        return cls("OUTPUT_TOO_LARGE", message, f"{how} for the output", tool=name)

    @classmethod
    def registry_unavailable(cls, url: str, reason: str) -> Self:
        """The registry cannot be reached at all."""
        message = f"the registry {url} cannot be reached: {reason}"
        step = then_again("check the network and registry.url")
        return cls("REGISTRY_UNAVAILABLE", message, step, registry=url, reason=reason)

    @classmethod
    def registry_error(cls, registry: str, message: str) -> Self:
        """The registry answered, but not with what was asked for."""
        return cls("REGISTRY_ERROR", message, CALL_LATER, registry=registry)

    @classmethod
    def backend_unavailable(cls, name: str, reason: str, *actions: Action) -> Self:
        """The backend that the tool needs does not work on this machine."""
        message = f"{name} cannot run here: {reason}"
        return cls("PROVIDER_UNAVAILABLE", message, *actions, tool=name, reason=reason)
