"""What climpt answers; the fields are the contract's."""

from __future__ import annotations

from dataclasses import dataclass

from fleet_agentpack.kit.results import UNKNOWN, Maybe


@dataclass(frozen=True)
class NamedCommand:
    """What addresses a command, and what it is for."""

    c1: str
    c2: str
    c3: str
    description: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The three names."""
        return self.c1, self.c2, self.c3

    @property
    def name(self) -> str:
        """The three names as people write them."""
        return " ".join(self.key)


@dataclass(frozen=True)
class Match(NamedCommand):
    """A command that search found."""

    score: float


@dataclass(frozen=True)
class CommandOptions:
    """The options that a command takes; what its registry does not mention is unknown."""

    edition: Maybe[tuple[str, ...]] = UNKNOWN
    adaptation: Maybe[tuple[str, ...]] = UNKNOWN
    file: Maybe[bool] = UNKNOWN
    stdin: Maybe[bool] = UNKNOWN
    destination: Maybe[bool] = UNKNOWN


@dataclass(frozen=True)
class Description(NamedCommand):
    """One command with its usage and options."""

    usage: Maybe[str] = UNKNOWN
    options: Maybe[CommandOptions] = UNKNOWN
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class Prompt:
    """A command's prompt, on the command line; over MCP the text stands alone."""

    prompt: str
    unfilled: Maybe[tuple[str, ...]] = UNKNOWN  # variables in it that no value was given for


@dataclass(frozen=True)
class Found:
    """What search found; `warnings` say what there is when nothing fits."""

    results: tuple[Match, ...]
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class Reloaded:
    """A registry that was read again."""

    success: bool
    agent: str
    commandCount: int
    message: str
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class Finding:
    """Something wrong with a file; `fixable` means that `check --write` corrects it."""

    path: str
    problem: str
    fixable: bool = False


@dataclass(frozen=True)
class Checked:
    """What `check` found, and the files that it wrote."""

    agent: str
    commandCount: int
    findings: tuple[Finding, ...]
    written: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class Added:
    """A new command's prompt, and the other files that were made or changed for it."""

    prompt: str
    written: tuple[str, ...]


@dataclass(frozen=True)
class Initialised:
    """What `init` did: files written, and files that were there and stayed as they are."""

    written: tuple[str, ...]
    kept: tuple[str, ...]
