"""Lockfiles, logins and the registry list: written whole, locked, never by guesswork."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.listing import Lockfile
from fleet_agentpack.forge.names import Directories, Reference, Registry, writing_below
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.forge.setup import check_url, put_registry, remove_registry
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.secret import Secret
from tests.forge.conftest import MemoryVault
from tests.forge.tree import agent, tool, write

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def project(forge: ForgeService, work: Path, home: Path) -> ForgeService:
    write(
        work / ".fractary",
        {
            "agents/one.yaml": agent("one", tools="hammer, 'nail@^1.0.0'"),
            "tools/hammer.yaml": tool("hammer"),
            "workflows/deep/flow.yaml": "steps:\n  - agent: shared\n",
        },
    )
    write(
        home / ".fractary/registry",
        {
            "tools/nail@1.2.0/tool.yaml": tool("nail", version="1.2.0"),
            "agents/shared.yaml": agent("shared", version="3.0.0"),
        },
    )
    return forge


def lockfile_of(forge: ForgeService) -> Lockfile:
    workspace = forge.workspace()
    return Lockfile(workspace.configuration, workspace.resolver)


def test_the_lockfile_has_everything_used_in_the_originals_format(project: ForgeService) -> None:
    lockfile = lockfile_of(project)
    assert lockfile.write(NOW).agents == 2
    data = json.loads(lockfile.path.read_text())
    assert (data["version"], data["generated"]) == (1, "2026-01-02T00:00:00.000Z")
    assert list(data["agents"]) == ["one", "shared"]
    assert data["tools"]["nail"]["version"] == "1.2.0"
    assert data["tools"]["nail"]["resolved"] == "global"
    assert data["agents"]["one"]["dependencies"] == {
        "tools": {"hammer": "latest", "nail": "^1.0.0"}
    }
    for entry in (*data["agents"].values(), *data["tools"].values()):
        assert entry["integrity"].startswith("sha256-")
        assert len(entry["integrity"]) == 71
    assert lockfile.check().valid


def test_a_changed_and_a_missing_definition_are_told(project: ForgeService, work: Path) -> None:
    lockfile_of(project).write(NOW)
    write(work, {".fractary/agents/one.yaml": agent("one", description="Changed", tools="hammer")})
    (work / ".fractary/tools/hammer.yaml").unlink()
    problems = {each.name: each.problem for each in lockfile_of(project).check().problems}
    assert problems == {"one": "integrity_mismatch", "hammer": "missing"}


def test_integrity_does_not_depend_on_the_order_of_keys(project: ForgeService, work: Path) -> None:
    resolver = project.workspace().resolver
    one = resolver.find("tool", Reference("hammer")).definition
    assert one is not None
    lines = tool("hammer").splitlines(keepends=True)
    write(work, {".fractary/tools/turned.yaml": "".join([*lines[1:6], lines[0], *lines[6:]])})
    other = resolver.find("tool", Reference("turned")).definition
    assert other is not None
    lockfile = lockfile_of(project)
    assert lockfile.integrity(one) == lockfile.integrity(other)


def test_a_missing_dependency_stops_the_lock(project: ForgeService, work: Path) -> None:
    (work / ".fractary/tools/hammer.yaml").unlink()
    with pytest.raises(ForgeError) as caught:
        lockfile_of(project).write(NOW)
    assert caught.value.code == "DEPENDENCY_ERROR"
    assert not lockfile_of(project).path.exists()


@pytest.mark.parametrize("text", ["{broken", '{"version": 2}', "[]"])
def test_an_unknown_lockfile_is_left_alone_unless_forced(project: ForgeService, text: str) -> None:
    path = lockfile_of(project).path
    write(path.parent, {path.name: text})
    with pytest.raises(ForgeError) as caught:
        lockfile_of(project).write(NOW)
    assert caught.value.code == "CONFIG_ERROR"
    assert path.read_text() == text
    lockfile_of(project).write(NOW, force=True)
    assert lockfile_of(project).check().valid


def test_checking_without_a_lockfile_says_how_to_make_one(forge: ForgeService) -> None:
    with pytest.raises(ForgeError, match="forge lock"):
        lockfile_of(forge).check()


def add_registry(
    directories: Directories, name: str, url: str, *, for_user: bool = False, **more: Any
) -> None:
    registry = Registry(name, url, more.pop("priority", 10), **more)
    check_url(registry)
    put_registry(directories, registry, for_user=for_user)


def test_many_writers_lose_no_registry(forge: ForgeService, work: Path) -> None:
    def add(n: int) -> None:
        add_registry(forge.directories, f"r{n}", f"https://r{n}.example.test/r.json")

    write(work, {".fractary/config.json": {"install": {"default_scope": "local"}, "mine": [1]}})
    threads = [threading.Thread(target=add, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data = json.loads((work / ".fractary/config.json").read_text())
    assert len(data["registries"]) == 12
    assert (data["install"], data["mine"]) == ({"default_scope": "local"}, [1])
    remove_registry(forge.directories, "r3")
    assert len(forge.registry_list().registries) == 11


def test_the_users_file_and_a_named_file_are_edited(
    forge: ForgeService, make: Callable[..., ForgeService], home: Path, work: Path
) -> None:
    add_registry(forge.directories, "u", "file:///r.json", for_user=True)
    assert (home / ".fractary/config.json").is_file()
    named = make(FRACTARY_CONFIG="own.json")
    add_registry(named.directories, "o", "https://o.example.test/r.json", token_env="O_TOKEN")
    assert json.loads((work / "own.json").read_text())["registries"][0]["auth"] == {
        "type": "bearer",
        "token_env": "O_TOKEN",
    }
    with pytest.raises(ForgeError, match="JSON files only"):
        add_registry(make(FRACTARY_CONFIG="own.yaml").directories, "x", "https://x.test/r.json")


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("https://r.example.test/r.json?token=abc", {}),
        ("https://me:pw@r.example.test/r.json", {}),
        ("https://r.example.test/r.json", {"priority": -1}),
        ("https://r.example.test/r.json", {"token_env": "ghp-not a name"}),
        ("http://r.example.test/r.json", {}),
    ],
)
def test_a_registry_that_would_not_work_or_not_be_safe_is_not_written(
    forge: ForgeService, work: Path, url: str, more: dict[str, Any]
) -> None:
    with pytest.raises(ForgeError) as caught:
        add_registry(forge.directories, "r", url, **more)
    assert caught.value.code == "VALIDATION_ERROR"
    assert not (work / ".fractary").exists()


def test_a_configuration_that_is_a_link_stays_one(
    forge: ForgeService, home: Path, tmp_path: Path
) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text("{}")
    link = home / ".fractary/config.json"
    link.parent.mkdir()
    link.symlink_to(target)
    add_registry(forge.directories, "u", "file:///r.json", for_user=True)
    assert link.is_symlink()
    assert json.loads(target.read_text())["registries"][0]["name"] == "u"


def test_a_lock_that_somebody_holds_is_a_conflict(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "fleet_agentpack.forge.names.file_lock", lambda path: file_lock(path, timeout_s=0.05)
    )
    root = work / ".fractary"
    with writing_below(root), pytest.raises(ForgeError) as caught, writing_below(root):
        pass
    assert caught.value.code == "CONFLICT_ERROR"


def test_an_unwritable_place_is_denied(work: Path) -> None:
    (work / ".fractary").write_text("a file, not a directory")
    with pytest.raises(ForgeError) as caught, writing_below(work / ".fractary"):
        pass
    assert caught.value.code == "PERMISSION_DENIED"


def test_a_login_in_the_keyring_leaves_no_token_on_disk(
    make: Callable[..., ForgeService], home: Path, configure: Callable[..., None]
) -> None:
    vault = MemoryVault()
    forge = make(vault=vault)
    configure({"name": "shop", "url": "https://shop.example.test/r.json"})
    credentials = forge.workspace().credentials
    assert credentials.store("shop", Secret("s3cret"), NOW) == "keyring"
    assert vault.kept == {"shop": "s3cret"}
    assert "s3cret" not in credentials.path.read_text()
    registry = forge.workspace().configuration.registries[0]
    assert credentials.is_authenticated(registry)
    assert credentials.headers(registry, registry.url) == {"Authorization": "Bearer s3cret"}
    assert credentials.forget("shop", NOW)
    assert vault.kept == {}
    assert not credentials.is_authenticated(registry)


def test_other_logins_survive_and_a_broken_file_is_left_alone(
    forge: ForgeService, home: Path
) -> None:
    path = home / ".fractary/auth/credentials.json"
    login = {"type": "basic", "username": "u", "password": "p"}
    write(path.parent, {path.name: {"version": "1.0.0", "registries": {"old": login}, "x": 1}})
    credentials = forge.workspace().credentials
    credentials.store("new", Secret("t"), NOW)
    data = json.loads(path.read_text())
    assert data["registries"]["old"] == login
    assert data["x"] == 1
    path.write_text("{broken")
    with pytest.raises(ForgeError):
        credentials.store("new", Secret("t"), NOW)
    with pytest.raises(ForgeError):
        credentials.forget("old", NOW)
    assert path.read_text() == "{broken"
