"""What a prompt file says about itself: its YAML header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet_agentpack.climpt.registry import Command, command_of
from fleet_agentpack.kit import frontmatter, yaml12


class HeaderError(ValueError):
    """A header that cannot be used; the message says why."""


@dataclass(frozen=True)
class PromptText:
    """A prompt file's header as data (None when it has none), and the prompt itself."""

    header: Mapping[str, object] | None
    body: str

    def command(self, c1: str, c2: str, c3: str) -> Command:
        """The command that the header describes, under the names of the file's place."""
        return command_of({**(self.header or {}), "c1": c1, "c2": c2, "c3": c3}, "header")


def read_prompt(text: str) -> PromptText:
    """Split a prompt file and parse its header. Raises `HeaderError`."""
    parts = frontmatter.split(text)
    if parts.header is None:
        return PromptText(None, text)
    try:
        header = yaml12.load(parts.header)
    except yaml12.YamlError as error:
        raise HeaderError(f"the header is not valid YAML: {error}") from error
    if not isinstance(header, Mapping | None):
        raise HeaderError("the header must be a mapping of names and values")
    return PromptText(header or {}, parts.body)
