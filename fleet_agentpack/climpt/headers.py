"""What a prompt file says about itself: its YAML header."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def header_problems(header: Mapping[str, object]) -> Iterator[str]:
    """What in a header is passed by because it has another shape than it should."""
    for name in ("title", "usage"):
        if not isinstance(header.get(name, ""), str | None):
            yield f"{name} must be text"
    if not _are_texts(header.get("aliases")):
        yield "aliases must be a list of strings"
    options = header.get("options") or {}
    if isinstance(options, Mapping):
        for name in ("edition", "adaptation"):
            if not _are_texts(options.get(name)):
                yield f"options.{name} must be a list of strings"
        for name in ("file", "stdin", "destination"):
            if not isinstance(options.get(name), bool | None):
                yield f"options.{name} must be true or false"
    else:
        yield "options must be a mapping"
    if not _are_variables(header.get("uv")):
        yield "uv must be a list of names, each with what it is for"


def _are_texts(value: object) -> bool:
    items = value if isinstance(value, list) else [value]
    return value is None or all(isinstance(item, str) for item in items)


def _are_variables(value: object) -> bool:
    items = value if isinstance(value, list) else [value or {}]
    return all(
        isinstance(item, Mapping)
        and all(isinstance(part, str | None) for pair in item.items() for part in pair)
        for item in items
    )


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
