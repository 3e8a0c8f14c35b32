"""EnactError: every refusal of the tool registry, with what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, TypedDict

from fleet_agentpack.enact.trust.identity import NOBODY
from fleet_agentpack.kit.actions import Action, Commands, called, steps
from fleet_agentpack.kit.approval import Refusal as Refused
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


def ask_to_run(*words: str, why: str = "run") -> Action:
    """A command that only the user can run."""
    return Action.command(*words, text=f"ask the user to {why}: {{}}", person=f"{why}: {{}}")


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
    def not_approved(cls, tool: str, refusal: Refused) -> Self:
        """The error for a permission that a person was asked for and has not granted."""
        return cls(
            "NOT_APPROVED", f"{called(tool)} was not run: {refusal.told}.", tool=called(tool)
        )

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
    def attestation_unreadable(cls, name: str, auditor: str, why: str) -> Self:
        """The registry lists an attestation that it does not give out, or not in a usable form."""
        by = auditor or "nobody that it names"
        reason = f"its registry lists an attestation by {by} that cannot be read ({why[:300]})"
        step = "choose another version or another tool, and tell whoever runs the registry"
        return cls("TRUST_REFUSED", f"{name} is not trusted: {reason}", step, tool=name)

    @classmethod
    def downgraded(cls, name: str, installed: str, offered: str) -> Self:
        """A registry offers an older version than the installed one, as if there were no newer."""
        message = f"{name}@{installed} is installed, and {offered} is older"
        command = f"fleet-agentpack tool install {name}@{offered} --allow-downgrade"
        step = ask_user(f"decide whether to run: {command}")
        return cls("DOWNGRADE_REFUSED", message, step, tool=name, installed=installed)

    @classmethod
    def signer_changed(cls, name: str, before: Sequence[str], now: Sequence[str]) -> Self:
        """Nobody who signed the installed version signed this one; a person has to decide."""
        new = ", ".join(now) or "nobody whom you trust"
        message = f"{name} is signed by {new}; what is installed was signed by {', '.join(before)}"
        who = shlex.quote(now[0] if now else NOBODY)
        command = f"fleet-agentpack tool install {name} --accept-signer {who}"
        step = ask_user(f"decide whether to run: {command}")
        details = {"tool": name, "before": [*before], "now": [*now], "command": command}
        return cls("SIGNER_CHANGED", message, step, **details)

    @classmethod
    def lock_differs(cls, name: str, fact: str, locked: str, found: str) -> Self:
        """A tool is not what the lock file says; nothing was installed."""
        message = f"{name} is not what was locked; its {fact}: {locked} then, {found} now"
        step = "ask whoever locked it; to accept it, install it and write the lock file anew"
        details = {"tool": name, "differs": fact, "locked": locked, "found": found}
        return cls("LOCK_MISMATCH", message, step, **details)

    @classmethod
    def lock_outdated(cls, name: str, pinned: str, locked: str | None) -> Self:
        """The project pins something else than its lock file; nothing was installed."""
        other = f"has {name}@{locked}" if locked else f"does not have {name}"
        message = f"the project pins {name}@{pinned}, and its lock file {other}"
        step = Action.command("tool", "lock", text="install what is pinned, then run: {}")
        details = {"tool": name, "differs": "version", "locked": locked, "found": pinned}
        return cls("LOCK_MISMATCH", message, step, **details)

    @classmethod
    def image_unpinned(cls, name: str, reason: str) -> Self:
        """The tool's image is not one that can be known beforehand."""
        step = "tell the publisher to name it by digest, as in image@sha256:…"
        return cls(
            "TRUST_REFUSED", f"{name} is not trusted: {reason}", step, FIND_ANOTHER, tool=name
        )

    @classmethod
    def vetoed(cls, name: str, auditor: str) -> Self:
        """A trusted auditor has reported this version as failed."""
        message = f"{name} failed an audit by {auditor}, whom you trust"
        step = "choose another version or another tool"
        return cls("TRUST_VETO", message, step, tool=name, auditor=auditor)

    @classmethod
    def withdrawn_since(cls, name: str, version: str, words: str) -> Self:
        """The installed version was withdrawn after the install."""
        update = ask_to_run("tool", "update", name)
        return cls("VERSION_YANKED", words, update, FIND_ANOTHER, tool=name, version=version)

    @classmethod
    def untrusted_since(cls, name: str, words: str) -> Self:
        """An installed version about which the registry no longer tells everything."""
        audit = ask_to_run("tool", "audit", why="check again with")
        return cls("TRUST_REFUSED", words, audit, FIND_ANOTHER, tool=name)

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
