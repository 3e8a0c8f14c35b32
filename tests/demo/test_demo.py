"""The demo as a newcomer runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
        env=child_environment(
            TMPDIR=str(scratch),
            CODER_URL="http://127.0.0.1:1",
            ENACT_REGISTRY_URL="http://127.0.0.1:1",
            AGENTPACK_HOME=str(home / "pack"),
            CODEX_HOME=str(home / "codex"),
            FRACTARY_CONFIG=str(home / "none.yaml"),
            FLEET_AGENTPACK_CONFIG=str(home / "none.toml"),
            FLEET_AGENTPACK_ONLY="climpt",
        ),
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
    assert len(re.findall(r"^✓ +\w+ .* \d+ calls ", done.stdout, re.MULTILINE)) == 5
    assert "\x1b" not in done.stdout
    assert "nothing is left behind" in done.stdout
    assert re.search(r"^Next: .* connect claude", done.stdout, re.MULTILINE)
    assert tree(home) == before
    assert os.listdir(scratch) == []


def demo_after(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """The demo, where every Python process starts with this code."""
    (folder / "sitecustomize.py").write_text(code)
    env = child_environment()
    env["PYTHONPATH"] = os.pathsep.join([str(folder), env["PYTHONPATH"]])
    return subprocess.run([*SERVE, "demo"], capture_output=True, text=True, timeout=60, env=env)


def test_a_story_that_fails_says_where_and_ends_with_status_1(tmp_path: Path) -> None:
    done = demo_after(
        tmp_path,
        "import sys\n"
        "if 'demo' in sys.argv:\n"
        "    import fleet_agentpack.demo.story as story\n"
        "    async def fail(stage): stage.expect(False, 'on purpose')\n"
        "    story.CHAPTERS = {'broken: chapter': fail}\n",
    )
    assert done.returncode == 1
    assert "✗ on purpose" in done.stdout


@pytest.mark.slow
def test_without_git_and_bubblewrap_the_story_is_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [*SERVE, "demo"],
        capture_output=True,
        text=True,
        timeout=120,
        env=child_environment(PATH=str(tmp_path)),
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted_in_the_middle_it_leaves_nothing_either(tmp_path: Path, name: str) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen(
        [*SERVE, "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(TMPDIR=str(scratch)),
    ) as demo:
        for line in demo.stdout:
            if "deploy_apply" in line:
                demo.send_signal(getattr(signal, name))
                break
        _, complaint = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert complaint == "fleet-agentpack demo: interrupted\n"
    assert os.listdir(scratch) == []


def test_a_server_that_does_not_start_is_told_with_its_own_words(tmp_path: Path) -> None:
    done = demo_after(
        tmp_path,
        "import sys\n"
        "if 'demo' not in sys.orig_argv and 'fleet_agentpack' in sys.orig_argv:\n"
        "    sys.exit('no such luck')\n",
    )
    assert done.returncode == 1
    assert "no such luck" in done.stdout
    assert "doctor --all" in done.stdout
    assert "Traceback" not in done.stderr


def test_without_a_place_for_the_scratch_home_it_says_so(tmp_path: Path) -> None:
    code = (
        "import tempfile, sys; tempfile._get_default_tempdir = tempfile.gettempdir = "
        f"lambda *_, **__: {str(tmp_path / 'none')!r}\n"
        "from fleet_agentpack.cli import run; sys.exit(run(['demo']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=child_environment(),
    )
    assert done.returncode == 1
    assert "TMPDIR" in done.stdout
