"""EnactError: every refusal of the tool registry, with what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

from fleet_agentpack.kit.errors import AppError, Problem

_META_TOOL = re.compile(r"(?:call|use) enact__(\w+)")


class EnactError(AppError):
    """An expected failure with a code, details, and the caller's next steps."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        next_actions: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = dict(details or {})
        self.next_actions = list(next_actions)

    def advice(self) -> list[str]:
        """What the person at the command line can do, in their words instead of an agent's."""
        mine = [each.removeprefix("ask the user to ") for each in self.next_actions]
        return [_META_TOOL.sub(r"use `fleet-agentpack tool \1`", each) for each in mine]

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
        return cls(
            "INVALID_ARGUMENTS",
            f"{tool}: {'; '.join(map(str, problems))}",
            details={"tool": tool, "problems": listed},
            next_actions=[
                f"correct the arguments of {tool} and call it again",
                *([f"call enact__learn for {tool} to read what it takes"] if "/" in tool else []),
            ],
        )

    @classmethod
    def bad_argument(cls, field: str, message: str, *next_actions: str) -> Self:
        """The error for one argument with a value that cannot be used."""
        return cls(
            "INVALID_ARGUMENTS",
            f"{field}: {message}",
            details={"problems": [{"field": field, "message": message}]},
            next_actions=next_actions or [f"correct {field} and call again"],
        )

    @classmethod
    def unexpected(cls, tool: str) -> Self:
        """The error for a fault of ours."""
        return cls(
            "INTERNAL_ERROR",
            f"{tool} failed unexpectedly; the server's log says why",
            next_actions=["look at the server's standard error"],
        )

    @classmethod
    def tool_not_found(cls, name: str, *, hint: str | None = None, ask: str | None = None) -> Self:
        """No registry that is configured has this tool; `ask` is what the user could do."""
        return cls(
            "TOOL_NOT_FOUND",
            f"no tool called {name}" + (f"; {hint}" if hint else ""),
            details={"tool": name},
            next_actions=[
                "call enact__search to find the tool's name",
                *([f"ask the user to {ask}"] if ask else []),
            ],
        )

    @classmethod
    def version_not_found(cls, name: str, version: str, known: Sequence[str] = ()) -> Self:
        """The tool exists, this version does not."""
        return cls(
            "VERSION_NOT_FOUND",
            f"{name} has no version {version}",
            details={"tool": name, "version": version, "versions": list(known)},
            next_actions=[
                f"choose one of {', '.join(known)}"
                if known
                else "leave the version out for the latest"
            ],
        )

    @classmethod
    def not_installed(cls, name: str) -> Self:
        """Something that only an installed tool can do was asked of another."""
        return cls(
            "NOT_INSTALLED",
            f"{name} is not installed",
            details={"tool": name},
            next_actions=["call enact__list for what is installed"],
        )

    @classmethod
    def config_invalid(cls, path: object, reason: str) -> Self:
        """The user's configuration cannot be used, so nothing that needs it may go on."""
        return cls(
            "CONFIG_INVALID",
            f"{path}: {reason}",
            details={"file": str(path), "reason": reason},
            next_actions=[f"correct {path}, then call again"],
        )

    @classmethod
    def store_corrupt(cls, path: object, reason: str) -> Self:
        """A file of the store cannot be read; it is left as it is."""
        return cls(
            "STORE_CORRUPT",
            f"{path} cannot be used: {reason}",
            details={"file": str(path), "reason": reason},
            next_actions=[f"repair {path}, or move it away and install the tools again"],
        )

    @classmethod
    def store_unavailable(cls, root: object, reason: str) -> Self:
        """The store cannot be written to; what was there before is there still."""
        return cls(
            "STORE_UNAVAILABLE",
            f"{root} cannot be changed: {reason}",
            details={"store": str(root), "reason": reason},
            next_actions=[f"check free space and permissions of {root}, then call again"],
        )

    @classmethod
    def busy(cls, path: object) -> Self:
        """Another process is changing the store."""
        return cls(
            "BUSY",
            "another process is installing or removing tools",
            details={"lock": str(path)},
            next_actions=["wait a moment and call again"],
        )

    @classmethod
    def bundle_invalid(cls, name: str, reason: str) -> Self:
        """An archive that must not be unpacked."""
        return cls(
            "BUNDLE_INVALID",
            f"the bundle of {name} is refused: {reason}",
            details={"tool": name, "reason": reason},
            next_actions=["tell the publisher of the tool; nothing was installed"],
        )

    @classmethod
    def integrity_failed(cls, name: str, reason: str, **details: str) -> Self:
        """Bytes that are not what was promised."""
        return cls(
            "INTEGRITY_FAILED",
            f"{name}: {reason}",
            details={"tool": name, **details},
            next_actions=["try again later; if it stays so, do not trust this registry"],
        )

    @classmethod
    def manifest_invalid(cls, name: str, reason: str) -> Self:
        """A tool whose manifest cannot be used."""
        return cls(
            "MANIFEST_INVALID",
            f"the manifest of {name} cannot be used: {reason}",
            details={"tool": name, "reason": reason},
            next_actions=["choose another version, or tell the publisher of the tool"],
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
            next_actions=[
                f"ask the user to add an auditor of this tool to trust.trusted_auditors in {path}",
                "call enact__search for another tool",
            ],
        )

    @classmethod
    def vetoed(cls, name: str, auditor: str) -> Self:
        """A trusted auditor has reported this version as failed."""
        return cls(
            "TRUST_VETO",
            f"{name} was audited by {auditor}, whom you trust, and failed",
            details={"tool": name, "auditor": auditor},
            next_actions=["choose another version or another tool"],
        )

    @classmethod
    def tool_changed(cls, name: str, version: str, what: str) -> Self:
        """Installed files are no longer those that were verified."""
        return cls(
            "TOOL_CHANGED",
            f"the files of {name}@{version} are not those that were installed: {what}",
            details={"tool": name, "version": version, "change": what},
            next_actions=[f"call enact__install for {name} to put the verified files back"],
        )

    @classmethod
    def registry_unavailable(cls, url: str, reason: str) -> Self:
        """The registry cannot be reached at all."""
        return cls(
            "REGISTRY_UNAVAILABLE",
            f"the registry {url} cannot be reached: {reason}",
            details={"registry": url, "reason": reason},
            next_actions=["check the network and registry.url, then call again"],
        )

    @classmethod
    def registry_error(cls, code: str, message: str, **details: Any) -> Self:
        """The registry answered, but not with what was asked for."""
        return cls(code, message, details=details, next_actions=["call again later"])

    @classmethod
    def provider_unavailable(cls, name: str, reason: str, *next_actions: str) -> Self:
        """The place where the tool must run does not exist on this machine."""
        return cls(
            "PROVIDER_UNAVAILABLE",
            f"{name} cannot run here: {reason}",
            details={"tool": name, "reason": reason},
            next_actions=next_actions,
        )
