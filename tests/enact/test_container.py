"""The same promises in a real container, with an image made on the spot."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact.backends.job import DEFAULT_BOUNDS
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.enact.settings import ContainerSettings
from tests.enact.kit import add_tool, make_service, refused, use_directory
from tests.enact.test_session import running

pytestmark = pytest.mark.container

IMAGE = f"localhost/enact-test-{os.getpid()}:1"
PROGRAMS = (
    *("sh", "cat", "env", "ls", "touch", "sleep", "nc", "yes", "cp", "dd", "wc", "chmod"),
    *("rm", "mkdir", "grep", "dirname", "id"),
)
FOLDERS = ("tmp", "workspace", "proc", "dev", "sys", "etc", "run", "var/tmp", "data")
NAME = "eve/boxed"


def global_args() -> tuple[str, ...]:
    """What podman needs on a machine where crun and systemd's cgroups do not work."""
    return ("--runtime", "runc", "--cgroup-manager", "cgroupfs") if shutil.which("runc") else ()


def run_args() -> tuple[str, ...]:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return ("--ulimit", f"nofile={most}:{most}", "--ulimit", "nproc=1024:1024")


def root_of_image(root: Path) -> bytes:
    """The archive of an image with busybox."""
    busybox = shutil.which("busybox") or "/bin/busybox"
    if not Path(busybox).exists():
        pytest.skip("busybox-static is not installed")
    (root / "bin").mkdir()
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True)
    shutil.copy(busybox, root / "bin" / "busybox")
    for program in PROGRAMS:
        (root / "bin" / program).symlink_to("busybox")
    archive = subprocess.run(["tar", "-C", root, "-c", "."], capture_output=True, check=True)
    return archive.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerSettings]:
    """An image with busybox, imported into the real podman."""
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    archive = root_of_image(tmp_path_factory.mktemp("image"))
    command = ["podman", *global_args(), "import", "--change", "VOLUME /data", "-", IMAGE]
    done = subprocess.run(command, input=archive, capture_output=True)
    if done.returncode:
        pytest.skip(f"podman cannot import an image: {done.stderr.decode()[-200:]}")
    settings = ContainerSettings("podman", global_args(), run_args())
    trial = ["podman", *global_args(), "run", "--rm", "--network", "none", *run_args(), IMAGE, "ls"]
    done = subprocess.run(trial, capture_output=True)
    if done.returncode:
        pytest.skip(f"podman cannot run a container: {done.stderr.decode()[-200:]}")
    yield settings
    subprocess.run(["podman", *global_args(), "rmi", "-f", IMAGE], capture_output=True)


def prepare(home: Path, image: ContainerSettings, script: Any, **fields: Any) -> EnactService:
    folder = home / "registry"
    add_tool(folder, NAME, scripts={"run": script}, **{"from": IMAGE, **fields})
    use_directory(home, folder)
    variables = ("HOME", "XDG_RUNTIME_DIR")
    environ = {key: os.environ[key] for key in variables if key in os.environ}
    return make_service(home, container=image, environ={**environ, "AWS_SECRET": "s3cret"})


def test_a_tool_that_names_an_image_runs_in_a_container(
    home: Path, image: ContainerSettings
) -> None:
    result = prepare(home, image, "cat hello.txt").run(NAME)
    assert (result.output, result.provider) == (f"hello from {NAME}\n", "podman")


def test_the_container_isolates(home: Path, work: Path, image: ContainerSettings) -> None:
    (home / "secret.txt").write_text("s3cret")
    (work / "given.txt").write_text("given")
    look = (
        "cat $1; ls $2; cat $2/secret.txt; echo x > hello.txt; touch new; echo x > $1; touch /x;"
        " nc 127.0.0.1 $3 </dev/null && echo connected; env; echo done"
    )
    script = {
        "command": f"sh -c '{look}' sh {{{{file}}}} {{{{home}}}} {{{{port}}}}",
        "inputSchema": {
            "type": "object",
            "properties": {
                "file": {"type": "string", "format": "file-path"},
                "home": {"type": "string"},
                "port": {"type": "integer"},
            },
        },
    }
    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = {
            "file": "given.txt",
            "home": str(home),
            "port": listening.getsockname()[1],
        }
        service = prepare(home, image, script)
        service.install(NAME)
        output = service.run(NAME, arguments).output
    lines = output.splitlines()
    assert lines[0].startswith("given")
    assert lines[-1] == "done"
    assert "secret" not in output and "s3cret" not in output and "connected" not in output
    assert (work / "given.txt").read_text() == "given"
    assert service.run(NAME, arguments).exit_code == 0, "its files are what they were"


def test_declared_variables_arrive_and_are_not_on_the_command_line(
    home: Path, image: ContainerSettings
) -> None:
    declared = {"GREETING": {"description": "d", "default": "hello world"}}
    output = prepare(home, image, "env", env=declared).run(NAME).output
    assert "GREETING=hello world" in output
    assert "AWS_SECRET" not in output


def test_a_container_that_takes_too_long_is_removed(home: Path, image: ContainerSettings) -> None:
    with refused("TIMEOUT"):
        prepare(home, image, "sleep 60", timeout="3s").run(NAME)
    assert containers() == b""


