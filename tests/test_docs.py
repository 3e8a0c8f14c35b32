"""The contract pages name every tool, every input and every error code, and none that is not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.rig import ROOT, run

CONTRACTS = ROOT / "docs" / "contracts"
ROOMS = {
    "agentpack": "deploy",
    "fleet": "fleet",
    "enact": "enact",
    "forge": "forge",
    "climpt": "climpt",
}
CODES = {
    "agentpack": r'"(E_[A-Z_]+)"',
    "enact": r'(?:EnactError|cls|registry_error)\(\s*"([A-Z_]+)"',
    "forge": r'"([A-Z]+_(?:NOT_FOUND|ERROR|DENIED|REQUIRED|FAILED))"',
    "fleet": r'"(bad_request|not_found|conflict|unavailable)"',
    "climpt": r'cls\("([A-Z][a-z ]+)"',
}


def page(domain: str) -> str:
    """The text of a contract."""
    return (CONTRACTS / f"{domain}.md").read_text(encoding="utf-8")


def source(domain: str) -> str:
    """All code of a domain."""
    files = sorted((ROOT / "fleet_agentpack" / ROOMS[domain]).rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("domain", ROOMS)
def test_a_contract_names_its_tools_and_their_inputs(domain: str, home: Path) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    done = run("--only", domain, stdin=json.dumps(asked))
    tools: list[dict[str, Any]] = json.loads(done.stdout)["result"]["tools"]
    text = page(domain)
    unnamed = [
        f"{tool['name']}: {word}"
        for tool in tools
        for word in [
            tool["name"].removeprefix("fractary_forge_"),
            *tool["inputSchema"]["properties"],
        ]
        if not re.search(rf"`{word}\b", text)
    ]
    assert unnamed == []


@pytest.mark.parametrize("domain", ROOMS)
def test_a_contract_names_every_error_code_and_no_other(domain: str) -> None:
    used = set(re.findall(CODES[domain], source(domain), re.MULTILINE))
    assert used
    errors = page(domain).split("## Errors")[1].split("\n## ")[0]
    assert {code for code in used if code not in errors} == set()
    rows = re.findall(r"^\| (`.*?) \|", errors, re.MULTILINE)
    named = {code for row in rows for code in re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", row)}
    assert {code for code in named if f'"{code}"' not in source(domain)} == set()


def test_links_in_the_documentation_lead_somewhere() -> None:
    for file in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", file.read_text(encoding="utf-8")):
            if not target.startswith("https://"):
                assert (file.parent / target).exists(), f"{file.name}: {target}"
