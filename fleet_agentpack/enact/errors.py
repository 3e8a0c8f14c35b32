"""EnactError: every refusal of the tool registry, with what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from fleet_agentpack.kit.actions import Action, Commands
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


class EnactError(AppError):
    """An expected failure with a code, details, and the caller's next steps."""

    commands: ClassVar[Commands] = {
        "enact__search": "tool search {query}",
        "enact__learn": "tool learn {tool}",
        "enact__install": "tool install {tool}",
        "enact__list": "tool list",
        "enact__run": "tool run {tool}",
    }

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        actions: Iterable[Action | str] = (),
    ) -> None:
        super().__init__(message, actions=actions)
        self.code = code
        self.message = message
        self.details = dict(details or {})

    @property
    def next_actions(self) -> list[str]:
        """What an agent can do next."""
        return [action.for_agent() for action in self.actions]

    def payload(self) -> dict[str, Any]:
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
            text=f"call enact__learn for {tool} to read what it takes",
            person="read what it takes with {}",
        )
        return cls(
            "INVALID_ARGUMENTS",
            f"{tool}: {'; '.join(map(str, problems))}",
            details={"tool": tool, "problems": listed},
            actions=[then_again("correct the arguments"), *([learn] if "/" in tool else [])],
        )

    @classmethod
    def bad_argument(cls, field: str, message: str, *actions: Action | str) -> Self:
        """The error for one argument with a value that cannot be used."""
        return cls(
            "INVALID_ARGUMENTS",
            f"{field}: {message}",
            details={"problems": [{"field": field, "message": message}]},
            actions=actions or [then_again(f"correct {field}")],
        )

    @classmethod
    def unexpected(cls, tool: str) -> Self:
        """The error for a fault of ours."""
        return cls(
            "INTERNAL_ERROR",
            f"{tool} failed unexpectedly; the server's log says why",
            actions=["look at the server's standard error"],
        )

    @classmethod
    def tool_not_found(
        cls, name: str, *, hint: str | None = None, action: Action | None = None
    ) -> Self:
        """None of the configured registries has this tool."""
        return cls(
            "TOOL_NOT_FOUND",
            f"no tool called {name}" + (f"; {hint}" if hint else ""),
            details={"tool": name},
            actions=[FIND_NAME, *([action] if action else [])],
        )

    @classmethod
    def version_not_found(cls, name: str, version: str, known: Sequence[str] = ()) -> Self:
        """The tool exists, this version does not."""
        choose = f"choose one of {', '.join(known)}"
        return cls(
            "VERSION_NOT_FOUND",
            f"{name} has no version {version}",
            details={"tool": name, "version": version, "versions": list(known)},
            actions=[choose if known else "leave the version out for the latest"],
        )

    @classmethod
    def not_installed(cls, name: str) -> Self:
        """The call needs an installed tool, and this one is not."""
        look = Action(
            "enact__list",
            text="call {} for what is installed",
            person="see what is installed with {}",
        )
        told = f"{name} is not installed"
        return cls("NOT_INSTALLED", told, details={"tool": name}, actions=[look])

    @classmethod
    def config_invalid(cls, path: object, reason: str) -> Self:
        """The user's configuration cannot be used, so whatever needs it is refused."""
        return cls(
            "CONFIG_INVALID",
            f"{path}: {reason}",
            details={"file": str(path), "reason": reason},
            actions=[then_again(f"correct {path}")],
        )

    @classmethod
    def store_corrupt(cls, path: object, reason: str) -> Self:
        """A file of the store cannot be read; it is left as it is."""
        return cls(
            "STORE_CORRUPT",
            f"{path} cannot be used: {reason}",
            details={"file": str(path), "reason": reason},
            actions=[f"repair {path}, or move it away and install the tools again"],
        )

    @classmethod
    def store_unavailable(cls, root: object, reason: str) -> Self:
        """The store cannot be written to; nothing in it has changed."""
        return cls(
            "STORE_UNAVAILABLE",
            f"{root} cannot be changed: {reason}",
            details={"store": str(root), "reason": reason},
            actions=[then_again(f"check free space and permissions of {root}")],
        )

    @classmethod
    def busy(cls, path: object) -> Self:
        """Another process is changing the store."""
        return cls(
            "BUSY",
            "another process is installing or removing tools",
            details={"lock": str(path)},
            actions=[then_again("wait a moment")],
        )

    @classmethod
    def bundle_invalid(cls, name: str, reason: str) -> Self:
        """An archive that must not be unpacked."""
        return cls(
            "BUNDLE_INVALID",
            f"the bundle of {name} is refused: {reason}",
            details={"tool": name, "reason": reason},
            actions=[f"{PUBLISHER}; nothing was installed"],
        )

    @classmethod
    def integrity_failed(cls, name: str, reason: str, **details: str) -> Self:
        """The downloaded bytes are not what was promised."""
        return cls(
            "INTEGRITY_FAILED",
            f"{name}: {reason}",
            details={"tool": name, **details},
            actions=["try again later; if it happens again, do not trust this registry"],
        )

    @classmethod
    def manifest_invalid(cls, name: str, reason: str) -> Self:
        """A tool whose manifest cannot be used."""
        return cls(
            "MANIFEST_INVALID",
            f"the manifest of {name} cannot be used: {reason}",
            details={"tool": name, "reason": reason},
            actions=[f"choose another version, or {PUBLISHER}"],
        )

    @classmethod
    def trust_refused(
        cls, name: str, reason: str, details: Mapping[str, Any], path: object
    ) -> Self:
        """The trust policy does not let this tool through."""
        return cls(
            "TRUST_REFUSED",
            f"{name} is not trusted: {reason}",
            details={"tool": name, **details},
            actions=[
                ask_user(f"add an auditor of this tool to trust.trusted_auditors in {path}"),
                FIND_ANOTHER,
            ],
        )

    @classmethod
    def vetoed(cls, name: str, auditor: str) -> Self:
        """A trusted auditor has reported this version as failed."""
        return cls(
            "TRUST_VETO",
            f"{name} failed an audit by {auditor}, whom you trust",
            details={"tool": name, "auditor": auditor},
            actions=["choose another version or another tool"],
        )

    @classmethod
    def tool_changed(cls, name: str, version: str, what: str) -> Self:
        """Installed files are no longer those that were verified."""
        restore = Action(
            "enact__install",
            {"tool": name},
            text=f"call enact__install for {name} to put the verified files back",
            person="put the verified files back with {}",
        )
        return cls(
            "TOOL_CHANGED",
            f"the files of {name}@{version} are not those that were installed: {what}",
            details={"tool": name, "version": version, "change": what},
            actions=[restore],
        )

    @classmethod
    def registry_unavailable(cls, url: str, reason: str) -> Self:
        """The registry cannot be reached at all."""
        return cls(
            "REGISTRY_UNAVAILABLE",
            f"the registry {url} cannot be reached: {reason}",
            details={"registry": url, "reason": reason},
            actions=[then_again("check the network and registry.url")],
        )

    @classmethod
    def registry_error(cls, code: str, message: str, **details: Any) -> Self:
        """The registry answered, but not with what was asked for."""
        return cls(code, message, details=details, actions=[CALL_LATER])

    @classmethod
    def backend_unavailable(cls, name: str, reason: str, *actions: Action) -> Self:
        """The backend that the tool needs does not work on this machine."""
        return cls(
            "PROVIDER_UNAVAILABLE",
            f"{name} cannot run here: {reason}",
            details={"tool": name, "reason": reason},
            actions=actions,
        )
