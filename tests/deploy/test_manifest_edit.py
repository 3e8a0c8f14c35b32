"""Edits of `agentpack.yaml`: what a person wrote stays, line by line, however it is written."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest

from fleet_agentpack.deploy.manifest_edit import (
    LocalEntry,
    ManifestEdit,
    ModuleEntry,
    SourceEntry,
    edited,
)
from fleet_agentpack.kit import yaml12

WIDE = """\
# my pack
version: 1   # the only one
x-note: &unused {a: 1}
modules:     # all of them
    - source: {local_path: {path: a.md}}   # odd order
      tags: &tags [base]
      type: prompt
      id: "prompt:a"
    # in between

    - id: 'prompt:b'
      type: prompt
      source:
          local_path:
              path: b.md
      tags: *tags
# after the modules
targets:
    codex:
        mode: files
        scope: user   # not the project
        options: {write_user_prompts: true}
profiles:
    default: {include_tags: [base]}
# the end
"""
STYLES = {
    "wide": WIDE,
    "crlf": WIDE.replace("\n", "\r\n"),
    "marked": f"%YAML 1.2\n---\n{WIDE}...\n",
    "no newline at the end": WIDE.rstrip("\n"),
    "modules last": (
        "version: 1\nprofiles:\n  default:\n    include_tags:\n    - base\n"
        "targets:\n  codex: {mode: files, scope: user, options: {}}\n"
        "modules:\n- {id: 'prompt:a', type: prompt, tags: [base],"
        " source: {local_path: {path: a.md}}}  # short\n# nothing follows\n"
    ),
    "no modules": (
        "version: 1\nmodules: []  # none yet\nprofiles: {default: {include_tags: [base]}}\n"
        "targets:\n  codex:\n    mode: files\n    scope: user\n    options:  # none\n"
    ),
    "modules missing": (
        "version: 1\nprofiles: {default: {include_tags: [base]}}\n"
        "targets:\n  codex: {mode: files, scope: user}\n"
    ),
    "on one line": (
        "{version: 1, profiles: {default: {include_tags: [base]}},"
        " targets: {codex: {mode: files, scope: user}}, modules: []}\n"
    ),
}
NEW = ModuleEntry(
    id="prompt:new",
    type="prompt",
    tags=["base", "imported"],
    output="a b/ü: #.md",
    source=SourceEntry(local_path=LocalEntry("new.md")),
)
EDIT = ManifestEdit(
    {
        ("targets", "codex", "scope"): "both",
        ("targets", "codex", "options", "write_user_skills"): False,
        ("targets", "gemini"): {"mode": "files", "scope": "user", "options": {"on": True}},
        ("profiles", "default", "include_modules"): ["prompt:new"],
        ("profiles", "project-1"): {"include_tags": ["base", "x"], "project": "1"},
    },
    [NEW],
)


@pytest.mark.parametrize("style", STYLES)
def test_every_line_that_is_not_concerned_stays(style: str) -> None:
    text = STYLES[style]
    after = edited(text, EDIT)
    found, before = yaml12.load(after), yaml12.load(text)
    assert found["targets"]["codex"]["scope"] == "both"
    assert found["targets"]["codex"]["options"]["write_user_skills"] is False
    assert found["targets"]["gemini"]["options"] == {"on": True}
    assert found["profiles"]["default"]["include_modules"] == ["prompt:new"]
    assert found["profiles"]["project-1"]["include_tags"] == ["base", "x"]
    assert found["modules"][:-1] == (before.get("modules") or [])
    assert found["modules"][-1]["output"] == "a b/ü: #.md"
    shared = SequenceMatcher(None, text.splitlines(), after.splitlines(), autojunk=False)
    lost = len(text.splitlines()) - sum(block.size for block in shared.get_matching_blocks())
    # Only lines that are written anew may differ.
    assert lost <= 3 or style == "on one line", after
    if "\r\n" in text:
        assert after.count("\n") == after.count("\r\n")
    for comment in ("# my pack", "# in between", "# after the modules", "# the end", "# short"):
        assert (comment in after) is (comment in text)


def test_comments_stay_beside_what_they_are_about() -> None:
    lines = edited(WIDE, ManifestEdit({}, [NEW])).splitlines()
    before, after = lines.index("              path: b.md"), lines.index("# after the modules")
    assert before < lines.index("    - id: prompt:new") < after


@pytest.mark.parametrize("style", ["wide", "crlf"])
def test_a_module_is_taken_out_with_its_own_lines_only(style: str) -> None:
    lines = STYLES[style].splitlines()
    first, last = lines.index("    - id: 'prompt:b'"), lines.index("      tags: *tags")
    after = edited(STYLES[style], ManifestEdit({}, removed=frozenset({"prompt:b"})))
    assert after.splitlines() == lines[:first] + lines[last + 1 :]


def test_the_only_module_is_taken_out() -> None:
    text = STYLES["modules last"]
    after = edited(text, ManifestEdit({}, removed=frozenset({"prompt:a"})))
    kept = [line for line in text.splitlines() if "prompt:a" not in line]
    assert after.splitlines() == [{"modules:": "modules: []"}.get(line, line) for line in kept]


def test_an_anchor_that_goes_is_written_where_it_was_used() -> None:
    after = edited(WIDE, ManifestEdit({}, removed=frozenset({"prompt:a"})))
    (module,) = yaml12.load(after)["modules"]
    assert module["id"] == "prompt:b" and module["tags"] == ["base"]


def test_lists_grow_as_they_are_written() -> None:
    block = WIDE.replace(
        "default: {include_tags: [base]}",
        "default:\n        include_tags: [base]\n        include_modules:\n        - 'x:y'  # one",
    )
    edit = ManifestEdit({("profiles", "default", "include_modules"): ["x:y", "prompt:new"]})
    after = edited(block, edit)
    assert "        - 'x:y'  # one\n        - prompt:new\n" in after
    inline = block.replace("include_modules:\n        - 'x:y'  # one", "include_modules: ['x:y']")
    assert "include_modules: ['x:y', prompt:new]" in edited(inline, edit)
