"""Validation: every rule of the schema, the advice, and what strict makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import jsonable
from tests.forge.tree import TICKET_READ, TRIAGE, agent, tool, write


def check(forge: ForgeService, kind: Any, text: str, strict: bool = False, name: str = "it") -> Any:
    write(forge.directories.root, {f".fractary/{kind}s/{name}.yaml": text})
    return forge.validate(kind, name=name, strict=strict)


def fields(issues: list[dict[str, str]]) -> set[str]:
    return {issue.field for issue in issues}


GOOD_AGENT = agent("it")
GOOD_TOOL = tool("it")


@pytest.mark.parametrize("strict", [False, True])
def test_good_definitions_are_valid(forge: ForgeService, strict: bool) -> None:
    for kind, text in (("agent", GOOD_AGENT), ("tool", GOOD_TOOL)):
        result = check(forge, kind, text, strict)
        assert jsonable(result) == {
            "valid": True,
            "path": f".fractary/{kind}s/it.yaml",
            "errors": [],
            "warnings": [],
            "schema_version": "1.0",
        }


def test_the_full_examples_are_valid_when_their_references_exist(full: ForgeService) -> None:
    assert jsonable(full.validate("agent", name="acme:triage", strict=True).errors) == []
    assert jsonable(full.validate("tool", name="ticket-read", strict=True).errors) == []


@pytest.mark.parametrize("provider", ["anthropic", "openai", "google"])
def test_all_providers_are_valid(forge: ForgeService, provider: str) -> None:
    assert check(forge, "agent", GOOD_AGENT.replace("anthropic", provider)).valid


def test_a_missing_description_is_a_warning_even_in_strict_mode(forge: ForgeService) -> None:
    text = "\n".join(line for line in GOOD_AGENT.splitlines() if "description" not in line)
    result = check(forge, "agent", text, strict=True)
    assert result.valid is True
    assert jsonable(result.warnings) == [
        {"field": "description", "message": "Consider adding a description"}
    ]


@pytest.mark.parametrize(
    ("old", "new", "field", "message"),
    [
        ("name: it", "name: it works!", "name", "only letters"),
        ("type: agent", "type: tool", "type", "expected agent, received 'tool' (line 2)"),
        ("version: 1.0.0", "version: v1.0", "version", "three numbers"),
        ("version: 1.0.0", "version: 1.0", "version", "expected string, received number"),
        ("version: 1.0.0", 'version: "1.0.0\\n"', "version", "three numbers"),
        ("version: 1.0.0", "version: \u0661.0.0", "version", "three numbers"),
        ("provider: anthropic", "provider: acme", "llm.provider", "anthropic | openai | google"),
        ("temperature: 0.2", "temperature: 2.0", "llm.temperature", "at most 1"),
        ("temperature: 0.2", "temperature: true", "llm.temperature", "received boolean"),
        ("temperature: 0.2", "temperature: .nan", "llm.temperature", "at least 0"),
        ("temperature: 0.2", "max_tokens: 0", "llm.max_tokens", "at least 1"),
        ("tags: [demo]", "tags: demo", "tags", "expected array"),
        ("tags: [demo]", "tags: [demo, 5]", "tags.1", "expected string, received number"),
        ("tags: [demo]\n", "", "tags", "required"),
        ("tools: []", "tools: [{}]", "tools.0", "expected string"),
        ("tools: []", "tools: []\ncustom_tools: [{name: x}]", "custom_tools.0.type", "required"),
        (
            "tools: []",
            "tools: []\ncaching: {enabled: true, cache_sources: [{type: web, label: x}]}",
            "caching.cache_sources.0.type",
            "file | glob | inline | codex",
        ),
        ("tools: []", "tools: []\nconfig: 5", "config", "expected object"),
    ],
)
def test_faulty_agents_are_rejected_with_path_and_line(
    forge: ForgeService, old: str, new: str, field: str, message: str
) -> None:
    assert old in GOOD_AGENT
    result = check(forge, "agent", GOOD_AGENT.replace(old, new))
    assert result.valid is False
    issue = next(issue for issue in result.errors if issue.field == field)
    assert message in issue.message
    assert issue.severity == "error"


@pytest.mark.parametrize(
    ("old", "new", "field", "message"),
    [
        ("name: it", "name: a:b", "name", "only letters"),
        ("type: tool", "type: agent", "type", "expected tool"),
        ("type: bash, bash", "type: mcp, bash", "implementation.type", "bash | python | http"),
        ('{type: bash, bash: {command: "echo it"}}', "{}", "implementation.type", "required"),
        ('bash: {command: "echo it"}', "x: 1", "implementation.bash", "required"),
        (
            'type: bash, bash: {command: "echo it"}',
            "type: http, http: {method: PATCH, url: 'not a url'}",
            "implementation.http.method",
            "GET | POST | PUT | DELETE",
        ),
        ("required: true,", "", "parameters.target.required", "required"),
        ("type: string", "type: text", "parameters.target.type", "string | integer"),
    ],
)
def test_faulty_tools_are_rejected(
    forge: ForgeService, old: str, new: str, field: str, message: str
) -> None:
    assert old in GOOD_TOOL
    result = check(forge, "tool", GOOD_TOOL.replace(old, new))
    issue = next(issue for issue in result.errors if issue.field == field)
    assert message in issue.message


def test_all_faults_are_reported_at_once(forge: ForgeService) -> None:
    result = check(forge, "agent", "name: it\n")
    assert fields(result.errors) == {"type", "version", "tags", "llm", "tools"}


BINDING = [
    (GOOD_AGENT + "temperature: 1\n", "temperature"),
    (agent("it", tools="gone"), "tools.0"),
    (agent("it", more="extends: gone@^1.0.0\n"), "extends"),
    (
        agent("it", more="caching: {enabled: true, cache_sources: [{type: file, label: x}]}\n"),
        "caching.cache_sources.0.path",
    ),
    (
        agent(
            "it",
            more="caching: {enabled: true, "
            "cache_sources: [{type: codex, label: x, uri: 'http://x'}]}\n",
        ),
        "caching.cache_sources.0.uri",
    ),
]


@pytest.mark.parametrize(("text", "field"), BINDING)
def test_strict_turns_binding_advice_into_errors(
    forge: ForgeService, text: str, field: str
) -> None:
    lenient = check(forge, "agent", text)
    assert lenient.valid is True
    assert field in fields(lenient.warnings)
    strict = check(forge, "agent", text, strict=True)
    assert strict.valid is False
    assert field in fields(strict.errors)
    assert field not in fields(strict.warnings)


def test_gentle_advice_stays_advice_in_strict_mode(forge: ForgeService) -> None:
    text = GOOD_AGENT.replace("name: it", "name: It_Is").replace("tags: [demo]", "tags: []")
    text = text.replace("author: Acme Ops\n", "").split("system_prompt")[0]
    result = check(forge, "agent", text, strict=True)
    assert result.valid is True
    assert fields(result.warnings) == {"name", "tags", "author", "system_prompt"}


def test_a_parameter_without_description_is_advised(forge: ForgeService) -> None:
    result = check(forge, "tool", GOOD_TOOL.replace(", description: What to work on", ""))
    assert fields(result.warnings) == {"parameters.target"}


def test_cycles_are_errors_and_named(full: ForgeService) -> None:
    extends = full.validate("agent", name="loop-a")
    assert "loop-a -> loop-b -> loop-a" in extends.errors[0].message
    ring = full.validate("tool", name="ring-b")
    assert "ring-b -> ring-a -> ring-b" in ring.errors[0].message


def test_markdown_body_is_the_prompt_and_must_not_be_empty(forge: ForgeService, work: Path) -> None:
    header = GOOD_AGENT.split("system_prompt")[0]
    write(
        work / ".fractary/agents",
        {
            "it/agent.md": f"---\n{header}system_prompt: ignored\n---\n\n",
            "other.md": f"---\n{header.replace('version: 1.0.0', 'version: x')}---\nHi",
        },
    )
    result = forge.validate("agent", name="it")
    assert fields(result.errors) == {"system_prompt"}
    other = forge.validate("agent", name="other")
    assert other.errors[0].message.endswith("(line 5)")


def test_markdown_without_a_header_fails_the_schema(forge: ForgeService, work: Path) -> None:
    write(work / ".fractary/tools", {"it.md": "Just text."})
    result = forge.validate("tool", name="it")
    assert {"name", "type", "version", "implementation"} <= fields(result.errors)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [\n", "not valid YAML"),
        ("a: 1\na: 2\n", "duplicate key 'a' (line 2)"),
        (b"\x00\x01", "binary"),
        (b"\xff\xfe", "not UTF-8"),
        ("- a\n", "mapping"),
        ("x: " + "y" * 2_000_000, "bytes"),
        ("[" * 5000, "nested deeper"),
    ],
)
def test_an_unreadable_definition_is_invalid_not_an_error(
    forge: ForgeService, work: Path, content: Any, message: str
) -> None:
    write(work / ".fractary/agents", {"it.yaml": content})
    result = forge.validate("agent", name="it", strict=True)
    assert result.valid is False
    assert message in result.errors[0].message


def test_an_empty_file_misses_everything(forge: ForgeService) -> None:
    assert {"name", "type"} <= fields(check(forge, "agent", "").errors)


def test_path_and_name_exclude_each_other(forge: ForgeService) -> None:
    for arguments in ({}, {"path": "a.yaml", "name": "a"}):
        with pytest.raises(ForgeError) as caught:
            forge.validate("agent", **arguments)
        assert caught.value.code == "VALIDATION_ERROR"


def test_a_path_may_be_a_file_or_a_directory(full: ForgeService, work: Path) -> None:
    write(work, {"drafts/new.yaml": agent("new"), "drafts/txt.txt": "x"})
    assert full.validate("agent", path="drafts/new.yaml").path == "drafts/new.yaml"
    assert full.validate("agent", path=str(work / "drafts/new.yaml")).valid
    assert full.validate("agent", path=".fractary/agents/acme:triage").valid
    assert "must end in" in full.validate("agent", path="drafts/txt.txt").errors[0].message


@pytest.mark.parametrize("path", ["gone.yaml", "drafts", ""])
def test_a_path_that_leads_nowhere_is_not_found(full: ForgeService, work: Path, path: str) -> None:
    (work / "drafts").mkdir()
    with pytest.raises(ForgeError) as caught:
        full.validate("tool", path=path)
    assert caught.value.code == "TOOL_NOT_FOUND"


@pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/passwd", "~/../x.yaml", "link.yaml"])
def test_a_path_out_of_bounds_is_denied_unless_a_person_asks(
    full: ForgeService, work: Path, tmp_path: Path, path: str
) -> None:
    (tmp_path / "outside.yaml").write_text(agent("outside"))
    (work / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    with pytest.raises(ForgeError) as caught:
        full.validate("agent", path=path)
    assert caught.value.code == "PERMISSION_DENIED"
    if path == "link.yaml":
        assert jsonable(full.validate("agent", path=path, anywhere=True).errors) == []


def test_a_nul_in_a_path_is_refused(forge: ForgeService) -> None:
    with pytest.raises(ForgeError):
        forge.validate("agent", path="a\x00b")


def test_a_mismatch_between_path_and_content_is_advised(forge: ForgeService, home: Path) -> None:
    write(
        home,
        {".fractary/registry/agents/it@2.0.0/agent.yaml": agent("other", version="1.0.0")},
    )
    result = forge.validate("agent", name="it")
    messages = {issue.field: issue.message for issue in result.warnings}
    assert "directory is called 'it'" in messages["name"]
    assert "path says version 2.0.0" in messages["version"]


def test_custom_tools_and_examples_validate(forge: ForgeService, work: Path) -> None:
    write(work, {".fractary/agents/acme:triage/agent.md": TRIAGE})
    write(work, {".fractary/tools/ticket-read/tool.yaml": TICKET_READ})
    assert jsonable(forge.validate("agent", name="acme:triage").errors) == []
    assert jsonable(forge.validate("tool", name="ticket-read").errors) == []
