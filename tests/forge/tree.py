"""A realistic tree of definitions: both layouts, both tiers, plugins, forks, and broken files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

AGENT = """\
name: {name}
type: agent
description: {description}
version: {version}
author: Acme Ops
tags: [{tags}]
llm: {{provider: anthropic, model: claude-sonnet-4, temperature: 0.2}}
tools: [{tools}]
{more}system_prompt: |
  You are {name}.
  Be brief.
"""
TOOL = """\
name: {name}
type: tool
description: {description}
version: {version}
author: Acme Ops
tags: [{tags}]
parameters:
  target: {{type: string, required: true, description: What to work on}}
  depth: {{type: integer, required: false, default: 3, description: How far to go}}
implementation: {{type: bash, bash: {{command: "echo {name}"}}}}
{more}"""
TRIAGE = """\
---
name: acme:triage
type: agent
description: Sorts incoming tickets by urgency
version: "2.3.1"
author: Acme Ops
license: MIT
tags: [support, triage]
extends: base-support@^1.4.0
llm: {provider: anthropic, model: claude-sonnet-4, temperature: 0.2, max_tokens: 2048}
tools: [ticket-read, "ticket-label@~2.1.0"]
custom_tools:
  - name: sla-clock
    type: tool
    description: Minutes left on the SLA
    version: 1.0.0
    tags: [time]
    parameters:
      opened_at: {type: string, required: true}
    implementation: {type: python, python: {module: acme.sla, function: minutes_left}}
