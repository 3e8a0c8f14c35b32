"""The built-in tools do what their documentation says, through the service."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact import manifest
from fleet_agentpack.enact.bundle import Folder
from fleet_agentpack.enact.registries.sources import BUILTIN_ROOT
from fleet_agentpack.enact.service import EnactService
from tests.enact.kit import refused

FOLDERS = sorted(path.parent for path in BUILTIN_ROOT.rglob("enact.md"))


def output(service: EnactService, tool: str, **args: Any) -> Any:
    return service.run(f"agentpack/{tool}", args).output


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_built_in_tool_is_whole(folder: Path) -> None:
    read = manifest.load(Folder(folder))
    assert read.name == f"agentpack/{folder.relative_to(BUILTIN_ROOT).as_posix()}"
    assert read.version and read.tags and read.license
    (script,) = read.scripts.values()
    assert script.input_schema["required"] and script.output_schema
    assert script.annotations["readOnlyHint"] is True
    assert not read.network and not read.variables and read.image is None
    assert read.documentation.startswith("# ")
    paths = [
        name
        for name, rule in script.input_schema["properties"].items()
        if rule.get("format") in manifest.PATH_FORMATS
    ]
    assert paths, "it takes files"


def test_there_are_at_least_five() -> None:
    assert len(FOLDERS) >= 5


def test_csv_stats(service: EnactService, work: Path) -> None:
    (work / "x.csv").write_text("\ufeffname;age\nAnn;30\nBob;\nAnn;50.5\n", encoding="utf-8")
    found = output(service, "csv/stats", file="x.csv")
    assert (found["rows"], found["delimiter"]) == (3, ";")
    name, age = found["columns"]
    assert name["top"][0] == {"value": "Ann", "count": 2}
    assert (age["type"], age["missing"], age["max"]) == ("number", 1, 50.5)
    assert len(output(service, "csv/stats", file="x.csv", columns=["age"])["columns"]) == 1
    with refused("EXECUTION_FAILED") as refusal:
        output(service, "csv/stats", file="x.csv", columns=["none"])
    assert "no such column: none" in refusal.error.message
    (work / "empty.csv").write_text("")
    with refused("EXECUTION_FAILED"):
        output(service, "csv/stats", file="empty.csv")
    (work / "-x.csv").write_text("a\n1\n")
    assert output(service, "csv/stats", file="-x.csv")["rows"] == 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("users[0].name", [("$.users[0].name", "Ann")]),
        ("users[-1].name", [("$.users[1].name", "Bob")]),
        ("users[*].name", [("$.users[0].name", "Ann"), ("$.users[1].name", "Bob")]),
        ("..name", [("$.users[0].name", "Ann"), ("$.users[1].name", "Bob")]),
        ('["odd key"]', [('$["odd key"]', 1)]),
        ("missing.thing", []),
        ("users.name", []),
    ],
)
def test_json_query(
    service: EnactService, work: Path, path: str, expected: list[tuple[str, Any]]
) -> None:
    document = {"users": [{"name": "Ann"}, {"name": "Bob"}], "odd key": 1}
    (work / "x.json").write_text(json.dumps(document))
    found = output(service, "json/query", file="x.json", path=path)
    assert [(each["path"], each["value"]) for each in found["matches"]] == expected


def test_json_query_reads_lines_and_says_what_is_wrong(service: EnactService, work: Path) -> None:
    (work / "x.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n')
    found = output(service, "json/query", file="x.jsonl", path="[*].a", limit=1)
    assert (found["count"], len(found["matches"])) == (2, 1)
    (work / "bad.json").write_text("{")
    with refused("EXECUTION_FAILED") as refusal:
        output(service, "json/query", file="bad.json", path="")
    assert "not valid JSON" in refusal.error.message
    with refused("EXECUTION_FAILED"):
        output(service, "json/query", file="x.jsonl", path="a[[")


def test_text_diff(service: EnactService, work: Path) -> None:
    (work / "a.txt").write_text("one\ntwo\n")
    (work / "b.txt").write_text("one\nthree\nfour")
    found = output(service, "text/diff", before="a.txt", after="b.txt")
    assert (found["equal"], found["added"], found["removed"]) == (False, 2, 1)
    assert "-two\n+three\n+four\n" in found["diff"]
    assert output(service, "text/diff", before="a.txt", after="a.txt")["equal"] is True
    for name, files in {"old": ["x", "gone"], "new": ["x", "made"]}.items():
        (work / name).mkdir()
        for file in files:
            (work / name / file).write_text(name)
    found = output(service, "text/diff", before="old", after="new")
    assert (found["only_before"], found["only_after"]) == (["gone"], ["made"])
    assert "-old" in found["diff"]


def test_markdown_outline(service: EnactService, work: Path) -> None:
    (work / "x.md").write_text(
        "---\ntitle: no\n---\n# Top\n\n```sh\n# not a heading\n```\n\nSub\n---\n"
        "## A [link](there.md)\n## A link\n`[no](x)`\n"
    )
    found = output(service, "markdown/outline", file="x.md")
    assert found["title"] == "Top"
    assert [(each["level"], each["line"], each["anchor"]) for each in found["headings"]] == [
        (1, 4, "top"),
        (2, 10, "sub"),
        (2, 12, "a-link"),
        (2, 13, "a-link-1"),
    ]
    assert [each["target"] for each in found["links"]] == ["there.md"]
    assert found["code_blocks"] == [{"language": "sh", "line": 6, "end_line": 8}]
    assert len(output(service, "markdown/outline", file="x.md", depth=1)["headings"]) == 1


def test_file_hashes(service: EnactService, work: Path) -> None:
    (work / "tree" / "sub").mkdir(parents=True)
    for name in ("a.txt", "sub/b.txt"):
        (work / "tree" / name).write_text("same")
    (work / "tree" / "c.md").write_text("other")
    (work / "tree" / "link").symlink_to("a.txt")
    found = output(service, "files/hashes", path="tree")
    expected = hashlib.sha256(b"same").hexdigest()
    assert found["files"][0] == {"path": "a.txt", "hash": expected, "size": 4}
    assert (found["count"], found["bytes"]) == (3, 13)
    assert found["duplicates"] == [["a.txt", "sub/b.txt"]]
    assert output(service, "files/hashes", path="tree", pattern="*.md")["count"] == 1
    assert output(service, "files/hashes", path="tree/c.md", algorithm="md5")["count"] == 1
    before = found["tree"]
    (work / "tree" / "c.md").write_text("changed")
    assert output(service, "files/hashes", path="tree")["tree"] != before


def test_text_search(service: EnactService, work: Path) -> None:
    (work / "docs").mkdir()
    (work / "docs" / "a.md").write_text("one\nTODO two\nthree\n")
    (work / "docs" / "b.txt").write_text("todo\n")
    (work / "docs" / "c.bin").write_bytes(b"TODO\0")
    found = output(service, "text/search", path="docs", pattern="todo", ignore_case=True)
    assert (found["count"], found["files"]) == (2, 2)
    (match,) = output(service, "text/search", path="docs", pattern="TODO", context=1)["matches"]
    assert match == {
        "path": "a.md",
        "line": 2,
        "text": "TODO two",
        "before": ["one"],
        "after": ["three"],
    }
    with refused("EXECUTION_FAILED"):
        output(service, "text/search", path="docs", pattern="(")
