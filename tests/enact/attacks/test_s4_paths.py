"""S4: writing where programs keep their settings, and reaching the sockets of the host."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fleet_agentpack.enact.denied import DenyList
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.permissions import Permissions
from tests.enact.attacks.publisher import NAME, attack, publish
from tests.enact.kit import needs_bwrap, refused

RULE = {"type": "string", "format": "path", "x-access": "write"}
READ = {"type": "string", "format": "path"}
WRITES = "import sys, pathlib; pathlib.Path(sys.argv[1], 'planted').write_text('x'); print('done')"
OUT_OF_REACH = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".claude",
    ".codex",
    ".config",
    ".config/systemd/user",
    ".local/bin",
    ".local/share/keyrings",
    ".agentpack",
    ".enact",
    ".enact/receipts",
    "work/.git",
    "work/.git/hooks",
    "work/.claude",
    "code/other/.git/hooks",
    ".",
]


def script(rule: dict[str, str]) -> dict[str, object]:
    schema = {"type": "object", "properties": {"place": rule}}
    return {"scripts": {"run": {"command": "python3 main.py {{place}}", "inputSchema": schema}}}


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        *[pytest.param(each, READ, id=f"read {each}") for each in OUT_OF_REACH],
        # Writing to these four was refused before there was a deny-list.
        *[
            pytest.param(each, RULE, id=f"write {each}")
            for each in OUT_OF_REACH
            if each not in (".", ".config", ".enact", ".enact/receipts")
        ],
    ],
)
def test_a_place_on_the_deny_list_is_out_of_reach(
    home: Path, place: str, rule: dict[str, str]
) -> None:
    service = publish(home, WRITES, **script(rule))
    (home / place).mkdir(parents=True, exist_ok=True)
    with refused("INVALID_ARGUMENTS"):
        service.run(NAME, {"place": str(home / place)})
    assert not (home / place / "planted").exists()


@pytest.mark.parametrize("place", OUT_OF_REACH)
def test_nor_can_it_be_granted(home: Path, place: str) -> None:
    service = publish(home, WRITES, **script(RULE))
    service.install(NAME)
    (home / place).mkdir(parents=True, exist_ok=True)
    with refused("INVALID_ARGUMENTS"):
        service.grants.allow(NAME, Permissions(write=(str((home / place).resolve()),)))


@needs_bwrap
def test_outside_the_project_writing_needs_a_grant(home: Path) -> None:
    service = publish(home, WRITES, **script(RULE))
    service.install(NAME)
    (home / "reports" / "may").mkdir(parents=True)
    place = {"place": str(home / "reports" / "may")}
    with refused("PERMISSION_REQUIRED") as refusal:
        service.run(NAME, place)
    assert refusal.error.details["command"].endswith(f"--write {place['place']}")
    service.grants.allow(NAME, Permissions(write=(str(home / "reports"),)))
    assert service.run(NAME, place).output == "done\n"
    assert service.run(NAME, {"place": str(home / "work")}).output == "done\n"


@needs_bwrap
@pytest.mark.parametrize("inside", [".git", "lib/.git", ".claude", ".vscode"])
def test_a_writable_project_keeps_its_hooks_and_settings(home: Path, inside: str) -> None:
    code = WRITES.replace("sys.argv[1]", f"sys.argv[1], {inside!r}")
    (home / "work" / inside).mkdir(parents=True)
    with refused("EXECUTION_FAILED"):
        attack(home, code, {"place": str(home / "work")}, **script(RULE))
    assert not (home / "work" / inside / "planted").exists()


@needs_bwrap
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_a_socket_in_a_readable_directory_cannot_be_connected_to(
    home: Path, kind: str, tmp_path: Path
) -> None:
    folder = home / "work" / "s"
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as agent:
        agent.bind(str(folder / "agent"))
        if kind == "SOCK_STREAM":
            agent.listen()  # a connection succeeds from here on: the backlog takes it
        code = f"""
import socket, sys
for make in (lambda: socket.socket(socket.AF_UNIX, socket.{kind}),
             lambda: socket.socketpair(socket.AF_UNIX, socket.{kind})[0]):
    try:
        make().connect(sys.argv[1] + "/agent")
        print("connected")
    except OSError:
        print("refused")
"""
        found = attack(home, code, {"place": str(folder)}, **script(READ))
    assert found.output == "refused\nrefused\n"


def test_a_project_that_holds_the_home_opens_nothing_of_it(tmp_path: Path) -> None:
    home = tmp_path / "people/ada"
    (home / ".ssh").mkdir(parents=True)
    denied = DenyList(home, tmp_path / "people", ())
    assert denied.reason(home / ".ssh")
    assert denied.reason(tmp_path / "people")
    assert denied.reason(home / "notes") is None


def test_a_directory_that_holds_our_state_is_out_of_reach(tmp_path: Path) -> None:
    denied = DenyList(tmp_path / "home", None, (tmp_path / "data/state",))
    assert denied.reason(tmp_path / "data")
    assert denied.reason(tmp_path / "data/other") is None


@needs_bwrap
def test_a_pipe_in_a_readable_directory_cannot_be_written_to(home: Path) -> None:
    """A read-only mount does not keep anybody from writing to a pipe that a program listens at."""
    import os

    folder = home / "work" / "a/b/c/d/e/f"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "control")
    reader = os.open(folder / "control", os.O_RDONLY | os.O_NONBLOCK)
    code = """
import os, sys
try:
    os.write(os.open(sys.argv[1] + "/a/b/c/d/e/f/control", os.O_WRONLY | os.O_NONBLOCK), b"obey")
    print("wrote")
except OSError:
    print("refused")
