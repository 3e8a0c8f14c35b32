"""Which tools are served, and under which names: decided here for the front and for the server.

The front imports this module, so it uses the standard library's smallest parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fleet_agentpack.wire.wording import worded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet_agentpack.settings import Settings

OPENING = "What is here and what to call first; an error says what to do next."
LONGEST_NAME = 64  # of a tool, for the strictest clients
_BETWEEN = "__"  # the parts of an installed tool's name


class Facts(NamedTuple):
    """What the choice of a tool depends on."""

    domain: str
    writes: bool = False
    extra: bool = False


class Selection(NamedTuple):
    """What is asked for on the command line."""

    only: tuple[str, ...] = ()
    read_only: bool = False
    tools: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    prefix: str = ""
    extras: bool = True

    def why_left_out(self, tool: str, facts: Facts) -> str:
        """The option that leaves a tool out; empty for one that is served."""
        if self.only and facts.domain not in self.only:
            return f"--only {','.join(self.only)}"
        if self.tools and tool not in self.tools:
            return "--tools"
        if tool in self.without:
            return "--without"
        if facts.writes and self.read_only:
            return "--read-only"
        return "--no-extras" if facts.extra and not self.extras else ""

    def renamed(self, tool: str) -> str:
        """A tool's name as clients see it."""
        return self.prefix + shortened(tool, LONGEST_NAME - len(self.prefix))

    def own_name(self, called: str) -> str:
        """The name of ours that a client's name stands for; empty without our prefix."""
        return called[len(self.prefix) :] if called.startswith(self.prefix) else ""


def selection_of(settings: Settings) -> Selection:
    """What the settings ask to be served."""
    return Selection(
        settings.only,
        settings.read_only,
        settings.tools,
        settings.without,
        settings.prefix,
        settings.extras,
    )


class Choice:
    """A selection, applied to the tools that there are."""

    def __init__(
        self, selection: Selection, tools: Mapping[str, Facts], installed: str = ""
    ) -> None:
        self.selection = selection
        self._tools = tools
        self._installed = installed  # the domain whose tools come and go, if it is there
        self.names = {  # of the tools that are served, by our own
            tool: selection.renamed(tool)
            for tool, facts in tools.items()
            if not selection.why_left_out(tool, facts)
        }

    @property
    def is_everything(self) -> bool:
        """Whether every tool is served under its own name, installed ones too."""
        selection = self.selection
        return len(self.names) == len(self._tools) and not (
            selection.prefix or selection.tools or selection.without or selection.read_only
        )

    @property
    def domains(self) -> list[str]:
        """The domains of which something is served."""
        served = {self._tools[tool].domain for tool in self.names}
        if any(map(self._may_be_installed, self.selection.tools)):
            served.add(self._installed)
        known = dict.fromkeys(facts.domain for facts in self._tools.values())
        return [domain for domain in known if domain in served]

    @property
    def unknown(self) -> list[str]:
        """What was named and is no tool; an installed one may come later."""
        named = (*self.selection.tools, *self.selection.without)
        return [
            tool for tool in named if tool not in self._tools and not self._may_be_installed(tool)
        ]

    def why_left_out(self, tool: str, *, writes: bool = False) -> str:
        """The option that leaves a tool out, a fixed or an installed one."""
        facts = self._tools.get(tool) or Facts(self._installed, writes)
        return self.selection.why_left_out(tool, facts)

    def name(self, tool: str) -> str:
        """A tool's name as clients see it; empty for one that they cannot call.

        A registry's name for a tool, such as `alice/utils/weather`, is none that they call.
        """
        if tool in self._tools:
            return self.names.get(tool, "")
        callable_ = self._installed and _BETWEEN in tool and not self.why_left_out(tool)
        return self.selection.renamed(tool) if callable_ else ""

    def worded(self, text: str) -> str:
        """A text that names tools, in terms of those that are served."""
        return worded(text, self.name)

    def instructions(self, texts: Mapping[str, str], project: str) -> str:
        """A short map of what is served, for the model at the other end: a line for each domain."""
        lines = [f"- {self.worded(texts[domain])}" for domain in self.domains]
        return "\n".join([OPENING, *lines, project])

    def _may_be_installed(self, tool: str) -> bool:
        own = tool in self._tools or tool.startswith(f"{self._installed}{_BETWEEN}")
        return bool(self._installed) and _BETWEEN in tool and not own


def shortened(tool: str, most: int) -> str:
    """A name that fits; what had to be cut off goes into a hash."""
    if len(tool) <= most:
        return tool
    from hashlib import sha256

    digest = sha256(tool.encode()).hexdigest()[:10]
    return f"{tool[: most - len(digest) - 1]}_{digest}"
