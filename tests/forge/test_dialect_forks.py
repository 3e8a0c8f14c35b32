"""Forks of what other programs read: subagents, commands, and skills with their directories."""

from __future__ import annotations

from pathlib import Path

from fleet_agentpack.forge.service import ForgeService
from tests.forge.marketplaces import REVIEWER, plugin, shop
from tests.forge.test_merging import fork, run_merge
from tests.forge.test_registries import add, install, installer


def test_a_fork_goes_where_its_program_looks(
    forge: ForgeService, work: Path, tmp_path: Path
) -> None:
    add(forge, shop(tmp_path / "acme").path / ".git", "acme")
    install(forge, "review")
    agent = fork(forge, "review/reviewer", "my-reviewer")
    assert agent == work / ".claude/agents/my-reviewer.md"
    assert agent.read_text() == REVIEWER.replace("name: reviewer", "name: my-reviewer")
    skill = fork(forge, "review/deploy", "my-deploy")
    assert skill == work / ".claude/skills/my-deploy/SKILL.md"
    script = skill.parent / "scripts/run.sh"
    assert script.read_text() == "#!/bin/sh\necho hi\n"
    assert script.stat().st_mode & 0o100
    command = fork(forge, "review/check", "my-check")
    assert command == work / ".claude/commands/my-check.md"
    rows = {row.name: row.upstream.name for row in forge.fork_list().forks}
    assert rows == {
        "my-reviewer": "review/reviewer",
        "my-deploy": "review/deploy",
        "my-check": "review/check",
    }
    assert forge.validate("agent", name="my-reviewer", strict=True).valid
    assert forge.fork_diff("my-deploy").unified == ""


def test_a_subagent_is_merged_with_its_plugins_next_version(
    forge: ForgeService, tmp_path: Path
) -> None:
    made = shop(tmp_path / "acme")
    add(forge, made.path / ".git", "acme")
    install(forge, "review")
    path = fork(forge, "review/reviewer", "my-reviewer")
    path.write_text(path.read_text().replace("You read pull requests.", "You read our changes."))
    newer = REVIEWER.replace("Say what matters.", "Say what matters most.")
    newer = newer.replace("model: sonnet", "model: opus")
    made.commit({**plugin("review", "2.1.0"), "review/agents/reviewer.md": newer})
    installer(forge).update([])
    (update,) = forge.fork_check("my-reviewer").updates
    assert update.upstreamVersion == "2.1.0"
    plan = run_merge(forge, "my-reviewer")
    assert plan.changes == ("model", "system_prompt")
    assert path.read_text() == newer.replace("name: reviewer", "name: my-reviewer").replace(
        "You read pull requests.", "You read our changes."
    )
    info = forge.fork_info("my-reviewer")
    assert (info.upstream.version, info.hasUpstreamUpdate) == ("2.1.0", False)
