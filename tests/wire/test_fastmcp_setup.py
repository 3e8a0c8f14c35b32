"""What we put off at start-up is really put off, and still works."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.rig import child_environment


def test_protocol_messages_of_other_versions_are_not_built_at_start() -> None:
    code = (
        "import json, fleet_agentpack.wire.server, mcp_types._v2026_07_28 as modern, pydantic\n"
        "models = [m for m in vars(modern).values() if isinstance(m, type)"
        " and issubclass(m, pydantic.BaseModel) and m.__module__ == modern.__name__]\n"
        "class Mine(pydantic.BaseModel):\n    x: int = 0\n"
        "print(json.dumps([len(models), sum(m.__pydantic_complete__ for m in models),"
        " Mine.__pydantic_complete__]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=child_environment()
    )
    total, built, ours_is_built = json.loads(done.stdout)
    assert total > 50
    assert built < total / 2
    assert ours_is_built is True
