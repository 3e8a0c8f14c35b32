"""M6: containers whose root is the machine's, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fleet_agentpack.enact import aftermath
from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.backends import container, gateway, holder
from fleet_agentpack.enact.backends.container import Container
from fleet_agentpack.enact.backends.job import Job
from fleet_agentpack.enact.network import Reach
from fleet_agentpack.enact.proxy import Proxy
from fleet_agentpack.enact.settings import ContainerSettings
from tests.enact.attacks.publisher import attack
from tests.enact.attacks.test_s4_paths import RULE, script
from tests.enact.kit import needs_bwrap, refused


def command(
    home: Path, name: str = "podman", said: str = "", relabel: bool = False, **job: object
) -> str:
    """The command line of a job."""
    program = home / name
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    settings = ContainerSettings(str(program), relabel=relabel)
    made = Container(settings, {"PATH": os.environ["PATH"]})
    with made.prepared(Job("eve/tool", home, ["true"], **job)) as start:  # type: ignore[arg-type]
        return " ".join(start.command.argv)


def test_a_tool_is_the_user_in_an_engine_of_root(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(os, "getgid", lambda: 5678)
    assert "--user 1234:5678 " in command(home, "docker", "[name=seccomp]")
    assert "--user 0:0 " in command(home, "docker", "[name=seccomp name=rootless]")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert "--user 0:0 " in command(home, "podman")  # its root is the user
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--user 1234:5678 " in command(home, "podman")


def test_every_limit_is_there(home: Path) -> None:
    line = command(home)
    for option in (
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--read-only",
        "--network none",
        "--pids-limit 256",
        f"--memory {2 * 1024**3}",
        f"--tmpfs /tmp:size={256 * 1024**2}",
    ):
        assert f" {option} " in line


@pytest.mark.parametrize("enforcing", ["1", "0", None])
def test_where_selinux_enforces_a_container_is_confined_and_reads_its_mounts(
    home: Path, monkeypatch: pytest.MonkeyPatch, enforcing: str | None
) -> None:
    if enforcing is not None:
        (home / "enforce").write_text(f"{enforcing}\n")
    monkeypatch.setattr(container, "SELINUX", home / "enforce")
    given = {"mounts": [Mount(home / "given", writable=True)]}
    enforces = enforcing == "1"
    line = command(home)
    assert "label=disable" not in line, "its own files have a label of their own"
    assert ("target=/workspace,readonly,relabel=shared " in line) == enforces
    assert (f"--volume {home}:/workspace:ro,z " in command(home, "docker")) == enforces
    line = command(home, **given)
    assert ("--security-opt label=disable" in line) == enforces
    assert "relabel" not in line, "the user's files keep their labels"
    line = command(home, relabel=True, **given)
    assert "label=disable" not in line
    assert (f"target={home / 'given'},relabel=shared" in line) == enforces


def test_single_hosts_are_held_by_a_network_that_has_only_the_proxy(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = networks(monkeypatch)
    for hosts in (("api.example.test",), ("*",)):
        line = command(home, network=hosts)
        assert "--network ns:/proc/77/ns/net " in line and "bridge" not in line
    alone = ["unshare", "--net", "--"]
    assert asked == [(("api.example.test",), alone), (("*",), alone)]
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    command(home, network=("*",))
    engine = str(home / "podman")
    assert asked[-1][1] == [engine, "unshare", *alone], "without root, in podman's namespace"


def networks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], list[str]]]:
    """The networks that are asked for from now on: their hosts, and what would make them."""
    asked = []

    @contextlib.contextmanager
    def network(
        granted: Sequence[str], making: Callable[[Path], Iterable[str]], _env: object = None
    ) -> Iterator[tuple[Proxy, Path]]:
        asked.append((granted, [*making(Path("/way"))]))
        yield Proxy(Reach.of(granted)), Path("/proc/77/ns/net")

    monkeypatch.setattr(gateway, "network", network)
    return asked


def test_docker_joins_a_container_of_ours_in_which_nothing_of_a_publisher_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = networks(monkeypatch)
    for hosts in (("api.example.test",), ("*",)):
        line = command(home, "docker", network=hosts)
        assert "bridge" not in line
        granted, making = asked.pop()
        held = " ".join(making)
        assert granted == hosts and making[-1] == holder.EMPTY
        assert f"--network container:{making[making.index('--name') + 1]} " in line
        for option in ("--network none", "--read-only", "--cap-drop ALL", "--pids-limit 8"):
            assert f" {option} " in held
        assert "source=/usr,target=/usr,readonly" in held and "target=/way,readonly" in held
        assert str(home) not in held.replace(str(home / "docker"), "")


def test_the_empty_image_is_made_once(home: Path) -> None:
    (home / "docker").write_text(
        f"#!/bin/sh\necho $* >> {home}/calls\n"
        f"if [ $1 = import ]; then cat > {home}/image; else test -e {home}/image; fi\n"
    )
    (home / "docker").chmod(0o755)
    for _ in range(2):
        assert holder.image([str(home / "docker")], {"PATH": os.defpath}) == holder.EMPTY
    calls = (home / "calls").read_text().splitlines()
    looked = f"image inspect {holder.EMPTY}"
    assert calls == [looked, f"import - {holder.EMPTY}", looked]
    with tarfile.open(home / "image") as archive:
        assert archive.getnames() == []


def test_an_engine_in_a_virtual_machine_has_the_whole_network_or_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container.sys, "platform", "darwin")
    for engine in ("docker", "podman"):
        with refused("PROVIDER_UNAVAILABLE"):
            command(home, engine, network=("api.example.test",))
        assert "--network bridge" in command(home, engine, network=("*",))


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_a_network_that_cannot_be_made_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr(gateway, "_HOLDER", "raise SystemExit('not permitted')")
    with refused("PROVIDER_UNAVAILABLE") as refusal:
        command(home, engine, network=("api.example.test",))
    assert "could not be made" in refusal.error.message


def test_git_is_hidden_in_a_container_too(home: Path) -> None:
    (home / "work" / ".git").mkdir(parents=True)
    (home / "work" / ".mcp.json").touch()
    hidden = (home / "work" / ".git", home / "work" / ".mcp.json")
    line = command(home, mounts=[Mount(home / "work", writable=True, hidden=hidden)])
    assert f"/empty,target={hidden[0]},readonly" in line
    assert f"/nothing,target={hidden[1]},readonly" in line


SETUID = """
import os, pathlib, sys
made = pathlib.Path(sys.argv[1], 'shell')
made.write_text('x')
made.chmod(0o6111)
print(oct(made.stat().st_mode))
"""


@needs_bwrap
def test_nothing_setuid_is_left(home: Path) -> None:
    (home / "work").mkdir(exist_ok=True)
    place = {"place": str(home / "work")}
    result = attack(home, SETUID, place, **script(RULE))
    assert "was taken back" in str(result.warnings)
    made = home / "work" / "shell"
    assert made.exists() and not made.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)


def test_what_was_setuid_before_stays_so(home: Path) -> None:
    old = home / "old"
    old.touch()
    old.chmod(0o4755)
    mounts = [Mount(home, writable=True)]
    later = replace(aftermath.look(mounts), since=old.stat().st_ctime + 60)
    assert aftermath.tidied(mounts, later) == []
    assert old.stat().st_mode & stat.S_ISUID


@needs_bwrap
@pytest.mark.parametrize("name", [".git/hooks", "lib/deep/er/still/.git", ".claude"])
def test_a_tool_cannot_leave_hooks_or_settings_where_there_were_none(home: Path, name: str) -> None:
    code = f"import os, sys; os.makedirs(os.path.join(sys.argv[1], {name!r})); print('done')"
    kept = home / "work" / "a/b/c/d/e/f/.git"
    kept.mkdir(parents=True)
    result = attack(home, code, {"place": str(home / "work")}, **script(RULE))
    assert result.output == "done\n" and "was removed" in str(result.warnings)
    assert not (home / "work" / name).exists() and kept.exists()


@needs_bwrap
@pytest.mark.parametrize("rule", [RULE, {"type": "string", "format": "path"}], ids=["w", "r"])
def test_git_cannot_be_read_in_a_project_that_a_tool_is_given(
    home: Path, rule: dict[str, str]
) -> None:
    config = home / "work" / "lib" / ".git" / "config"
    config.parent.mkdir(parents=True)
    config.write_text("url = https://token@example.test")
    (home / "work" / ".envrc").write_text("export TOKEN=secret")
    code = """