def containers() -> bytes:
    """The names of the containers of the test's image, also of stopped ones."""
    ours = ("--filter", f"ancestor={IMAGE}", "--format", "{{.Names}}")
    listed = subprocess.run(["podman", *global_args(), "ps", "-a", *ours], capture_output=True)
    assert listed.returncode == 0
    return listed.stdout


def test_a_container_that_ignores_being_asked_to_stop_is_removed(
    home: Path, image: ContainerSettings
) -> None:
    stubborn = "sh -c 'trap \"\" TERM INT HUP; while true; do sleep 1; done'"
    with refused("TIMEOUT"):
        prepare(home, image, stubborn, timeout="3s").run(NAME)
    assert containers() == b""


def test_what_a_tool_forks_away_ends_with_its_container(
    home: Path, image: ContainerSettings
) -> None:
    marker = f"{os.getpid()}7777"
    away = f"sh -c '(sleep {marker} </dev/null >/dev/null 2>&1 &) ; echo done'"
    assert prepare(home, image, away).run(NAME).output == "done\n"
    assert containers() == b""
    assert not running(marker)


def test_a_container_that_prints_for_ever_is_removed(home: Path, image: ContainerSettings) -> None:
    with refused("OUTPUT_TOO_LARGE"):
        prepare(home, image, "yes", timeout="30s").run(NAME)
    assert containers() == b""


@pytest.mark.parametrize("folder", ["/tmp", "/run", "/var/tmp", "/dev/shm", "/data", "/workspace"])
def test_a_container_that_fills_the_disk_fills_only_its_own(
    home: Path, image: ContainerSettings, folder: str
) -> None:
    fill = f"dd if=/dev/zero of={folder}/f bs=1M count=400 2>/dev/null; wc -c {folder}/f; echo done"
    output = prepare(home, image, f"sh -c '{fill}'", timeout="60s").run(NAME).output
    assert output.endswith("done\n")
    written = int(output.split()[0]) if output[0].isdigit() else 0
    assert written <= DEFAULT_BOUNDS.disk_bytes
    assert (folder == "/tmp") == (written == DEFAULT_BOUNDS.disk_bytes)


def test_a_writable_directory_is_written_to(
    home: Path, work: Path, image: ContainerSettings
) -> None:
    (work / "out").mkdir()
    rule = {"type": "string", "format": "directory-path", "x-access": "write"}
    schema = {"type": "object", "properties": {"out": rule}}
    script = {"command": "cp hello.txt {{out}}/copy.txt", "inputSchema": schema}
    prepare(home, image, script).run(NAME, {"out": "out"})
    assert (work / "out" / "copy.txt").read_text() == f"hello from {NAME}\n"


def test_a_tag_that_moves_after_the_install_changes_nothing(
    home: Path, image: ContainerSettings
) -> None:
    moving = IMAGE.replace(":1", ":moving")
    podman = ["podman", *global_args()]
    subprocess.run([*podman, "tag", IMAGE, moving], check=True, capture_output=True)
    service = prepare(home, image, "cat hello.txt", **{"from": moving})
    service.install(NAME)
    subprocess.run([*podman, "untag", IMAGE, moving], check=True, capture_output=True)
    empty = subprocess.run(["tar", "-c", "-T", "/dev/null"], capture_output=True, check=True)
    command = [*podman, "import", "-", moving]  # the tag now names an image without programs
    subprocess.run(command, input=empty.stdout, check=True, capture_output=True)
    try:
        assert service.run(NAME).output == f"hello from {NAME}\n"
    finally:
        subprocess.run([*podman, "rmi", "-f", moving], capture_output=True)


def test_the_users_private_file_is_read_and_nothing_setuid_is_left(
    home: Path, work: Path, image: ContainerSettings
) -> None:
    (work / "mine.txt").write_text("mine")
    (work / "mine.txt").chmod(0o600)
    (work / ".git").mkdir()
    (work / ".git" / "config").write_text("token")
    rule = {"type": "string", "format": "directory-path", "x-access": "write"}
    schema = {"type": "object", "properties": {"out": rule}}
    look = 'cat "$1/mine.txt"; ls "$1/.git"; cp /bin/busybox "$1/sh" && chmod 4755 "$1/sh"'
    script = {"command": f"sh -c '{look}' sh {{{{out}}}}", "inputSchema": schema}
    result = prepare(home, image, script).run(NAME, {"out": str(work)})
    assert result.output == "mine"
    assert (work / "sh").exists() and not (work / "sh").stat().st_mode & stat.S_ISUID


def test_an_image_that_does_not_exist_is_an_error(home: Path, image: ContainerSettings) -> None:
    service = prepare(home, image, "cat hello.txt", **{"from": "localhost/enact-none:1"})
    with refused("PROVIDER_UNAVAILABLE"):
        service.run(NAME)


def test_an_image_cannot_be_an_option(home: Path, image: ContainerSettings) -> None:
    service = prepare(home, image, "cat hello.txt", **{"from": "--privileged"})
    with refused("MANIFEST_INVALID"):
        service.run(NAME)
