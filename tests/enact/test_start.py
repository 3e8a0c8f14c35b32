"""Opening the service is part of every server's start, so it imports next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.rig import child_environment

ASK = """
import json, sys
from fleet_agentpack.settings import Settings
from fleet_agentpack.enact.tools import InstalledTools, open_service

before = set(sys.modules)
catalogue = InstalledTools(open_service(Settings.read()))
catalogue.fingerprint()
assert catalogue.tools(None) == []
print(json.dumps(sorted(name for name in set(sys.modules) - before if "." in name)))
"""


def test_an_empty_catalogue_costs_a_handful_of_small_modules(home: Path, work: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=child_environment(HOME=str(home)),
        cwd=work,
        capture_output=True,
        check=True,
    )
    imported = json.loads(done.stdout)
    allowed = (
        "names",
        "permissions",
        "projection",
        "results",
        "service",
        "sessions",
        "settings",
        "tool_lists",
    )
    enact = [name for name in imported if name.startswith("fleet_agentpack.enact.")]
    assert {name.rpartition(".")[2] for name in enact} <= {
        *allowed,
        "store",
        "tool_lists",
        "script_choice",
    }
    heavy = ("httpx", "sigstore", "cryptography", "jsonschema", "keyring", "yaml")
    assert not [name for name in imported if name.startswith(heavy)]
