"""Pull requests of agents' work: through `gh` where it is logged in, else how to make one."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import LocalAgent
from fleet_agentpack.fleet.local.branches import Branches
from fleet_agentpack.fleet.local.git import Git, Repository
from fleet_agentpack.fleet.models import PullRequest
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.process import Completed, run

FILE = "pull_request.json"
NETWORK_S = 120.0
_ADDRESS = re.compile(r"(?:https?://|ssh://)?(?:[^@/]+@)?([^/:]+)[/:](?:\d+/)?(.+?)(?:\.git)?/?$")
_CHECKS = {"SUCCESS": "passing", "FAILURE": "failing", "PENDING": "pending"}


def pull_request_of(folder: Path) -> dict[str, str]:
    """What is known of an agent's pull request."""
    try:
        known = json.loads((folder / FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return {name: str(value) for name, value in known.items() if value}


@dataclass(frozen=True)
class PullRequests:
    """Pull requests from one repository."""

    git: Git
    origin: Repository
    environ: Mapping[str, str]

    def open(self, agent: LocalAgent, title: str, folder: Path) -> PullRequest:
        """Push an agent's branch and open a pull request, or say how. Raises 400 and 503."""
        remote = self.git.text(self.origin, "remote", "get-url", "origin")
        if not remote:
            raise FleetError.bad_request(
                f"{agent.origin} has no remote called origin to push {agent.branch} to."
            )
        program = shutil.which("gh", path=self.environ.get("PATH"))
        push = shlex.join(["git", "-C", agent.origin, "push", "origin", str(agent.branch)])
        if program is None or self._run([program, "auth", "status"]).status != 0:
            return PullRequest(push, compare_address(remote, agent, self._target(agent)))
        branch = f"refs/heads/{agent.branch}"
        # A rebase may have changed it, but commits of others on it are not ours to overwrite.
        lease = ("--force-with-lease", "--force-if-includes")
        pushed = self._run(["git", "push", "--quiet", *lease, "origin", f"{branch}:{branch}"])
        if pushed.status != 0:
            raise FleetError.unavailable(f"git could not push: {pushed.complaint[-500:]}")
        known = self._view(program, agent)
        if not known:
            words = ["--head", str(agent.branch), "--title", title, "--body", agent.spec]
            target = self._target(agent)
            base = ["--base", target] if target else []
            made = self._run([program, "pr", "create", *words, *base])
            if made.status != 0:
                raise FleetError.unavailable(f"gh could not open it: {made.complaint[-500:]}")
            known = self._view(program, agent) or {"url": made.text.strip(), "status": "open"}
        write_atomic(folder / FILE, json.dumps(known), mode=0o600)
        return PullRequest(None, known["url"], known.get("status"))

    def _target(self, agent: LocalAgent) -> str | None:
        """The branch that the work is proposed for, as the remote calls it."""
        name = agent.base_branch
        return Branches(self.git, self.origin).at_its_home(name) if name else None

    def _view(self, program: str, agent: LocalAgent) -> dict[str, str]:
        """The pull request of a branch, as GitHub has it."""
        fields = "url,state,statusCheckRollup"
        shown = self._run([program, "pr", "view", str(agent.branch), "--json", fields])
        try:
            row = json.loads(shown.text) if shown.status == 0 else {}
        except ValueError:
            return {}
        checks = {
            str(each.get("conclusion") or "PENDING") for each in row.get("statusCheckRollup") or []
        }
        worst = next((c for c in ("FAILURE", "PENDING", "SUCCESS") if c in checks), "")
        found = {"url": row.get("url"), "status": str(row.get("state", "")).lower()}
        return {k: v for k, v in {**found, "check_status": _CHECKS.get(worst)}.items() if v}

    def _run(self, argv: list[str]) -> Completed:
        """Run a program of the user's in their repository; pushing needs their own settings."""
        where = self.origin.tree or self.origin.git_dir
        env = {**self.environ, "GIT_TERMINAL_PROMPT": "0", "GH_PROMPT_DISABLED": "1"}
        return run(argv, cwd=where, env=env, timeout_s=NETWORK_S)


def compare_address(remote: str, agent: LocalAgent, target: str | None) -> str | None:
    """Where a browser opens a pull request for a branch."""
    found = _ADDRESS.match(remote)
    if not found or "/" not in found[2]:
        return None
    host, path, base = found[1], found[2], target or "HEAD"
    if "gitlab" in host:
        return f"https://{host}/{path}/-/merge_requests/new?merge_request[source_branch]={agent.branch}"
    return f"https://{host}/{path}/compare/{base}...{agent.branch}?expand=1"