import os, sys
for folder, _, files in os.walk(sys.argv[1]):
    for name in files:
        print(open(os.path.join(folder, name)).read())
"""
    result = attack(home, code, {"place": str(home / "work")}, **script(rule))
    assert "token" not in str(result.output) and "secret" not in str(result.output)


@needs_bwrap
@pytest.mark.parametrize("name", [".git", ".claude", ".vscode", "lib/.envrc", ".GIT"])
def test_nor_can_it_leave_them_as_links(home: Path, name: str) -> None:
    code = f"""
import os, sys
os.makedirs(sys.argv[1] + "/lib")
os.makedirs(sys.argv[1] + "/planted/hooks")
os.symlink(sys.argv[1] + "/planted", sys.argv[1] + "/" + {name!r})
"""
    attack(home, code, {"place": str(home / "work")}, **script(RULE))
    assert not (home / "work" / name).is_symlink()


@needs_bwrap
def test_what_a_tool_moves_is_not_removed_as_if_it_had_made_it(home: Path) -> None:
    config = home / "work" / "lib" / ".git" / "config"
    config.parent.mkdir(parents=True)
    config.write_text("mine")
    code = "import os, sys; os.rename(sys.argv[1] + '/lib', sys.argv[1] + '/moved')"
    result = attack(home, code, {"place": str(home / "work")}, **script(RULE))
    assert (home / "work" / "moved" / ".git" / "config").read_text() == "mine"
    assert "moved" in str(result.warnings)


def test_what_is_taken_back_is_never_looked_for_through_a_link(home: Path) -> None:
    """Another run may put a link where the directory was in which a hook has to be removed."""
    other = home / "other" / ".git"
    other.mkdir(parents=True)
    (home / "work").mkdir(exist_ok=True)
    (home / "work" / "a").symlink_to(home / "other")
    aftermath._removed(home / "work", home / "work" / "a" / ".git")
    assert other.exists()


@needs_bwrap
def test_git_behind_a_link_is_hidden_too(home: Path) -> None:
    real = home / "work" / "elsewhere" / "real"
    real.mkdir(parents=True)
    (real / "config").write_text("token")
    (home / "work" / ".git").symlink_to("elsewhere/real")
    code = "import os, sys; print(os.listdir(sys.argv[1] + '/elsewhere/real'))"
    result = attack(home, code, {"place": str(home / "work")}, **script(RULE))
    assert "config" not in str(result.output)
    assert (real / "config").exists() and (home / "work" / ".git").is_symlink()


def test_what_a_container_prints_when_it_fails_is_masked(home: Path) -> None:
    """A tool can leave with the status that otherwise means that the engine has failed."""
    from fleet_agentpack.enact.permissions import Permissions
    from tests.enact.attacks.publisher import NAME
    from tests.enact.kit import add_tool, make_service, use_directory

    program = home / "podman"
    said = "sk-very-secret \u202e"
    program.write_text(f"#!/bin/sh\n[ $1 = run ] && {{ echo '{said}' >&2; exit 125; }}\necho '[]'")
    program.chmod(0o755)
    image = "registry.example.test/tool@sha256:" + "a" * 64
    fields = {"from": image, "scripts": {"run": "true"}, "env": {"KEY": {"description": "a key"}}}
    add_tool(home / "registry", NAME, **fields)
    use_directory(home, home / "registry")
    settings = ContainerSettings(str(program))
    service = make_service(home, environ={"KEY": "sk-very-secret"}, container=settings)
    service.install(NAME)
    service.grants.allow(NAME, Permissions(variables=("KEY",)))
    with refused("PROVIDER_UNAVAILABLE") as refusal:
        service.run(NAME)
    assert "***" in refusal.error.message
    assert "sk-very-secret" not in str(refusal.error.payload())
    assert "\u202e" not in refusal.error.message


REPOSITORY = """
import os, sys
place = os.path.join(sys.argv[1], "sub")
os.makedirs(place + "/objects"); os.makedirs(place + "/refs/heads")
with open(place + "/HEAD", "w") as file:
    file.write("ref: refs/heads/main\\n")