caching:
  enabled: true
  cache_sources:
    - {type: file, path: docs/sla.md, label: SLA policy, ttl: 900}
    - {type: codex, uri: codex://acme/support/runbook.md, label: Runbook}
config: {max_retries: 2}
---
# Triage
Order tickets by customer impact, then by age.
"""
TICKET_READ = """\
name: ticket-read
type: tool
description: Reads one ticket
version: 1.2.0
author: Acme Ops
license: Apache-2.0
tags: [support, http]
extends: http-base@1.x
depends_on: [auth-token]
parameters:
  ticket_id: {type: string, description: Ticket key, required: true}
  view: {type: string, required: false, default: short, enum: [short, full], description: Form}
  filter:
    type: object
    required: false
    description: Narrows down
    properties:
      since: {type: string, required: true, description: A date}
implementation:
  type: http
  http:
    method: GET
    url: https://tickets.example.test/api/${ticket_id}
    headers: {Accept: application/json}
output: {type: object, properties: {title: {type: string}}}
"""
PUBLISHED_TOOL = """\
---
name: repo-status
type: tool
description: A published tool in the registry's own dialect
version: 2.0.0
parameters:
  type: object
  properties:
    branch: {type: string}
  required: [branch]
implementation: {type: bash, scripts_directory: scripts}
---
Shows the state of a repository.
"""


def agent(name: str, *, version: str = "1.0.0", **fields: str) -> str:
    """The text of a valid YAML agent."""
    given = {"description": f"Does {name}", "tags": "demo", "tools": "", "more": "", **fields}
    return AGENT.format(name=name, version=version, **given)


def tool(name: str, *, version: str = "1.0.0", **fields: str) -> str:
    """The text of a valid YAML tool."""
    given = {"description": f"Runs {name}", "tags": "demo", "more": "", **fields}
    return TOOL.format(name=name, version=version, **given)


def write(root: Path, files: dict[str, str | bytes | dict[str, Any]]) -> None:
    """Write files below a root; a mapping becomes JSON."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            content = json.dumps(content, indent=2)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def plugin_manifest(name: str, version: str = "1.0.0", **more: Any) -> dict[str, Any]:
    """A plugin manifest in the registry's dialect."""
    return {
        "name": name,
        "version": version,
        "description": f"The plugin {name}",
        "author": "Acme",
        "license": "MIT",
        "repository": "https://example.test/repo",
        "tags": ["demo"],
        **more,
    }


def build(work: Path, home: Path) -> None:
    """Fill a project and a home with definitions; every kind of trouble is among them."""
    local, shared = work / ".fractary", home / ".fractary/registry"
    write(
        local,
        {
            "agents/acme:triage/agent.md": TRIAGE,
            "agents/echo-bot/agent.yaml": agent("echo-bot", tags="demo, echo"),
            "agents/reviewer.yaml": agent(
                "reviewer", tags="code, review", tools="lint, ticket-read"
            ),
            "agents/writer.md": "---\n"
            + agent("writer", tags="docs").split("system_prompt")[0]
            + "---\nWrite plainly.\n",
            "agents/planner.yml": agent("planner", tags="code, plan"),
            "agents/both/agent.yaml": agent("both", version="2.0.0"),
            "agents/both.yaml": agent("both", version="1.0.0"),
            "agents/@acme/scoped/agent.yaml": agent("scoped"),
            "agents/loop-a.yaml": agent("loop-a", more="extends: loop-b\n"),
            "agents/loop-b.yaml": agent("loop-b", more="extends: loop-a\n"),
            "agents/orphan.yaml": agent("orphan", more="extends: nowhere@^1.0.0\n", tools="gone"),
            "agents/bad-llm.yaml": agent("bad-llm")
            .replace("anthropic", "acme")
            .replace("0.2", "2.0"),
            "agents/no-version.yaml": "name: no-version\ntype: agent\ndescription: Half done\n",
            "agents/broken.yaml": "name: broken\n  oops: [\n",
            "agents/twice.yaml": "name: twice\nname: again\n",
            "agents/binary.yaml": b"\x00\x01\x02binary",
            "agents/latin.yaml": "name: caf\xe9".encode("latin-1"),
            "agents/empty.yaml": "",
            "agents/list.yaml": "- one\n- two\n",
            "agents/notes.txt": "not a definition",
            "agents/my-triage/agent.yaml": agent(
                "my-triage",
                version="2.0.1",
                description="Our own triage",
                tags="support, ours",
                more="fork_of: {name: base-triage, version: 1.0.0, "
                "forked_at: 2025-11-02T09:00:00.000Z}\n",
            ),
            "tools/lint.yaml": tool("lint", tags="code"),
            "tools/ticket-read/tool.yaml": TICKET_READ,
            "tools/auth-token.yaml": tool("auth-token"),
            "tools/repo-status/tool.md": PUBLISHED_TOOL,
            "tools/ring-a.yaml": tool("ring-a", more="depends_on: [ring-b]\n"),
            "tools/ring-b.yaml": tool("ring-b", more="depends_on: [ring-a]\n"),
            "tools/old-style.yaml": "name: old-style\ntype: tool\ncommand: ls\n"
            "input_schema: {type: object, properties: {dir: {type: string}}}\n",
            "tools/my-lint.yaml": tool(
                "my-lint",
                more="fork: {upstream: lint-base, upstreamVersion: 1.1.0, "
                "forkedAt: 2025-01-01T00:00:00Z}\n",
            ),
            "tools/forked-dir/tool.yaml": tool("forked-dir"),
            "tools/forked-dir/metadata.json": {
                "fork": {
                    "created_at": "2025-02-02T00:00:00Z",
                    "from_name": "lint-base",
                    "from_version": "2.0.0",
                }
            },
            "plugins/@acme/helper/plugin.json": plugin_manifest(
                "@acme/helper",
                "1.2.0",
                agents=[{"name": "helper-agent", "version": "1.2.0"}],
                dependencies={"@acme/base": "^1.0.0"},
            ),
            "plugins/@acme/helper/agents/helper-agent.yaml": agent("helper-agent", version="1.2.0"),
            "plugins/@acme/helper/tools/helper-tool.yaml": tool("helper-tool"),
            "plugins/@acme/helper/commands/run.md": "# run",
            "plugins/@acme/helper/hooks/pre.js": "// hook",
            "plugins/forge/config.json": {"agents": {"echo-bot": "^1.0.0"}},
            "plugins/broken-one/plugin.json": "{not json",
        },
    )
    write(
        shared,
        {
            "agents/base-support@1.4.2/agent.yaml": agent(
                "base-support", version="1.4.2", tags="support, base", tools="log"
            ),
            "agents/base-support@1.3.0/agent.yaml": agent("base-support", version="1.3.0"),
            "agents/base-support@2.0.0/agent.md": "---\n"
            + agent("base-support", version="2.0.0").split("system_prompt")[0]
            + "---\nNew base.\n",
            "agents/base-triage@1.0.0/agent.yaml": agent(
                "base-triage", version="1.0.0", description="Base triage", tags="support"
            ),
            "agents/base-triage@1.1.0/agent.yaml": agent(
                "base-triage", version="1.1.0", description="Base triage", tags="support, sla"
            ),
            "agents/base-triage@2.0.0/agent.yaml": agent(
                "base-triage", version="2.0.0", description="Better triage", tags="support, sla"
            ),
            "agents/reviewer.yaml": agent("reviewer", version="0.9.0", tags="global"),
            "agents/global-only.yaml": agent("global-only", version="3.1.0", tags="global"),
            "agents/preview@1.0.0-beta.1/agent.yaml": agent("preview", version="1.0.0"),
            "tools/http-base@1.0.0/tool.yaml": tool("http-base", tags="base, http"),
            "tools/http-base@1.5.0.yaml": tool("http-base", version="1.5.0", tags="base, http"),
            "tools/ticket-label@2.1.4/tool.yaml": tool("ticket-label", version="2.1.4"),
            "tools/log.yaml": tool("log"),
            "tools/lint-base@1.1.0/tool.yaml": tool("lint-base", version="1.1.0"),
            "tools/lint-base@2.0.0/tool.yaml": tool("lint-base", version="2.0.0"),
            "plugins/@acme/base/plugin.json": plugin_manifest("@acme/base", "1.0.0"),
            "plugins/plain/.claude-plugin/plugin.json": {
                "name": "plain",
                "version": "0.3.0",
                "author": {"name": "Somebody"},
                "commands": ["./commands/go.md"],
            },
            "manifests/lint-base.json": {"name": "lint-base", "latest": "2.2.0"},
        },
    )
