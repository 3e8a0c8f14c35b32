"""Writes the generated parts of the README from the code: the tools, by domain, and their cost.

python docs/readme_tables.py
"""

from __future__ import annotations

import re
from pathlib import Path

from fleet_agentpack import domains
from fleet_agentpack.wire.commands import size
from fleet_agentpack.wire.provider import is_reader

README = Path(__file__).resolve().parent.parent / "README.md"


def tools_table() -> str:
    """Every tool with its domain, whether it writes, and its description."""
    rows = ["| domain | tool | | |", "|---|---|---|---|"]
    for domain in domains.select():
        for number, tool in enumerate(domain.tools.values()):
            first = f"**{domain.name}**" if number == 0 else ""
            effect = "reads" if is_reader(tool) else "writes"
            rows.append(f"| {first} | `{tool.name}` | {effect} | {tool.description} |")
    return "\n".join(rows)


def cost() -> str:
    """What all tools together take of a client's context, in hundreds of bytes."""
    tools = [tool for domain in domains.select() for tool in domain.tools.values()]
    kilobytes = sum(map(size, tools)) / 1000
    return f"{len(tools)} tools, {kilobytes:.1f} kB of JSON"


def filled(text: str) -> str:
    """The README with its generated parts made anew."""
    for name, content in (("tools", f"\n{tools_table()}\n"), ("cost", cost())):
        block = f"<!-- {name} -->{content}<!-- /{name} -->"
        pattern = rf"<!-- {name} -->.*?<!-- /{name} -->"
        text = re.sub(pattern, lambda _, block=block: block, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
