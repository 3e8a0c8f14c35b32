"""The contract's three roles, for engines that define none of their own."""

from __future__ import annotations

from dataclasses import dataclass

from fleet_agentpack.fleet.results import Role


@dataclass(frozen=True)
class Persona(Role):
    """A role with the prompt that makes a program play it."""

    prompt: str
    allow: tuple[str, ...] = ()  # paths that may be read, and the only commands that may be run
    network: bool = True
    program: str | None = None
    model: str | None = None
    max_minutes: float | None = None
    max_cost_usd: float | None = None

    @property
    def commands(self) -> tuple[str, ...]:
        """The only commands that may be run; none: any."""
        return tuple(each for each in self.allow if not each.startswith(("/", "~")))

    @property
    def paths(self) -> tuple[str, ...]:
        """What may be read besides the usual; with `:rw` at the end, also written."""
        return tuple(each for each in self.allow if each.startswith(("/", "~")))

    @property
    def public(self) -> Role:
        """The role as it is listed."""
        return Role(self.name, self.display_name, self.description)


STANDARD_ROLES = (
    Persona(
        "coder",
        "Software Engineer",
        "Writes code, implements features, fixes bugs",
        "You are a software engineer. Make the change that the task asks for, keep to the style of"
        " the code around it, test what you changed, and say in the end what you did.",
    ),
    Persona(
        "operator",
        "Operations Engineer",
        "Manages deployments, monitors systems, handles incidents",
        "You are an operations engineer. Look before you act, prefer steps that can be undone,"
        " check the effect of each, and say in the end what state things are in.",
    ),
    Persona(
        "manager",
        "Engineering Manager",
        "Coordinates work, reviews specs, verifies agent alignment",
        "You are an engineering manager. Review specifications and work against their goals, split"
        " work into tasks that can be checked, and report findings; leave the code to others.",
    ),
)
