"""The tools that can be deployed to. A new one is a file here and a row in `ALL`."""

from __future__ import annotations

from fleet_agentpack.deploy.targets import claude_code, codex, cursor, vscode
from fleet_agentpack.deploy.targets.target import Target

ALL: tuple[Target, ...] = (codex.TARGET, claude_code.TARGET, cursor.TARGET, vscode.TARGET)
BY_NAME = {target.name: target for target in ALL}
NAMES = tuple(BY_NAME)
PROJECT_ONLY = tuple(target.name for target in ALL if target.project_only)
