"""A plugin from its marketplace to a fork that keeps up with it, on the command line."""

from __future__ import annotations

from pathlib import Path

from tests.forge.conftest import Run, answer
from tests.forge.marketplaces import Repository, marketplace, repository

TOOL = """\
---
name: cli-helper
type: tool
description: Helps with the command line
version: {version}
parameters: {{}}
implementation: {{type: bash, bash: {{command: ./scripts/run.sh}}}}
---
Read the question first.

Prefer short commands.

{last}
"""


def release(version: str, last: str) -> dict[str, object]:
    return {
        "work/.claude-plugin/plugin.json": {"name": "work", "version": version},
        "work/tools/cli-helper/tool.md": TOOL.format(version=version, last=last),
        "work/tools/cli-helper/scripts/run.sh": f"echo {version}\n",
    }


def upstream(path: Path) -> Repository:
    market = marketplace("acme", {"name": "work", "source": "./work"})
    files = {".claude-plugin/marketplace.json": market, **release("2.0.0", "Explain each flag.")}
    return repository(path, files)


def test_install_fork_edit_update_merge(run: Run, tmp_path: Path, work: Path) -> None:
    made = upstream(tmp_path / "acme")
    run("init")
    assert (
        "found a Claude Code marketplace with 1 plugin"
        in run("registry", "add", str(made.path / ".git")).stdout
    )
    assert "installed work 2.0.0 (local)" in run("install", "work").stdout
    run("fork", "create", "work/cli-helper", "my-cli")
    fork = work / ".fractary/tools/my-cli/tool.md"
    fork.write_text(fork.read_text().replace("short commands", "long options"))

    made.commit(release("2.1.0", "Explain each flag, and why it is there."))
    assert "work" in run("list", "--outdated").stdout
    assert run("outdated").stdout == run("list", "--outdated").stdout
    assert "updated work 2.0.0 → 2.1.0" in run("update").stdout
    (update,) = answer(run("fork", "check", "my-cli", "--json"))["updates"]
    assert update["upstreamVersion"] == "2.1.0"
    assert "-Explain each flag, and why it is there." in run("fork", "diff", "my-cli").stdout
    assert "merged" in run("merge", "my-cli").stdout

    merged = fork.read_text()
    assert "Prefer long options." in merged
    assert "Explain each flag, and why it is there." in merged
    assert (fork.parent / "scripts/run.sh").read_text() == "echo 2.1.0\n"
    info = answer(run("fork", "info", "my-cli", "--json"))
    assert info["upstream"] == {
        "name": "work/cli-helper",
        "version": "2.1.0",
        "currentVersion": "2.1.0",
    }
    assert "is up to date" in run("merge", "my-cli").stdout

    made.commit(release("2.2.0", "Explain nothing."))
    fork.write_text(fork.read_text().replace("and why it is there", "and when to use it"))
    before = fork.read_text()
    run("update")
    conflict = answer(run("merge", "my-cli", "--json", status=1))
    assert fork.read_text() == before
    copy = work / conflict["details"]["copies"][0]
    assert "<<<<<<< my-cli\nExplain each flag, and when to use it.\n=======\n" in copy.read_text()
    run("merge", "my-cli", "--ours")
    assert "and when to use it." in fork.read_text()
    assert (fork.parent / "scripts/run.sh").read_text() == "echo 2.2.0\n"