with open(place + "/config", "w") as file:
    file.write("[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = ..\\n"
               f"\\tfsmonitor = touch {place}/ran; false\\n")
"""


@needs_bwrap
@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["whole", "commondir"])
def test_a_repository_of_another_name_is_not_left_behind(home: Path, elsewhere: bool) -> None:
    """git takes any directory with these files for one, and runs what its config names."""
    code = REPOSITORY
    if elsewhere:
        code += """
os.mkdir(place + "/other")
for name in ("objects", "refs"):
    os.rename(place + "/" + name, place + "/other/" + name)
open(place + "/commondir", "w").write("other\\n")
os.link(place + "/config", place + "/other/config")
"""
    result = attack(home, code, {"place": str(home / "work")}, **script(RULE))
    place = home / "work" / "sub"
    subprocess.run(["git", "status"], cwd=place, capture_output=True)
    found = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=place, capture_output=True)
    assert not (place / "ran").exists() and found.returncode
    assert "was removed" in str(result.warnings)


@needs_bwrap
def test_nor_is_one_that_is_there_changed_or_read(home: Path) -> None:
    place = home / "work" / "vendor" / "bare"
    for each in ("objects", "refs/heads", "hooks"):
        (place / each).mkdir(parents=True)
    (place / "HEAD").write_text("ref: refs/heads/main\n")
    (place / "config").write_text("token")
    code = """
