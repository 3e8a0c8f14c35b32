"""S7: what happens to a tool after its install is noticed: vetoes, withdrawals, attestations."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastmcp import Client

from fleet_agentpack.cli import run
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.server import build_server
from fleet_agentpack.settings import Settings
from tests.enact.attacks.test_s7_later import ALICE, BOB, installed, veto
from tests.enact.fake_registry import FakeRegistry, Lie
from tests.enact.kit import configure, make_service, refused
from tests.enact.private_sigstore import GITHUB, instance, signed_form, statement
from tests.enact.test_trust import NAME, VERSION, digest, trust
from tests.rig import Stdio, eventually

__all__ = ["digest", "installed", "trust"]  # fixtures

ROWS = f"/tools/{NAME}/versions/{VERSION}/attestations"


def days_pass(home: Path, days: int = 2) -> None:
    """Make every install and every check older."""
    for path in (home / ".enact/receipts").rglob("*.json"):
        data = json.loads(path.read_text())
        then = datetime.fromisoformat(data["installed_at"]) - timedelta(days=days)
        path.write_text(json.dumps({**data, "installed_at": then.isoformat("T", "seconds")}))
    for path in home.rglob("enact-audits.json"):
        data = json.loads(path.read_text())
        data["tried_at"] -= days * 86400
        for row in data.get("tools", {}).values():
            row["checked_at"] -= days * 86400
        path.write_text(json.dumps(data))


def a_day_later(home: Path, registry: FakeRegistry) -> EnactService:
    """A server that is used a day later, once, so that it has checked."""
    days_pass(home)
    registry.requests.clear()
    service = make_service(home)
    service.installed()
    service.settle(20)
    return service


def test_a_veto_after_the_install_stops_the_next_call(
    installed: EnactService, registry: FakeRegistry, home: Path, digest: str
) -> None:
    registry.attest(NAME, VERSION, "bob", veto(digest))
    days_pass(home)
    service = make_service(home)
    assert service.run(NAME).exit_code == 0  # and in the background the veto is found
    service.settle(20)
    with refused("TRUST_VETO") as refusal:
        service.run(NAME)
    assert BOB in refusal.error.message
    tool = service.projection().callables["alice__tools__hello"]
    with refused("TRUST_VETO"):
        service.call(tool, {})
    with refused("TRUST_VETO"):
        service.learn(NAME)
    assert any("will not run" in each and BOB in each for each in service.installed().warnings)


def test_a_veto_that_was_seen_stays_when_it_is_hidden_again(
    installed: EnactService,
    registry: FakeRegistry,
    home: Path,
    digest: str,
    trust: Callable[..., None],
) -> None:
    registry.attest(NAME, VERSION, "bob", veto(digest))
    service = a_day_later(home, registry)
    del registry.attestations[f"{NAME}@{VERSION}"][1:]
    service = a_day_later(home, registry)
    assert ROWS in registry.paths()
    with refused("TRUST_VETO"):
        service.run(NAME)
    with refused("TRUST_VETO"):
        service.install(NAME)
    trust("github:alice")  # bob's word no longer counts
    assert service.run(NAME).exit_code == 0


@pytest.mark.parametrize("code", ["TRUST_VETO", "TRUST_REFUSED"])
def test_a_veto_seen_by_an_install_that_failed_stops_the_installed_tool(
    installed: EnactService, registry: FakeRegistry, digest: str, code: str
) -> None:
    registry.attest(NAME, VERSION, "bob", veto(digest))
    if code == "TRUST_REFUSED":  # withheld: nobody knows what it says, so nothing is remembered
        registry.lies[f"/tools/{NAME}/versions/{VERSION}/trust/attestations/bob"] = Lie(404)
    with refused(code):
        installed.install(NAME)
    if code == "TRUST_VETO":
        with refused("TRUST_VETO"):
            installed.run(NAME)
    else:
        assert installed.run(NAME).exit_code == 0


def test_a_withdrawal_after_the_install_stops_the_next_call_until_it_is_taken_back(
    installed: EnactService, registry: FakeRegistry, home: Path
) -> None:
    registry.withdraw(NAME, VERSION, "it leaks keys")
    service = a_day_later(home, registry)
    with refused("VERSION_YANKED") as refusal:
        service.run(NAME)
    assert "it leaks keys" in refusal.error.message
    assert refusal.error.next_actions[0].startswith("ask the user to run: ")
    assert refusal.error.advice()[0] == f"run: fleet-agentpack tool update {NAME}"
    assert "it leaks keys" in str(service.installed().warnings)
    registry.withdrawn.clear()
    assert a_day_later(home, registry).run(NAME).exit_code == 0


def test_attestations_that_were_withdrawn_stop_the_next_call(
    installed: EnactService, registry: FakeRegistry, home: Path
) -> None:
    registry.attestations.clear()
    service = a_day_later(home, registry)
    with refused("TRUST_REFUSED") as refusal:
        service.run(NAME)
    assert "withdrawn" in refusal.error.message


def test_a_listed_attestation_that_is_withheld_later_stops_the_next_call(
    installed: EnactService, registry: FakeRegistry, home: Path, digest: str
) -> None:
    registry.attest(NAME, VERSION, "bob", veto(digest))
    registry.lies[f"/tools/{NAME}/versions/{VERSION}/trust/attestations/bob"] = Lie(404)
    service = a_day_later(home, registry)
    with refused("TRUST_REFUSED") as refusal:
        service.run(NAME)
    assert "bob" in refusal.error.message


@pytest.mark.parametrize("how", ["offline", "an error", "a veto that times out"])
def test_without_an_answer_the_last_known_holds_and_its_age_is_shown(
    installed: EnactService, registry: FakeRegistry, home: Path, digest: str, how: str
) -> None:
    if how == "an error":
        registry.lies[ROWS] = Lie(500)
    if how == "a veto that times out":
        registry.attest(NAME, VERSION, "bob", veto(digest))
        registry.lies[f"/tools/{NAME}/versions/{VERSION}/trust/attestations/bob"] = Lie(500)
    if how == "offline":
        url = registry.url
        config = (home / ".enact/config.yaml").read_text()
        receipt = next((home / ".enact/receipts").rglob("*.json"))
        nowhere = "http://127.0.0.1:9"
        (home / ".enact/config.yaml").write_text(config.replace(url, nowhere))
        receipt.write_text(receipt.read_text().replace(url, nowhere))
    service = a_day_later(home, registry)
    assert service.run(NAME).exit_code == 0
    (told,) = [each for each in service.installed().warnings if "last checked" in each]
    assert f"{NAME} 2 days ago (" in told
    asked = len(registry.requests)
    make_service(home).installed()  # not again within the hour
    service.settle(5)
    assert len(registry.requests) == asked


def test_it_is_asked_at_most_once_a_day_and_only_about_what_came_from_there(
    installed: EnactService, registry: FakeRegistry, home: Path
) -> None:
    registry.requests.clear()
    installed.installed()
    installed.run(NAME)
    installed.settle(5)
    assert registry.requests == []  # installed today
    service = a_day_later(home, registry)
    assert ROWS in registry.paths()
    registry.requests.clear()
    for each in (service, make_service(home), make_service(home)):
        each.run(NAME)
        each.installed()
        each.settle(5)
    assert registry.requests == []
    assert service.installed().warnings is not None
    days_pass(home)
    config = (home / ".enact/config.yaml").read_text()
    other = config.replace(registry.url, f"{registry.url}/elsewhere")
    (home / ".enact/config.yaml").write_text(other)
    moved = make_service(home)
    moved.installed()
    moved.settle(5)
    assert registry.requests == []


def test_without_a_registry_nothing_is_asked_and_built_in_tools_need_none(
    installed: EnactService, registry: FakeRegistry, home: Path
) -> None:
    configure(home, trust={"policy": "allow"}, execution={"default": "local"})
    days_pass(home)
    registry.requests.clear()
    service = make_service(home)
    service.install("agentpack/csv/stats")
    service.run(NAME)
    service.installed()
    service.settle(5)
    assert registry.requests == [] and not [*home.rglob("enact-audits.json")]


def test_a_call_does_not_wait_for_the_check(
    installed: EnactService, registry: FakeRegistry, home: Path
) -> None:
    days_pass(home)
    registry.delay_s = 3.0
    service = make_service(home)
    for _ in range(2):  # the check is under way, and nothing new is known yet
        assert "last checked" in str(service.installed().warnings)
    assert service.run(NAME).exit_code == 0
    service.close()


@pytest.mark.parametrize("what", ["fine", "vetoed", "withdrawn", "offline"])
def test_the_command_audit_asks_now_and_says_so_with_its_status(
    installed: EnactService,
    registry: FakeRegistry,
    home: Path,
    digest: str,
    what: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if what == "vetoed":
        registry.attest(NAME, VERSION, "bob", veto(digest))
    if what == "withdrawn":
        registry.withdraw(NAME, VERSION, "it leaks keys")
    if what == "offline":
        registry.lies[f"/tools/{NAME}/versions/{VERSION}"] = Lie(503)
    assert run(["tool", "audit", "--json"]) == (0 if what == "fine" else 1)
    (row,) = json.loads(capsys.readouterr().out)["tools"]
    expected = {"fine": "ok", "offline": "unchecked"}.get(what, "refused")
    assert (row["name"], row["state"], row["signers"]) == (NAME, expected, ["github:alice"])
    codes = {"vetoed": "TRUST_VETO", "withdrawn": "VERSION_YANKED", "offline": "REGISTRY_ERROR"}
    assert row.get("code") == codes.get(what)
    assert run(["tool", "audit", NAME]) == (0 if what == "fine" else 1)
    assert expected in capsys.readouterr().out
    assert run(["tool", "run", NAME]) == (0 if expected in ("ok", "unchecked") else 1)
    assert run(["tool", "info", NAME]) == 0  # also of what will not run
    told = capsys.readouterr().out
    assert "Last checked" in told and ("It will not run" in told) == (expected == "refused")
    assert run(["tool", "audit", "no/such"]) == 1


def test_what_only_a_project_pins_is_asked_about_too(
    installed: EnactService,
    registry: FakeRegistry,
    digest: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed.install(NAME, project=True)
    installed.uninstall(NAME)
    assert run(["tool", "audit"]) == 0
    assert NAME in capsys.readouterr().out
    registry.attest(NAME, VERSION, "bob", veto(digest))
    for words in ([], [NAME]):
        assert run(["tool", "audit", *words]) == 1
        assert BOB in capsys.readouterr().out
    assert run(["tool", "run", NAME]) == 1
    assert BOB in capsys.readouterr().err


async def test_an_agent_is_told_over_mcp(
    installed: EnactService, registry: FakeRegistry, home: Path, digest: str
) -> None:
    registry.attest(NAME, VERSION, "bob", veto(digest))
    run(["tool", "audit"])
    async with Client(build_server(Settings.read())) as client:
        answer = await client.call_tool("alice__tools__hello", {}, raise_on_error=False)
        assert answer.structured_content["error"]["code"] == "TRUST_VETO"
        listed = await client.call_tool("enact__list", {})
    assert set(listed.structured_content) == {"tools", "warnings"}
    assert set(listed.structured_content["tools"][0]) == {
        "name",
        "version",
        "description",
        "mcp_tools",
    }
    assert "will not run" in str(listed.structured_content["warnings"])


def test_doctor_tells_of_it(
    installed: EnactService,
    registry: FakeRegistry,
    home: Path,
    digest: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    days_pass(home, 5)
    run(["doctor", "--all", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    (found,) = [each for each in checks if each["subject"] == "audits"]
    assert "5 days ago" in found["detail"] and "tool audit" in found["advice"]
    registry.attest(NAME, VERSION, "bob", veto(digest))
    run(["tool", "audit"])
    capsys.readouterr()
    run(["doctor", "--all", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert "audits" not in {each["subject"] for each in checks}
    (found,) = [each for each in checks if each["subject"] == "installed tools"]
    assert found["state"] == "problem" and BOB in found["detail"]


def test_two_accounts_of_one_login_at_first_use_count_for_nobody(
    service: EnactService, registry: FakeRegistry, trust: Callable[..., None], digest: str
) -> None:
    trust("github:alice")
    for number in ("12345", "99999"):
        email = f"{number}+alice@users.noreply.github.com"
        payload = statement(NAME, VERSION, signed_form(digest))
        registry.attest(NAME, VERSION, number, instance().sign(payload, email=email, issuer=GITHUB))
    with refused("TRUST_REFUSED") as refusal:
        service.install(NAME)
    assert "two accounts" in str(refusal.error.details["attestations"])
    trust("github:12345+alice@users.noreply.github.com")
    assert service.install(NAME).success


def test_a_damaged_record_is_reported_and_left_alone(
    installed: EnactService, registry: FakeRegistry, home: Path, digest: str
) -> None:
    registry.attest(NAME, VERSION, "bob", veto(digest))
    with refused("TRUST_VETO"):
        installed.install(NAME)
    (path,) = home.rglob("enact-vetoes.json")
    path.write_text("{")
    with refused("STORE_CORRUPT"):
        make_service(home).run(NAME)
    assert path.read_text() == "{"


def test_a_time_to_come_is_no_reason_to_check_never_again(
    installed: EnactService, registry: FakeRegistry, home: Path
) -> None:
    a_day_later(home, registry)
    (path,) = home.rglob("enact-audits.json")
    data = json.loads(path.read_text())
    data["tried_at"] = (datetime.now(UTC) + timedelta(days=400)).timestamp()
    path.write_text(json.dumps(data))
    days_pass(home)
    registry.requests.clear()
    service = make_service(home)
    service.installed()
    service.settle(5)
    assert ROWS in registry.paths()
    assert ALICE in str(service.store.receipt(NAME, VERSION))


def test_an_install_that_the_registry_lets_through_again_lifts_what_was_found(
    installed: EnactService, registry: FakeRegistry, home: Path
) -> None:
    registry.withdraw(NAME, VERSION, "by mistake")
    service = a_day_later(home, registry)
    with refused("VERSION_YANKED"):
        service.run(NAME)
    registry.withdrawn.clear()
    service.install(NAME)
    assert service.run(NAME).exit_code == 0


def test_a_damaged_record_of_checks_does_not_hide_the_list(
    installed: EnactService, registry: FakeRegistry, home: Path
) -> None:
    a_day_later(home, registry)
    (path,) = home.rglob("enact-audits.json")
    path.write_text("{")
    listed = make_service(home).installed()
    assert [each.name for each in listed.tools] == [NAME]
    assert str(path) in str(listed.warnings)
    assert path.read_text() == "{"


def test_over_stdio_a_running_server_notices_and_an_idle_one_asks_nothing(
    installed: EnactService, registry: FakeRegistry, home: Path, digest: str
) -> None:
    days_pass(home)
    registry.attest(NAME, VERSION, "bob", veto(digest))
    registry.requests.clear()
    with Stdio() as server:
        server.hello()
        server.ask("tools/list")
        server.call("plan", target="codex")
        assert registry.requests == []  # nobody has used a tool
        assert not server.call("alice__tools__hello").get("isError")
        eventually(lambda: server.call("alice__tools__hello").get("isError"))
        refusal = server.call("alice__tools__hello")["structuredContent"]["error"]
        assert refusal["code"] == "TRUST_VETO"
        listed = server.call("enact__list")["structuredContent"]
        assert "will not run" in str(listed["warnings"])
        asked = len(registry.requests)
        server.call("enact__list")
        assert server.close() == 0 and server.bad_lines == []
    assert len(registry.requests) == asked
    assert len({path for path, _ in registry.requests}) == asked  # nothing was asked twice
