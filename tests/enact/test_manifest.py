"""Manifests: which files, which fields, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fleet_agentpack.enact.bundle import Package, PackedFile
from fleet_agentpack.enact.manifest import ManifestError, load, parse
from fleet_agentpack.enact.quantities import seconds, size

MINIMAL = {"name": "a/b", "description": "d"}


def package(**files: str) -> Package:
    return Package({name: PackedFile(text.encode()) for name, text in files.items()})


def files(**texts: str) -> Package:
    named = {name.replace("__", "."): text for name, text in texts.items()}
    return package(**named)


def test_the_smallest_manifest() -> None:
    found = parse(MINIMAL)
    assert (found.name, found.description, found.is_instruction) == ("a/b", "d", True)
    assert found.documentation == "d"


@pytest.mark.parametrize(
    "fields",
    [
        {"name": None},
        {"name": "tool"},
        {"name": "Org/Tool"},
        {"name": "org/ tool"},
        {"name": "a/../b"},
        {"name": 5},
        {"description": None},
        {"description": ""},
        {"description": "x" * 1025},
        {"version": "1.0"},
        {"version": "v1.0.0"},
        {"version": "../1.0.0"},
        {"timeout": "30seconds"},
        {"timeout": "1h30m"},
        {"from": "-v /:/host"},
        {"from": "image with blank"},
        {"env": []},
        {"env": {"X": {}}},
        {"env": {"X": "text"}},
        {"env": {"1X": {"description": "d"}}},
        {"scripts": []},
        {"scripts": {"../x": "true"}},
        {"scripts": {"x": {"description": "no command"}}},
        {"scripts": {"x": {"command": "true", "inputSchema": {"type": "array"}}}},
        {"scripts": {"x": {"command": "true", "inputSchema": "any"}}},
        {"annotations": []},
        {"annotations": {"readOnlyHint": "yes"}},
        {"x-network": "yes"},
    ],
)
def test_a_manifest_that_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ManifestError):
        parse({**MINIMAL, **fields})


@pytest.mark.parametrize("name", ["org/tool", "@my-org/tool-name", "a/b/c/d", "org_name/tool_name"])
@pytest.mark.parametrize("version", ["1.0.0", "1.0.0-beta.1", "1.0.0+build.123"])
def test_names_of_any_depth_and_versions(name: str, version: str) -> None:
    found = parse({**MINIMAL, "name": name, "version": version, "x-anything": [1], "typo": 2})
    assert (found.name, found.version) == (name, version)


def test_durations() -> None:
    assert [seconds(text) for text in ("30s", "5m", "1h", "100ms")] == [30, 300, 3600, 0.1]
    assert [size(text) for text in ("7", "512Mi", "1GiB", "2KB")] == [
        7,
        512 * 1024**2,
        1024**3,
        2000,
    ]


def test_two_files_are_one_tool() -> None:
    skill = "---\ndescription: from the header\nlicense: MIT\n---\n# Body\n\n---\n\nmore"
    found = load(files(SKILL__md=skill, enact__yaml="name: a/b\n"))
    assert (found.description, found.license) == ("from the header", "MIT")
    assert found.documentation == "# Body\n\n---\n\nmore"
    found = load(files(SKILL__md="# Just a body", enact__yaml="name: a/b\ndescription: d\n"))
    assert found.documentation == "# Just a body"


def test_which_file_wins() -> None:
    yaml = "name: a/{}\ndescription: d\n"
    both = package(
        **{"enact.yaml": yaml.format("enact"), "skill.package.yaml": yaml.format("package")}
    )
    assert load(both).name == "a/package"
    markdown = "---\r\nname: a/b\r\ndescription: d\r\n---\r\n# Text\r\n"
    assert load(files(enact__md=markdown)).documentation == "# Text"


@pytest.mark.parametrize(
    "text",
    ["", "# no header", "---\n---\n", "---\n[1]\n---\n", "---\nname: a/b\n", "---\na: [\n---\n"],
)
def test_a_document_without_a_usable_header_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        load(files(enact__md=text))


def test_nothing_duplicate_and_no_yaml_of_yesterday() -> None:
    with pytest.raises(ManifestError, match="duplicate"):
        load(files(enact__yaml="name: a/b\nname: a/c\ndescription: d\n"))
    found = load(files(enact__yaml="name: a/b\ndescription: d\ntags: [yes, on]\n"))
    assert found.tags == ("yes", "on")
    with pytest.raises(ManifestError, match="no manifest"):
        load(files(README__md="x"))
    with pytest.raises(ManifestError, match="UTF-8"):
        load(Package({"enact.yaml": PackedFile(b"\xff")}))


def test_schemas_are_inferred_or_taken_from_the_tool() -> None:
    found = parse({**MINIMAL, "scripts": {"x": "echo {{ a }} {{b}} {{a}}"}})
    assert found.scripts["x"].input_schema == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }
    schema = {"type": "object", "properties": {"a": {"type": "number"}}}
    found = parse({**MINIMAL, "inputSchema": schema, "command": "echo ${a} ${HOME}"})
    assert found.command is not None and found.command.input_schema == schema
    found = parse({**MINIMAL, "command": "echo ${a} ${HOME}"})
    assert found.command is not None and found.command.input_schema["required"] == ["a"]


def test_a_build_is_read_and_other_hooks_are_named_and_never_run() -> None:
    hooks = {"build": ["make", "make", " "], "postinstall": "rm -rf /"}
    found = parse({**MINIMAL, "build": "./configure", "hooks": hooks})
    assert found.build == ("./configure", "make", "make")
    assert found.build_network == ("*",), "the author does not say, as Enact's own never do"
    assert found.warnings == ("a/b: its hooks.postinstall commands are never run",)
    same = parse({**MINIMAL, "build": "make", "hooks": {"build": "make"}})
    assert same.build == ("make",)
    alone = parse({**MINIMAL, "build": "make", "x-build-network": False})
    assert alone.build_network == () and not parse({**MINIMAL, "x-build-network": True}).build
