"""Writes the generated tables of the README from the code: the tools, by domain.

python docs/readme_tables.py
"""

from __future__ import annotations

import re
from pathlib import Path

from fleet_agentpack import inventory

README = Path(__file__).resolve().parent.parent / "README.md"


def tools_table() -> str:
    """Every tool with its domain, whether it writes, and its description."""
    rows = ["| domain | tool | | |", "|---|---|---|---|"]
    for domain in inventory.select():
        for number, spec in enumerate(domain.tools):
            first = f"**{domain.name}**" if number == 0 else ""
            effect = "reads" if spec.hints.read_only else "writes"
            rows.append(f"| {first} | `{spec.name}` | {effect} | {spec.description} |")
    return "\n".join(rows)


def filled(text: str) -> str:
    """The README with its generated part made anew."""
    block = f"<!-- tools -->\n{tools_table()}\n<!-- /tools -->"
    return re.sub(r"<!-- tools -->.*?<!-- /tools -->", lambda _: block, text, flags=re.DOTALL)


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
