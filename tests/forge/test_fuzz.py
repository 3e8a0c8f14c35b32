"""Whatever a definition file holds: an answer or a clear error, and always JSON."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.names import Directories
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.results import jsonable
from tests.forge.conftest import NoVault

FIELDS = [
    "name", "type", "version", "description", "tags", "tools", "llm", "extends", "fork_of", "fork",
    "parameters", "implementation", "caching", "custom_tools", "depends_on", "author", "output",
    "system_prompt", "config",
]  # fmt: skip
SECTIONS = ["registries", "cache", "resolution", "registry", "install", "stockyard", "agents"]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["it", "it@^1.0.0", "1.0.0", "agent", "tool", "bash", "@", "../x", "object"])
)
keys = st.sampled_from([*FIELDS, "type", "name", "required", "properties", "cache_sources", "bash"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from(FIELDS), values, max_size=8)


def queries(forge: ForgeService) -> Any:
    for kind in ("agent", "tool"):
        yield lambda kind=kind: forge.listing(kind)
        yield lambda kind=kind: forge.info(kind, "it")
        yield lambda kind=kind: forge.validate(kind, name="it", strict=True)
    yield forge.fork_list
    yield forge.fork_check
    yield lambda: forge.fork_info("it")
    yield lambda: forge.fork_diff("it")
    yield lambda: forge.merge_plan("it")
    yield forge.plugin_list
    yield lambda: forge.plugin_info("it")
    yield forge.config_show
    yield forge.registry_list


def ask_everything(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name, content in files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_bytes(content)
        forge = ForgeService(Directories(work, work / "home", dict(os.environ)), vault=NoVault())
        for query in queries(forge):
            try:
                result = query()
            except ForgeError as error:
                result = error.payload()
                assert error.code != "INTERNAL_ERROR"
            json.dumps(jsonable(result), allow_nan=False).encode()


@settings(deadline=None, max_examples=25)
@given(documents, documents)
@example({"custom_tools": True, "tools": ["it"]}, {"depends_on": ["it"]})
def test_any_fields(agent: dict[str, Any], tool: dict[str, Any]) -> None:
    ask_everything(
        {
            ".fractary/agents/it.yaml": yaml12.dump(agent).encode(),
            ".fractary/tools/it/tool.md": f"---\n{yaml12.dump(tool)}---\nbody".encode(),
            "home/.fractary/registry/agents/it@1.0.0/agent.yaml": yaml12.dump(tool).encode(),
        }
    )


@settings(deadline=None, max_examples=25)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes(content: bytes) -> None:
    ask_everything(
        {
            ".fractary/agents/it.yaml": content,
            ".fractary/tools/it.md": b"---\n" + content,
            ".fractary/tools/it/metadata.json": content,
            ".fractary/plugins/it/plugin.json": content,
        }
    )


@settings(deadline=None, max_examples=25)
@given(st.dictionaries(st.sampled_from(SECTIONS), values, max_size=5))
def test_any_configuration(config: dict[str, Any]) -> None:
    text = json.dumps(jsonable(config)).encode()
    ask_everything({".fractary/config.json": text, ".fractary/plugins/it/plugin.json": text})
