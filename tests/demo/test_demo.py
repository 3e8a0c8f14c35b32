"""The demo as a newcomer runs it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.rig import SERVE, child_environment


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_the_demo_plays_all_five_domains_and_leaves_nothing(home: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = tree(home)
    done = subprocess.run(
        [*SERVE, "demo"],
        capture_output=True,
        text=True,
        timeout=120,
        env=child_environment(TMPDIR=str(scratch), CODER_URL="http://127.0.0.1:1"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^(\d)/5 (\w+):", done.stdout, re.MULTILINE) == [
        ("1", "agentpack"),
        ("2", "fleet"),
        ("3", "enact"),
        ("4", "forge"),
        ("5", "climpt"),
    ]
    for call in (
        "deploy_apply",
        "rollback",
        "start_agent_task",
        "agentpack__csv__stats",
        "execute",
    ):
        assert f"→ {call}" in done.stdout
    for target in ("codex", "claude_code", "cursor", "vscode"):
        assert re.search(rf"^ +{target} +create \d", done.stdout, re.MULTILINE), target
    assert "nothing is left behind" in done.stdout
    assert tree(home) == before
    assert os.listdir(scratch) == []


def test_a_story_that_fails_says_where_and_ends_with_status_1(tmp_path: Path) -> None:
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "import sys\n"
        "if 'demo' in sys.argv:\n"
        "    import fleet_agentpack.demo.story as story\n"
        "    async def fail(stage): stage.expect(False, 'on purpose')\n"
        "    story.CHAPTERS = {'broken: chapter': fail}\n"
    )
    env = child_environment()
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
    done = subprocess.run([*SERVE, "demo"], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 1
    assert "✗ on purpose" in done.stdout