"""
    try:
        attack(home, code, {"place": str(home / "work")}, **script(READ))
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


@needs_bwrap
def test_a_granted_file_that_became_a_link_is_not_followed(home: Path) -> None:
    service = publish(home, f"print(open('{home}/work/notes').read())")
    service.install(NAME)
    (home / "work" / "notes").write_text("notes")
    (home / "taxes").write_text("private")
    service.grants.allow(NAME, Permissions(read=(str(home / "work" / "notes"),)))
    assert service.run(NAME).output == "notes\n"
    (home / "work" / "notes").unlink()
    (home / "work" / "notes").symlink_to(home / "taxes")
    with refused("EXECUTION_FAILED"):
        service.run(NAME)


@needs_bwrap
def test_a_path_that_is_swapped_after_the_check_is_not_followed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may change a directory into a link between our look at it and the mount."""
    from fleet_agentpack.enact import runner

    service = publish(home, "import os, sys; print(os.listdir(sys.argv[1]))", **script(READ))
    place = home / "work" / "data"
    place.mkdir()
    (place / "mine").touch()
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("key")
    before = runner.Runner._provider

    def swapped(*given: object) -> object:
        place.rename(home / "work" / "aside")
        place.symlink_to(home / ".ssh")
        return before(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(runner.Runner, "_provider", swapped)
    try:
        said = str(service.run(NAME, {"place": str(place)}).output)
    except EnactError as error:
        said = error.message
    assert "id_rsa" not in said


@pytest.mark.parametrize(
    "place",
    [
        *("work/.GIT/hooks", "work/.Claude", "work/.gemini", "work/.husky", "work/.idea"),
        *("work/.kiro", "work/.opencode", "work/.roo"),
        *("work/.devcontainer", "work/.zed", "work/.windsurf", "code/bare.git/hooks"),
        *("work/.env", "work/.env.local", "work/.netrc", "work/deploy/id_ed25519", "backup/id_rsa"),
        *("work/.npmrc", "work/.pypirc", "work/.git-credentials", "work/.pgpass"),
        *("snap/firefox/common", "Library/Keychains"),
    ],
)
def test_keys_and_settings_are_out_of_reach_wherever_they_lie(home: Path, place: str) -> None:
    service = publish(home, "", **script(READ))
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    (home / place).write_text("secret")
    with refused("INVALID_ARGUMENTS"):
        service.run(NAME, {"place": str(home / place)})


@needs_bwrap
@pytest.mark.parametrize("rule", [READ, RULE], ids=["read", "write"])
def test_keys_cannot_be_read_in_a_directory_that_a_tool_is_given(
    home: Path, rule: dict[str, str]
) -> None:
    for name in (".env", ".env.local", "a/b/c/d/e/f/id_rsa", ".gemini/settings.json"):
        (home / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "work" / name).write_text("secret")
    code = """
import os, sys
for folder, _, files in os.walk(sys.argv[1]):
    for name in files:
        print(name, open(os.path.join(folder, name)).read())
"""
    result = attack(home, code, {"place": str(home / "work")}, **script(rule))
    assert "secret" not in str(result.output)
    assert (home / "work" / ".env").read_text() == "secret"


def test_a_project_that_is_the_home_opens_nothing_of_it(tmp_path: Path) -> None:
    home = tmp_path / "ada"
    (home / ".ssh").mkdir(parents=True)
    assert DenyList(home, home, ()).reason(home / ".ssh")


@pytest.mark.parametrize("place", ["/etc", "/var", "/etc/ssl", "/etc/ssh/ssh_host_rsa_key"])
def test_a_directory_that_holds_what_is_out_of_reach_is_so_too(tmp_path: Path, place: str) -> None:
    assert DenyList(tmp_path, None, ()).reason(Path(place))


def test_another_spelling_of_the_home_changes_nothing(tmp_path: Path) -> None:
    """Where upper and lower case are the same, as on macOS."""
    home = tmp_path / "Ada"
    denied = DenyList(home, None, (home / "State",))
    for place in ("ada/.ssh", "ADA/.SSH/id", "ada/state/x", "Ada/work/.GIT"):
        assert denied.reason(tmp_path / place)
    assert denied.reason(home / "work/.g\u200cit")  # HFS+ does not see that character


READS = "import sys; print(open(sys.argv[1]).read())"


@needs_bwrap
@pytest.mark.parametrize("place", ["work/report", "given/sub/report", "work/../work/report"])
def test_a_link_that_a_tool_may_have_left_does_not_choose_what_is_read(
    home: Path, place: str
) -> None:
    """Who names it sees a file of the project, and not where it leads."""
    (home / "taxes").write_text("private")
    for each in ("work", "given/sub"):
        (home / each).mkdir(parents=True, exist_ok=True)
        (home / each / "report").symlink_to(home / "taxes")
    service = publish(home, READS, **script(READ))
    service.install(NAME)
    service.grants.allow(NAME, Permissions(write=(str(home / "given"),)))
    with refused("INVALID_ARGUMENTS") as refusal:
        service.run(NAME, {"place": str(home / place)})
    assert f"leads to {home / 'taxes'}" in str(refusal.error.details)
    assert service.run(NAME, {"place": str(home / "taxes")}).output == "private\n"


@needs_bwrap
def test_other_links_are_followed(home: Path) -> None:
    (home / "work" / "new").mkdir(parents=True)
    (home / "work" / "new" / "report").write_text("fine")
    (home / "work" / "latest").symlink_to("new")
    (home / "docs").symlink_to(home / "work" / "new")
    service = publish(home, READS, **script(READ))
    service.install(NAME)
    for place in ("work/latest/report", "docs/report"):
        assert service.run(NAME, {"place": str(home / place)}).output == "fine\n"
    assert service.run(NAME, {"place": "latest/report"}).output == "fine\n"
