"""Modules from git and from disk, their overlays and patches, the lockfile."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import HashCache
from fleet_agentpack.deploy.model import module_fs_key
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.trees import list_files, tree_hash
from fleet_agentpack.kit.results import jsonable
from tests.deploy.lab import CODEX, SKILL, Lab, tree

BASE = "instructions_base--d39861fff1"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.targets = {"codex": {**CODEX, "scope": "user"}}
    lab.instructions("base", "one\ntwo\nthree\n")
    return lab


def deployed(lab: Lab) -> str:
    lab.deploy()
    return (lab.user / ".codex/AGENTS.md").read_text()


def refusal(lab: Lab) -> DeployError:
    with pytest.raises(DeployError) as raised:
        lab.plan()
    return raised.value


def test_keys() -> None:
    assert module_fs_key("skill:my-skill") == "skill_my-skill--28c1b196c1"
    assert module_fs_key("") == "module--e3b0c44298"
    assert module_fs_key("a" * 300) == "a" * 64 + "--9835fa6bf4"
    assert module_fs_key("a" * 300, bounded=False).startswith("a" * 300)


def test_layers_from_low_to_high(lab: Lab) -> None:
    lab.targets = {"codex": {**CODEX, "scope": "project"}}
    lab.save()
    places = [
        f"overlays/{BASE}",
        f"overlays/machines/test-machine/{BASE}",
        f"projects/ae2752b5775071e2/overlays/{BASE}",
    ]
    for number, place in enumerate(places):
        lab.source(f"{place}/AGENTS.md", f"layer {number}\n")
        lab.source(f"{place}/.agentpack/module_id", "instructions:base\n")
        lab.deploy()
        assert (lab.project / "AGENTS.md").read_text() == f"layer {number}\n"
    other = lab.service().plan(Request(machine="another"))
    assert other.data.changes == []  # the project's layer is above the machine's
    assert not list(lab.project.rglob(".agentpack"))


@pytest.mark.parametrize("name", [BASE, "instructions:base"])
def test_an_overlay_is_found_by_key_or_by_plain_id(lab: Lab, name: str) -> None:
    lab.source(f"overlays/{name}/AGENTS.md", "laid over\n")
    assert deployed(lab) == "laid over\n"


PATCH = "--- a/AGENTS.md\n+++ b/AGENTS.md\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"


def patch(lab: Lab, text: str = PATCH, name: str = "AGENTS.md.patch") -> None:
    lab.source(f"overlays/{BASE}/.agentpack/overlay.json", '{"overlay_kind": "patch"}')
    lab.source(f"overlays/{BASE}/.agentpack/patches/{name}", text)


def test_a_patch_changes_its_file(lab: Lab) -> None:
    patch(lab)
    assert deployed(lab) == "one\nTWO\nthree\n"


def test_a_patch_that_does_not_apply(lab: Lab) -> None:
    patch(lab)
    lab.source("modules/instructions/base/AGENTS.md", "something else\n")
    error = refusal(lab)
    assert error.code == "E_OVERLAY_PATCH_APPLY_FAILED"
    assert error.details["module_id"] == "instructions:base"
    assert error.details["scope"] == "global" and error.details["relpath"] == "AGENTS.md"
    assert error.details["next_actions"] == [
        "regenerate_patch",
        "switch_to_dir_overlay",
        "retry_command",
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (PATCH, "other.md.patch"),
        (PATCH.replace("a/AGENTS.md", "/dev/null"), "AGENTS.md.patch"),
        (PATCH.replace("b/AGENTS.md", "b/../x"), "AGENTS.md.patch"),
        (PATCH + PATCH, "AGENTS.md.patch"),
        ("GIT binary patch\n" + PATCH, "AGENTS.md.patch"),
        ("no headers\n", "AGENTS.md.patch"),
    ],
)
def test_patches_that_are_refused(lab: Lab, text: str, name: str) -> None:
    patch(lab, text, name)
    assert refusal(lab).code == "E_CONFIG_INVALID"


def test_the_layout_of_an_overlay(lab: Lab) -> None:
    patch(lab)
    lab.source(f"overlays/{BASE}/AGENTS.md", "both kinds\n")
    error = refusal(lab)
    assert error.code == "E_CONFIG_INVALID"
    assert error.details["override_files"] == ["AGENTS.md"]
    assert error.details["patch_files"] == ["AGENTS.md.patch"]
    (lab.repo / f"overlays/{BASE}/AGENTS.md").unlink()
    lab.source(f"overlays/{BASE}/.agentpack/overlay.json", "{")
    assert "meta_path" in refusal(lab).details
    lab.source(f"overlays/{BASE}/.agentpack/overlay.json", '{"overlay_kind": "dir"}')
    assert refusal(lab).code == "E_CONFIG_INVALID"


def test_overlay_drift_is_named_once(lab: Lab) -> None:
    lab.source(f"overlays/{BASE}/AGENTS.md", "mine\n")
    upstream = lab.repo / "modules/instructions/base"
    listed = list_files(str(upstream), HashCache(None), (str(upstream),))
    baseline = {
        "version": 2,
        "created_at": "2026-01-01T00:00:00Z",
        "upstream_sha256": tree_hash(listed),
        "file_manifest": [vars(entry) for entry in listed],
    }
    lab.source(f"overlays/{BASE}/.agentpack/baseline.json", json.dumps(baseline))
    assert lab.service().plan(Request()).warnings == ()
    lab.source("modules/instructions/base/AGENTS.md", "moved on\n")
    (warning,) = lab.service().plan(Request()).warnings
    assert "overlay drift (global) module instructions:base" in warning and "AGENTS.md" in warning


def test_doctor_names_odd_overlay_layouts(lab: Lab) -> None:
    lab.source(f"overlays/{BASE}/AGENTS.md", "a\n")
    lab.source("overlays/instructions:base/AGENTS.md", "b\n")
    lab.source(f"overlays/{BASE}/.agentpack/module_id", "other\n")
    warnings = lab.service().doctor(Request()).warnings
    assert any(
        text.startswith("overlay layout (global) module instructions:base") for text in warnings
    )
    assert any("names another module, other" in text for text in warnings)


def test_tree_hashes(tmp_path: Path) -> None:
    def hash_of(files: dict[str, str]) -> str:
        top = tmp_path / hashlib.sha256(repr(files).encode()).hexdigest()[:8]
        for name, text in files.items():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(text)
        return tree_hash(list_files(str(top), HashCache(None), (str(top),)))

    rule = {"rule.txt": "deny: example\n"}
    expected = "db1789261d917b6b01fc77f8b2414fc2c00579c5d272180ae03dbb57cafec7bd"
    assert hash_of(rule) == expected
    assert hash_of({**rule, ".git/config": "x"}) == expected
    assert hash_of({**rule, ".agentpack/x": "x"}) != expected
    two = "0103dd9b217ff85e925d0c38b466749fca8dbfc1944bb44d819327f578f3d110"
    assert hash_of({"a.txt": "a", "dir/b.txt": "b"}) == two


@pytest.fixture
def remote(lab: Lab) -> Path:
    """A git repository with a skill on a branch and a tag."""
    top = lab.root / "remote"
    top.mkdir()
    lab.git("init", "--quiet", "--initial-branch=main", cwd=top)
    commit(lab, top, "v1\n")
    lab.git("tag", "-a", "-m", "first", "v1", cwd=top)
    return top


def commit(lab: Lab, top: Path, text: str) -> str:
    (top / "skill").mkdir(exist_ok=True)
    (top / "skill/SKILL.md").write_text(SKILL.format(name="remote"))
    (top / "skill/data.txt").write_text(text)
    lab.git("add", "-A", cwd=top)
    lab.git("commit", "--quiet", "-m", "change", cwd=top)
    return lab.git("rev-parse", "HEAD", cwd=top)


def from_git(lab: Lab, remote: Path, **more: object) -> None:
    source = {"git": {"url": f"file://{remote}", "subdir": "skill", **more}}
    lab.module("skill", "remote", "", source=source)


def data(lab: Lab) -> str:
    lab.deploy()
    return (lab.user / ".codex/skills/remote/data.txt").read_text()


@pytest.mark.parametrize("shallow", [True, False])
def test_a_git_module_stays_where_it_is_locked(lab: Lab, remote: Path, shallow: bool) -> None:
    from_git(lab, remote, shallow=shallow)
    lab.service().upkeep.lock(Request())
    assert data(lab) == "v1\n"
    head = commit(lab, remote, "v2\n")
    assert data(lab) == "v1\n"
    locked = lab.service().upkeep.lock(Request()).data
    assert data(lab) == "v2\n"
    assert locked.modules == 2
    document = json.loads((lab.repo / "agentpack.lock.json").read_text())
    assert [row["id"] for row in document["modules"]] == ["instructions:base", "skill:remote"]
    entry = document["modules"][1]
    assert entry["resolved_source"] == {
        "local_path": None,
        "git": {"url": f"file://{remote}", "commit": head, "subdir": "skill", "ref": "main"},
    }
    assert entry["resolved_version"] == head
    assert document["modules"][0]["resolved_version"] == "local"
    commit(lab, remote, "v3\n")
    assert data(lab) == "v2\n"


def test_a_tag_is_peeled_and_the_checkout_is_kept_by_url_and_commit(lab: Lab, remote: Path) -> None:
    first = lab.git("rev-parse", "HEAD", cwd=remote)
    commit(lab, remote, "v2\n")
    from_git(lab, remote, ref="v1")
    lab.service().upkeep.update(Request())
    assert data(lab) == "v1\n"
    key = hashlib.sha256(f"file://{remote}".encode()).hexdigest()
    assert (lab.home_dir / "cache/git" / key / first / "skill/SKILL.md").exists()
    assert not list((lab.home_dir / "cache/git" / key).glob("*.tmp"))


def test_a_missing_locked_checkout_is_fetched(lab: Lab, remote: Path) -> None:
    import shutil

    from_git(lab, remote)
    lab.service().upkeep.update(Request())
    commit(lab, remote, "v2\n")
    shutil.rmtree(lab.home_dir / "cache/git")
    assert data(lab) == "v1\n"


def test_update_locks_once_then_only_fetches(lab: Lab, remote: Path) -> None:
    from_git(lab, remote)
    first = lab.service().upkeep.update(Request()).data
    store = str(lab.home_dir / "cache")
    assert first.store == store and jsonable(first.steps[-1]) == {
        "name": "fetch",
        "ok": True,
        "detail": {
            "git_modules_fetched": first.git_modules_fetched,
            "store": store,
            "store_posix": store,
        },
    }
    assert [step.name for step in first.steps] == ["lock", "fetch"]
    assert first.git_modules_fetched == 1
    before = (lab.repo / "agentpack.lock.json").read_bytes()
    second = lab.service().upkeep.update(Request()).data
    assert [step.name for step in second.steps] == ["fetch"]
    assert (lab.repo / "agentpack.lock.json").read_bytes() == before


def test_a_lockfile_that_was_changed_fits_no_checkout(lab: Lab, remote: Path) -> None:
    from_git(lab, remote)
    lab.service().upkeep.update(Request())
    file = lab.repo / "agentpack.lock.json"
    document = json.loads(file.read_text())
    document["modules"][1]["sha256"] = "0" * 64
    file.write_text(json.dumps(document))
    for act in (lab.service().upkeep.fetch, lab.service().plan):
        with pytest.raises(DeployError) as raised:
            act(Request())
        assert raised.value.details["reason_code"] == "store_content_mismatch"


def test_lockfile_codes(lab: Lab) -> None:
    def code() -> tuple[str, object]:
        with pytest.raises(DeployError) as raised:
            lab.service().upkeep.fetch(Request())
        return raised.value.code, raised.value.details["reason_code"]

    assert code() == ("E_LOCKFILE_MISSING", "lockfile_missing")
    lab.source("agentpack.lock.json", "{")
    assert code() == ("E_LOCKFILE_INVALID", "lockfile_invalid_json")
    lab.source("agentpack.lock.json", '{"version": 2, "modules": []}')
    assert code() == ("E_LOCKFILE_UNSUPPORTED_VERSION", "lockfile_unsupported_version")
    warnings = lab.service().plan(Request()).warnings
    assert any("git modules are not pinned" in text for text in warnings)


@pytest.mark.parametrize(
    "source",
    [
        {"url": "--upload-pack=touch /tmp/x"},
        {"url": "ext::sh -c true"},
        {"url": "x", "ref": "--exec=x"},
        {"url": "x", "subdir": "../.."},
        {"url": "x", "subdir": "a/../../b"},
        {"url": ""},
    ],
)
def test_git_sources_that_are_refused_before_git_sees_them(
    lab: Lab, source: dict[str, str]
) -> None:
    lab.module("skill", "bad", "", source={"git": source})
    before = tree(lab.home_dir)
    assert refusal(lab).code == "E_CONFIG_INVALID"
    assert tree(lab.home_dir) == before


def test_a_ref_that_is_not_there(lab: Lab, remote: Path) -> None:
    from_git(lab, remote, ref="nope")
    with pytest.raises(DeployError) as raised:
        lab.service().upkeep.update(Request())
    error = raised.value
    assert error.code == "E_UNEXPECTED" and error.message.startswith("ref not found: nope")


def test_without_git_local_modules_work_and_git_modules_say_so(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.targets = {"codex": CODEX}
    lab.instructions("base", "x\n")
    assert lab.plan().changes
    lab.module("skill", "remote", "", source={"git": {"url": "file:///nowhere"}})
    with pytest.raises(DeployError) as raised:
        lab.service().upkeep.update(Request())
    error = raised.value
    assert error.code == "E_GIT_NOT_FOUND"
    assert error.details["next_actions"] == ["install_git", "retry_command"]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"SKILL.md": "no front matter\n"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "---\nname: x\n---\n"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "---\nname: 3\ndescription: d\n---\n"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "---\nname: true\ndescription: d\n---\n"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "---\nname: ' '\ndescription: d\n---\n"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "---\nname: x\ndescription: a: b: c\n---\n"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "---\nname: x\nname: y\ndescription: d\n---\n"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "---\nname: x\ndescription: d\n"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "\n---\nname: x\ndescription: d\n---\n"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "--- \nname: x\ndescription: d\n---\n"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "---\n---\n"}, "E_CONFIG_INVALID"),
        ({"README.md": "x"}, "E_CONFIG_INVALID"),
        ({"SKILL.md": "---\r\nname: yes\r\ndescription: 2026-01-24\r\n---\r\n"}, None),
        ({"SKILL.md": "---\nname: x\ndescription: d\nmore: [1, {a: b}]\n---\n"}, None),
    ],
)
def test_skills_need_their_front_matter(lab: Lab, files: dict[str, str], code: str | None) -> None:
    for name, text in files.items():
        lab.write(f"agentpack/repo/modules/s/{name}", text.encode())
    lab.module("skill", "s", "modules/s")
    if code is None:
        lab.plan()
    else:
        error = refusal(lab)
        assert error.code == code and error.details["module_id"] == "skill:s"


@pytest.mark.parametrize(
    ("kind", "files", "good"),
    [
        ("prompt", {"a.md": "x", "b.md": "y"}, False),
        ("prompt", {"a.MD": "x"}, False),
        ("prompt", {"deep/a.md": "x"}, True),
        ("instructions", {"README.md": "x"}, False),
        ("command", {"a.md": "no front matter"}, False),
        ("command", {"a.md": "---\ndescription: d\n---\n!bash ls\n"}, False),
        ("command", {"a.md": "---\ndescription: d\nallowed-tools: Bash\n---\n!bash ls\n"}, False),
        ("command", {"a.md": "---\ndescription: d\nallowed-tools: [Bash(ls)]\n---\n!bash\n"}, True),
        ("command", {"a.md": "---\ndescription: d\n---\n!`bash ls`\n"}, True),
    ],
)
def test_other_types_have_their_shape(
    lab: Lab, kind: str, files: dict[str, str], good: bool
) -> None:
    if kind == "command":
        lab.targets = {"claude_code": CODEX}
    for name, text in files.items():
        lab.source(f"modules/m/{name}", text)
    lab.module(kind, "m", "modules/m")
    if good:
        lab.plan()
    else:
        assert refusal(lab).code == "E_UNEXPECTED"
