"""One request for a prompt."""

from __future__ import annotations

from dataclasses import dataclass

from fleet_agentpack.climpt.options import Options
from fleet_agentpack.climpt.project_files import DEFAULT_AGENT


@dataclass(frozen=True)
class PromptRequest:
    """A command of an agent and the options for it."""

    agent: str
    c1: str
    c2: str
    c3: str
    options: Options

    @property
    def profile(self) -> str:
        """The name of the configuration that the command is rendered with."""
        return self.c1 if self.agent == DEFAULT_AGENT else f"{self.agent}-{self.c1}"

    @property
    def command(self) -> str:
        """The command as errors name it."""
        return f"{self.agent}-{self.c1} {self.c2} {self.c3}"
