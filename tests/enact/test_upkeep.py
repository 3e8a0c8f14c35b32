"""Updates, what is known of a tool, lock files and shared toolsets, as people use them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.cli import run
from fleet_agentpack.enact.lock_file import LockFile
from fleet_agentpack.enact.permissions import Permissions
from fleet_agentpack.enact.service import EnactService
from tests.enact.fake_registry import FakeRegistry, Lie
from tests.enact.kit import (
    add_tool,
    configure,
    make_service,
    refused,
    snapshot,
    tool_bundle,
    use_directory,
)
from tests.enact.private_sigstore import GITHUB, instance, signed_form, statement

NAME, OTHER = "alice/hello", "alice/echo"
ALICE, BOB = "1+alice@users.noreply.github.com", "2+bob@users.noreply.github.com"


def quiet(_done: float, _total: float | None, _text: str) -> None:
    """Report nothing."""


def fleet(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run(words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def publish(registry: FakeRegistry, name: str, version: str, *emails: str, **fields: Any) -> str:
    """Publish a version that these people have signed."""
    bundle = tool_bundle(name, version, **fields)
    digest = registry.publish(name, version, bundle)
    for email in emails:
        payload = statement(name, version, signed_form(digest))
        registry.attest(name, version, email, instance().sign(payload, email=email, issuer=GITHUB))
    return digest


def trusting(home: Path, registry: FakeRegistry, *auditors: str, policy: str = "prompt") -> None:
    """A home whose user trusts these auditors."""
    (home / ".enact").mkdir(parents=True, exist_ok=True)
    root = instance().write_trusted_root(home / ".enact" / "root.json")
    section = {"policy": policy, "trusted_auditors": [*auditors], "trusted_root": str(root)}
    configure(home, trust=section, registry={"url": registry.url}, execution={"default": "local"})


@pytest.fixture
def signed(home: Path, registry: FakeRegistry) -> EnactService:
    """Two tools that alice signed, at 1.0.0."""
    trusting(home, registry, "github:alice", "github:bob")
    for name in (NAME, OTHER):
        publish(registry, name, "1.0.0", ALICE)
    return make_service(home)


# Versions


def test_outdated_lists_and_update_installs(
    signed: EnactService, registry: FakeRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (NAME, OTHER, "agentpack/csv/stats"):
        signed.install(name)
    assert fleet(capsys, "tool", "outdated")[:2] == (0, "Everything is up to date.\n")
    publish(registry, NAME, "1.2.0", ALICE)
    publish(registry, NAME, "2.0.0-rc.1", ALICE)
    status, out, _ = fleet(capsys, "tool", "outdated")
    assert status == 1 and out.splitlines()[1].split() == [NAME, "1.0.0", "1.2.0"]
    (row,) = json.loads(fleet(capsys, "tool", "outdated", NAME, "--json")[1])["tools"]
    assert row == {"name": NAME, "version": "1.0.0", "outdated": True, "latest": "1.2.0"}
    assert fleet(capsys, "tool", "update", OTHER)[1] == "Everything is up to date.\n"
    status, out, _ = fleet(capsys, "tool", "update")
    assert (status, out) == (0, f"✓ {NAME} 1.0.0 → 1.2.0\n")
    assert fleet(capsys, "tool", "update", "no/such")[0] == 1


def test_an_update_that_is_refused_leaves_the_others_alone_and_says_why(
    signed: EnactService, registry: FakeRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    signed.install(NAME)
    signed.install(OTHER)
    publish(registry, OTHER, "1.1.0", BOB)
    publish(registry, NAME, "1.1.0", ALICE)
    status, out, _ = fleet(capsys, "tool", "update")
    assert status == 1 and f"✓ {NAME} 1.0.0 → 1.1.0" in out
    assert f"✗ {OTHER}" in out and "--accept-signer github:bob" in out
    rows = json.loads(fleet(capsys, "tool", "update", "--json")[1])["tools"]
    assert [(each["state"], each.get("code")) for each in rows] == [
        ("refused", "SIGNER_CHANGED"),
        ("current", None),
    ]


def test_an_update_keeps_what_was_granted_and_no_more(
    signed: EnactService, registry: FakeRegistry, home: Path
) -> None:
    scripts = {"scripts": {"run": "cat hello.txt"}}
    publish(registry, NAME, "1.1.0", ALICE, **scripts, env={"KEY": {"description": "a key"}})
    signed.install(NAME)
    signed.grants.allow(NAME, Permissions(variables=("KEY",)))
    more = {"KEY": {"description": "a key"}, "TOKEN": {"description": "another"}}
    publish(registry, NAME, "1.2.0", ALICE, **scripts, env=more, **{"x-network": ["a.example"]})
    signed.upkeep.update([], quiet)
    found = make_service(home).upkeep.info(NAME)
    assert found.version == "1.2.0"
    assert found.granted == Permissions(variables=("KEY",))
    assert found.wanted.variables == ("KEY", "TOKEN") and found.wanted.network


def test_a_project_that_pins_the_same_version_takes_no_grant_away(
    signed: EnactService, registry: FakeRegistry, home: Path
) -> None:
    scripts = {"scripts": {"run": "cat hello.txt"}}
    publish(registry, NAME, "1.1.0", ALICE, **scripts, env={"KEY": {"description": "a key"}})
    signed.install(NAME)
    signed.grants.allow(NAME, Permissions(variables=("KEY",)))
    signed.install(NAME, project=True)
    assert make_service(home).grants.of(NAME).granted.variables == ("KEY",)


def test_a_withdrawn_version_is_named_and_updated(
    signed: EnactService, registry: FakeRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    signed.install(NAME)
    registry.withdraw(NAME, "1.0.0", "it leaks keys")
    out = fleet(capsys, "tool", "outdated")[1]
    assert "1.0.0 was withdrawn" in out
    status, out, _ = fleet(capsys, "tool", "update")
    assert status == 1 and "1.0.0 was withdrawn" in out
    publish(registry, NAME, "1.0.1", ALICE)
    assert fleet(capsys, "tool", "update")[0] == 0


def test_info_tells_what_is_known(
    signed: EnactService, registry: FakeRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    signed.install(NAME)
    publish(registry, NAME, "1.10.0", ALICE)
    publish(registry, NAME, "1.9.0", ALICE)
    status, out, _ = fleet(capsys, "tool", "info", NAME)
    assert status == 0
    assert "Versions: 1.10.0, 1.9.0, 1.0.0" in out and f"Signed by: {ALICE}" in out
    assert "Last checked: " in out and "It asks for nothing." in out
    found = json.loads(fleet(capsys, "tool", "info", NAME, "--json")[1])
    assert found["audit"]["state"] == "ok" and found["digest"].startswith("sha256:")
    assert {"wanted", "granted", "bounds"} < set(found)
    registry.lies[f"/tools/{NAME}"] = Lie(503)
    status, out, err = fleet(capsys, "tool", "info", NAME)
    assert status == 0 and "other versions are not known" in err and "Versions" not in out


# Lock files


@pytest.fixture
def locked(signed: EnactService, home: Path) -> Path:
    """A project with a lock file of two tools."""
    signed.install(NAME, project=True)
    signed.install(OTHER, project=True)
    signed.upkeep.lock()
    return home / "work"


def elsewhere(locked: Path, tmp_path: Path, registry: FakeRegistry) -> Path:
    """The project on another machine: an empty home, the committed files and nothing else."""
    home = tmp_path / "elsewhere"
    (home / "work").mkdir(parents=True)
    shutil.copytree(locked / ".enact", home / "work/.enact")
    trusting(home, registry, "github:alice", "github:bob")
    return home


def test_a_lock_file_installs_the_same_bytes_on_another_machine(
    locked: Path, home: Path, tmp_path: Path, registry: FakeRegistry
) -> None:
    for name in (NAME, OTHER):
        publish(registry, name, "1.1.0", ALICE)  # newer ones make no difference
    there = elsewhere(locked, tmp_path, registry)
    service = make_service(there)
    done = service.upkeep.install_project(quiet)
    assert done.message.splitlines() == [f"Installed {OTHER}@1.0.0", f"Installed {NAME}@1.0.0"]
    assert snapshot(there / ".enact/tools") == snapshot(home / ".enact/tools")
    assert snapshot(there / "work/.enact") == snapshot(locked / ".enact")
    assert service.run(NAME).output == f"hello from {NAME}\n"


def test_a_lock_file_says_names_versions_digests_and_signers(
    locked: Path, registry: FakeRegistry, capsys: pytest.CaptureFixture[str], signed: EnactService
) -> None:
    data = json.loads((locked / ".enact/tools.lock.json").read_text())
    row = data["tools"][NAME]
    assert data["lockfile_version"] == 1 and [*data["tools"]] == [OTHER, NAME]
    assert row["version"] == "1.0.0" and row["digest"].startswith("sha256:")
    assert row["signers"] == [{"issuer": GITHUB, "identity": ALICE, "kind": "email"}]
    before = (locked / ".enact/tools.lock.json").read_bytes()
    signed.upkeep.lock()
    assert (locked / ".enact/tools.lock.json").read_bytes() == before


def tampered(registry: FakeRegistry, _: Path) -> None:
    registry.attestations.pop(f"{NAME}@1.0.0")
    publish(registry, NAME, "1.0.0", ALICE, scripts={"run": "echo other bytes"})


def another_signer(registry: FakeRegistry, _: Path) -> None:
    registry.attestations.pop(f"{NAME}@1.0.0")
    publish(registry, NAME, "1.0.0", BOB)


def missing(registry: FakeRegistry, _: Path) -> None:
    registry.bundles[NAME]["2.0.0"] = registry.bundles[NAME].pop("1.0.0")


def withdrawn(registry: FakeRegistry, _: Path) -> None:
    registry.withdraw(NAME, "1.0.0", "it leaks keys")


def offline(registry: FakeRegistry, there: Path) -> None:
    config = there / ".enact/config.yaml"
    config.write_text(config.read_text().replace(registry.url, "http://127.0.0.1:9"))


def nobody_trusted(registry: FakeRegistry, there: Path) -> None:
    trusting(there, registry, "github:bob")


def pinned_otherwise(_: FakeRegistry, there: Path) -> None:
    path = there / "work/.enact/tools.json"
    path.write_text(path.read_text().replace('"1.0.0"', '"1.1.0"'))


def not_locked(_: FakeRegistry, there: Path) -> None:
    path = there / "work/.enact/tools.json"
    path.write_text(json.dumps({"tools": {"eve/tool": "1.0.0"}}))


REFUSALS: dict[Callable[[FakeRegistry, Path], None], tuple[str, str]] = {
    tampered: ("LOCK_MISMATCH", "its digest: sha256:"),
    another_signer: ("LOCK_MISMATCH", "its signers: github:alice then, github:bob now"),
    missing: ("VERSION_NOT_FOUND", f"{NAME} has no version 1.0.0"),
    withdrawn: ("VERSION_YANKED", "it leaks keys"),
    offline: ("REGISTRY_UNAVAILABLE", "cannot be reached"),
    nobody_trusted: ("TRUST_REFUSED", "not trusted"),
    pinned_otherwise: ("LOCK_MISMATCH", "@1.1.0, and its lock file has"),
    not_locked: ("LOCK_MISMATCH", "does not have eve/tool"),
}


@pytest.mark.parametrize("change", REFUSALS, ids=lambda each: each.__name__)
def test_what_is_not_as_it_was_locked_is_refused_and_named(
    locked: Path,
    tmp_path: Path,
    registry: FakeRegistry,
    change: Callable[[FakeRegistry, Path], None],
) -> None:
    there = elsewhere(locked, tmp_path, registry)
    change(registry, there)
    before = snapshot(there / "work")
    code, words = REFUSALS[change]
    with refused(code) as refusal:
        make_service(there).upkeep.install_project(quiet)
    assert words in refusal.error.message
    assert not (there / ".enact/tools").exists()  # not even the tool that was in order
    assert snapshot(there / "work") == before


def test_what_is_installed_already_needs_no_registry(
    locked: Path, tmp_path: Path, registry: FakeRegistry
) -> None:
    there = elsewhere(locked, tmp_path, registry)
    make_service(there).upkeep.install_project(quiet)
    offline(registry, there)
    assert make_service(there).upkeep.install_project(quiet).success
    (there / ".enact/tools" / NAME / "1.0.0/hello.txt").write_text("changed")
    with refused("REGISTRY_UNAVAILABLE"):
        make_service(there).upkeep.install_project(quiet)


def test_a_lock_file_lets_nothing_in(locked: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    digest = publish(registry, NAME, "6.6.6")  # signed by nobody
    there = elsewhere(locked, tmp_path, registry)
    row = {"version": "6.6.6", "digest": f"sha256:{digest}", "signers": []}
    lock = {"lockfile_version": 1, "tools": {NAME: row}}
    (there / "work/.enact/tools.lock.json").write_text(json.dumps(lock))
    (there / "work/.enact/tools.json").write_text("{}")
    with refused("TRUST_REFUSED"):
        make_service(there).upkeep.install_project(quiet)


def test_under_allow_without_auditors_the_bytes_are_compared_and_a_warning_says_so(
    locked: Path, tmp_path: Path, registry: FakeRegistry
) -> None:
    there = elsewhere(locked, tmp_path, registry)
    trusting(there, registry, policy="allow")
    done = make_service(there).upkeep.install_project(quiet)
    assert "signers were not compared" in str(done.warnings)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"lockfile_version": 2, "tools": {}}',
        '{"lockfile_version": 1, "tools": []}',
        '{"lockfile_version": 1, "tools": {"../x": {}}}',
        '{"lockfile_version": 1, "tools": {"a/b": 1}}',
        '{"lockfile_version": 1, "tools": {"a/b": {"version": "../1", "digest": "sha256:0"}}}',
        '{"lockfile_version": 1, "tools": {"a/b": {"version": "1.0.0", "digest": "sha256:0"}}}',
    ],
)
def test_a_lock_file_that_makes_no_sense_is_reported_and_left_alone(
    signed: EnactService, home: Path, text: str
) -> None:
    path = home / "work/.enact/tools.lock.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    try:
        LockFile.read(path)
    except Exception as error:  # noqa: BLE001 - either code will do
        assert getattr(error, "code", "") in ("LOCK_INVALID", "STORE_CORRUPT")
    else:
        raise AssertionError(text)
    with pytest.raises(Exception, match=str(path)):
        signed.upkeep.install_project(quiet)
    assert path.read_text() == text


def test_the_lock_file_follows_what_the_project_installs_and_removes(
    locked: Path, registry: FakeRegistry, home: Path
) -> None:
    publish(registry, NAME, "1.1.0", ALICE)
    service = make_service(home)
    service.install(NAME, project=True)
    service.uninstall(OTHER, project=True)
    lock = LockFile.read(locked / ".enact/tools.lock.json")
    assert lock is not None and {n: t.version for n, t in lock.tools.items()} == {NAME: "1.1.0"}
    assert service.run(NAME).exit_code == 0
    assert service.upkeep.install_project(quiet).success


def test_a_run_in_a_project_uses_the_version_that_it_pins(
    locked: Path, registry: FakeRegistry, home: Path
) -> None:
    scripts = {"scripts": {"run": "echo newer"}}
    publish(registry, NAME, "2.0.0", ALICE, **scripts)
    service = make_service(home)
    service.install(NAME)
    assert service.run(NAME).output == f"hello from {NAME}\n"
    assert service.run(f"{NAME}@2.0.0").output == "newer\n"
    (locked / ".enact/tools.json").write_text("{")  # a repository stops nothing
    assert service.run(NAME).output == "newer\n"
    pins = json.dumps({"tools": {NAME: "2.0.0", OTHER: "9.9.9"}})
    (locked / ".enact/tools.json").write_text(pins)  # nor chooses what was not installed for it
    assert service.run(NAME).output == "newer\n"


def test_lock_and_install_at_the_command_line(
    capsys: pytest.CaptureFixture[str], home: Path, work: Path
) -> None:
    add_tool(home / "registry", NAME)
    use_directory(home, home / "registry", execution={"default": "local"})
    fleet(capsys, "tool", "install", NAME)
    status, out, _ = fleet(capsys, "tool", "lock")
    assert status == 0 and out.startswith("✓ Locked 1 tool in ")
    assert json.loads(fleet(capsys, "tool", "lock", "--json")[1])["tools"][NAME]["signers"] == []
    (home / "registry" / NAME / "1.0.0/hello.txt").write_text("other bytes")
    fleet(capsys, "tool", "uninstall", NAME)
    status, _, err = fleet(capsys, "tool", "install", "--project")
    assert status == 1 and "its digest: sha256:" in err
    (home / "registry" / NAME / "1.0.0/hello.txt").write_text(f"hello from {NAME}\n")
    assert fleet(capsys, "tool", "install", "--project")[:2] == (0, f"✓ Installed {NAME}@1.0.0\n")
    assert fleet(capsys, "tool", "run", NAME)[1] == f"hello from {NAME}\n"


def test_a_tool_that_must_not_run_is_not_locked(
    locked: Path, home: Path, registry: FakeRegistry
) -> None:
    (home / ".enact/tools" / NAME / "1.0.0/hello.txt").write_text("changed")
    before = (locked / ".enact/tools.lock.json").read_bytes()
    with refused("TOOL_CHANGED"):
        make_service(home).upkeep.lock()
    assert (locked / ".enact/tools.lock.json").read_bytes() == before


# Toolsets


def test_a_toolset_travels_to_another_machine(
    signed: EnactService,
    registry: FakeRegistry,
    tmp_path: Path,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    signed.install(NAME)
    signed.install(OTHER)
    signed.toolsets.create("daily")
    status, out, _ = fleet(capsys, "mcp", "toolset", "export", "daily")
    assert status == 0 and json.loads(out)["toolset"] == "daily"
    file = tmp_path / "daily.json"
    assert fleet(capsys, "mcp", "toolset", "export", "daily", str(file))[0] == 0
    assert file.read_text() == out
    there = tmp_path / "elsewhere"
    trusting(there, registry, "github:alice")
    service = make_service(there)
    service.install(OTHER)
    publish(registry, NAME, "1.1.0", ALICE)
    changed = service.upkeep.import_toolset(str(file), None, quiet)
    assert changed.message == "Created daily with 2 tools"
    (made,) = service.toolsets.list()
    assert set(made.tools) == {NAME, OTHER}
    assert service.store.tools().tools[NAME] == "1.0.0"  # exactly as it was exported
    with refused("TOOLSET_EXISTS"):
        service.upkeep.import_toolset(str(file), None, quiet)
    assert service.upkeep.import_toolset(str(file), "nightly", quiet).toolset == "nightly"


def test_a_toolset_whose_tools_are_not_to_be_had_is_not_made(
    signed: EnactService, registry: FakeRegistry, tmp_path: Path
) -> None:
    signed.install(NAME)
    signed.toolsets.create("daily")
    file = tmp_path / "daily.json"
    file.write_bytes(signed.upkeep.export_toolset("daily").content())
    there = tmp_path / "elsewhere"
    trusting(there, registry, "github:alice")
    tampered(registry, there)
    service = make_service(there)
    with refused("LOCK_MISMATCH"):
        service.upkeep.import_toolset(str(file), None, quiet)
    assert service.toolsets.list() == [] and service.store.tools().tools == {}
    for wrong in (str(tmp_path / "none.json"), str(there / ".enact/root.json")):
        with pytest.raises(Exception, match=r"does not exist|lockfile_version"):
            service.upkeep.import_toolset(wrong, None, quiet)
    with refused("TOOLSET_NOT_FOUND"):
        service.upkeep.export_toolset("nightly")