import os, sys
place = sys.argv[1] + "/vendor/bare"
print(open(place + "/config").read(), os.listdir(place + "/hooks"))
for each in ("config", "hooks/post-checkout"):
    try:
        open(os.path.join(place, each), "w").write("planted")
    except OSError as error:
        print(error.errno)
"""
    result = attack(home, code, {"place": str(home / "work")}, **script(RULE))
    assert "token" not in str(result.output)
    assert (place / "config").read_text() == "token" and not [*(place / "hooks").iterdir()]
    with refused("INVALID_ARGUMENTS"):
        attack(home / "again", code, {"place": str(place / "hooks")}, **script(RULE))


@needs_bwrap
def test_files_that_only_have_such_names_stay(home: Path) -> None:
    for each in ("objects", "refs", "config", "HEAD"):
        (home / "work" / "mine" / each).mkdir(parents=True)
        (home / "work" / "mine" / each / "kept").write_text("x")
    (home / "work" / "HEAD").write_text("mine")
    code = "import sys; open(sys.argv[1] + '/config', 'w').write('x'); print('done')"
    result = attack(home, code, {"place": str(home / "work")}, **script(RULE))
    assert result.output == "done\n" and "removed" not in str(result.warnings)
    assert (home / "work" / "HEAD").exists() and (home / "work" / "config").exists()
    assert (home / "work" / "mine" / "HEAD" / "kept").exists()


@pytest.mark.permissions
def test_hooks_in_a_directory_that_cannot_be_listed_are_found(home: Path) -> None:
    """Who may enter a directory can use the repository in it, listed or not."""
    made = home / "work" / "made"
    made.parent.mkdir(exist_ok=True)
    mounts = [Mount(home / "work", writable=True)]
    before = aftermath.look(mounts)
    hooks = made / "in" / ".git" / "hooks"
    hooks.mkdir(parents=True)
    for each in (made / "in", made):
        each.chmod(0o311)
    assert aftermath.tidied(mounts, replace(before, since=time.time() + 60)) == []
    assert hooks.exists() and stat.S_IMODE(made.stat().st_mode) == 0o311, "it was so before"
    told = aftermath.tidied(mounts, before)
    assert not hooks.exists() and "could not be listed" in str(told)
