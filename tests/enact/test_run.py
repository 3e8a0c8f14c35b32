"""Running tools: arguments, limits, environment, isolation, output."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact import schemas
from fleet_agentpack.enact.backends.child import KILL_WAIT_S, Command, execute
from fleet_agentpack.enact.service import EnactService
from tests.enact.kit import add_tool, configure, make_service, needs_bwrap, refused, use_directory
from tests.enact.test_session import path_without_bwrap, running, wait_until

Ran = Callable[..., Any]
PLACES = [pytest.param("bubblewrap", marks=needs_bwrap), "local"]
NAME = "eve/tool"


@pytest.fixture
def tools(home: Path) -> Path:
    """A directory registry whose tools are let in; they run in the sandbox."""
    folder = home / "registry"
    use_directory(home, folder)
    return folder


def run(
    home: Path,
    script: Any,
    args: dict[str, Any] | None = None,
    *,
    backend: str = "local",
    files: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
    keyring: Any = None,
    **fields: Any,
) -> Any:
    """Run a tool with this script once."""
    folder = home / "registry"
    add_tool(folder, NAME, files=files, scripts={"run": script}, **fields)
    use_directory(home, folder, execution={"default": backend})
    options = {"keyring": keyring} if keyring else {}
    service = make_service(home, environ=environ, **options)
    if "env" in fields or "x-network" in fields:
        service.install(NAME)
        service.grants.allow(NAME, service.grants.of(NAME).wanted)
    return service.run(NAME, args)


HOSTILE_VALUES = [
    "it's",
    'say "hi"',
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned ;",
    "a\nb",
    "&& touch pwned",
    "${HOME}",
    "{{other}}",
    "*",
    "back\\slash",
    "'\"'\"'; touch pwned; '",
    "ünï",
]


@pytest.mark.parametrize("value", HOSTILE_VALUES)
@pytest.mark.parametrize(
    "command",
    [
        "printf %s {{value}}",
        "printf %s '{{ value }}'",
        "printf %s ${value}",
        'printf %s "${value}"',
    ],
)
def test_a_value_is_one_argument_and_never_code(home: Path, command: str, value: str) -> None:
    if "${" in command:
        add_tool(home / "registry", NAME, command=command)
        use_directory(home, home / "registry", execution={"default": "local"})
        assert make_service(home).run(NAME, {"value": value}).output == value
    else:
        assert run(home, command, {"value": value}).output == value


@pytest.mark.parametrize("value", HOSTILE_VALUES)
@pytest.mark.parametrize(
    "command",
    [
        "printf %s ${value} | cat",
        'printf %s "${value}" | cat',
        "printf %s '${value}' | cat",
        'printf "%s" "<${value}>" | tr -d "<>"',
    ],
)
def test_a_shell_line_takes_values_as_its_parameters(
    home: Path, work: Path, command: str, value: str
) -> None:
    add_tool(home / "registry", NAME, command=command)
    use_directory(home, home / "registry", execution={"default": "local"})
    expected = value.replace("<", "").replace(">", "")
    assert make_service(home).run(NAME, {"value": value}).output == expected
    assert not list(home.rglob("pwned"))


@pytest.mark.parametrize(
    "command", ["cat {{value}}", "cat '{{value}}'", "cat ${value}", "cat ${value} | cat"]
)
def test_a_value_cannot_become_an_option(home: Path, command: str) -> None:
    kind = {"scripts": {"run": command}} if "{{" in command else {"command": command}
    add_tool(home / "registry", NAME, **kind)
    use_directory(home, home / "registry", execution={"default": "local"})
    with refused("INVALID_ARGUMENTS"):
        make_service(home).run(NAME, {"value": "--help"})


def test_a_value_with_a_dash_is_fine_where_no_option_can_stand(home: Path) -> None:
    command = "echo --text={{value}} -- {{value}}"
    assert run(home, command, {"value": "-x"}).output == "--text=-x -- -x\n"


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'echo {{value}}'",
        "bash -ec 'echo {{value}}'",
        "python3 -c 'print(\"{{value}}\")'",
        "env sh -c 'echo {{value}}'",
        "{{value}} --version",
        "echo 'open {{value}}",
    ],
)
def test_a_command_that_would_run_its_values_is_refused(home: Path, command: str) -> None:
    with refused("MANIFEST_INVALID"):
        run(home, command, {"value": "x"})


def test_raw_substitution_is_refused(home: Path) -> None:
    add_tool(home / "registry", NAME, command="echo ${value:raw}")
    use_directory(home, home / "registry", execution={"default": "local"})
    with refused("MANIFEST_INVALID"):
        make_service(home).run(NAME, {"value": "x"})


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 5},
        "count": {"type": "integer", "minimum": 1, "default": 3},
        "kind": {"enum": ["a", "b"]},
        "nested": {"type": "object", "properties": {"x": {"type": "number"}}},
    },
    "required": ["text"],
}
ECHO = {"command": "printf %s,%s {{text}} {{count}}", "inputSchema": SCHEMA}


def test_defaults_fill_what_is_absent(home: Path) -> None:
    assert run(home, ECHO, {"text": "x"}).output == "x,3"


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"text": 5},
        {"text": "too long"},
        {"text": None},
        {"text": "x", "count": "2"},
        {"text": "x", "count": 0},
        {"text": "x", "count": True},
        {"text": "x", "kind": "c"},
        {"text": "x", "nested": {"x": "y"}},
        {"text": "x", "unknown": 1},
        {"text": "x", "PATH": "/tmp"},
        {"text": "a\0b"},
        {"text": "\ud800"},
        {"text": "x", "nested": {"deep": ["\ud800"]}},
    ],
)
def test_arguments_are_checked_before_anything_starts(
    home: Path, work: Path, args: dict[str, Any]
) -> None:
    script = {**ECHO, "command": "touch started"}
    with refused("INVALID_ARGUMENTS"):
        run(home, script, args)
    assert not list(home.rglob("started"))


def test_a_schema_never_makes_us_fetch_anything(home: Path) -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    with refused("MANIFEST_INVALID"):
        run(home, {"command": "true", "inputSchema": schema}, {"x": 1})


EVIL = {"type": "string", "pattern": "^(a+)+$"}
HANGS = "a" * 64 + "!"


def test_a_pattern_is_checked_and_cannot_hang_the_server(
    home: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "LONGEST_WAIT_S", 3.0)
    (work / "json.py").write_text("raise SystemExit('imported from the working directory')")
    monkeypatch.chdir(work)
    schema = {"type": "object", "properties": {"text": EVIL}}
    script = {"command": "printf %s {{text}}", "inputSchema": schema}
    assert run(home, script, {"text": "aaa"}).output == "aaa"
    service = make_service(home)
    with refused("INVALID_ARGUMENTS") as refusal:
        service.run(NAME, {"text": "b"})
    assert "text: breaks the rule pattern" in refusal.error.message
    with refused("MANIFEST_INVALID") as refusal:
        service.run(NAME, {"text": HANGS})
    assert "takes too long" in refusal.error.message


def test_an_output_cannot_hang_the_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "LONGEST_WAIT_S", 1.0)
    script = {"command": f"echo '\"{HANGS}\"'", "outputSchema": EVIL}
    with refused("MANIFEST_INVALID"):
        run(home, script)


@pytest.mark.parametrize("pattern", ["(", "["])
def test_a_pattern_that_is_none_is_the_manifests_fault(home: Path, pattern: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}}
    with refused("MANIFEST_INVALID"):
        run(home, {"command": "echo {{x}}", "inputSchema": schema}, {"x": "x"})


def test_optional_parameters_drop_their_whole_argument(home: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    script = {"command": "printf [%s] one --a={{a}} {{b}}", "inputSchema": schema}
    assert run(home, script, {"b": "two"}).output == "[one][two]"


@pytest.mark.parametrize("place", PLACES)
def test_the_environment_is_only_what_the_tool_declares(home: Path, place: str) -> None:
    declared = {
        "GREETING": {"description": "d", "default": "hello"},
        "FROM_FILE": {"description": "d"},
        "FROM_SERVER": {"description": "d"},
        "ABSENT": {"description": "d"},
    }
    for folder, text in ((home, 'FROM_FILE="a b"\nOTHER=x\n'), (home / "work", "GREETING=evil\n")):
        (folder / ".enact").mkdir(exist_ok=True)
        (folder / ".enact" / ".env").write_text(text)
    result = run(
        home,
        "env",
        backend=place,
        env=declared,
        environ={"FROM_SERVER": "yes", "AWS_SECRET_ACCESS_KEY": "s3cret", "CODER_URL": "x"},
    )
    seen = dict(line.split("=", 1) for line in result.output.strip().splitlines())
    assert {k: seen.get(k) for k in declared} == {
        "GREETING": "hello",
        "FROM_FILE": "a b",
        "FROM_SERVER": "yes",
        "ABSENT": None,
    }
    ours = {"PATH", "HOME", "TMPDIR", "LANG", "PWD", "OLDPWD", "ENACT_EXECUTION_ID"}
    assert set(seen) - set(declared) <= ours | {"PYTHONDONTWRITEBYTECODE", "_", "SHLVL"}
    assert seen["HOME"] != str(home)


@pytest.mark.parametrize(
    "name",
    ["PATH", "LD_PRELOAD", "PYTHONPATH", "CODER_SESSION_TOKEN", "FLEET_AGENTPACK_TOKEN", "a b"],
)
def test_a_tool_may_not_ask_for_variables_that_load_code_or_are_ours(home: Path, name: str) -> None:
    with refused("MANIFEST_INVALID"):
        run(home, "env", env={name: {"description": "d", "default": "x"}})


def test_secrets_come_from_the_keyring_nearest_namespace_first_and_are_masked(home: Path) -> None:
    asked: list[tuple[str, str]] = []

    def keyring(service: str, account: str) -> str | None:
        asked.append((service, account))
        return "hunter2-secret" if account == "eve:TOKEN" else None

    secret = {"TOKEN": {"description": "d", "secret": True, "required": True}}
    result = run(home, "printenv TOKEN", env=secret, keyring=keyring)
    assert result.output == "***\n"
    assert asked == [("enact-cli", "eve/tool:TOKEN"), ("enact-cli", "eve:TOKEN")]


def test_a_secret_comes_from_the_environment_where_there_is_no_keyring(home: Path) -> None:
    secret = {"TOKEN": {"description": "d", "secret": True}}
    script = "sh -c 'test \"$TOKEN\" = from-env && echo ok'"
    assert run(home, script, env=secret, environ={"TOKEN": "from-env"}).output == "ok\n"


def test_a_required_secret_that_is_missing_stops_the_run(home: Path) -> None:
    secret = {"TOKEN": {"description": "to log in", "secret": True, "required": True}}
    with refused("SECRET_MISSING") as refusal:
        run(home, "touch started", env=secret)
    assert "eve/tool:TOKEN" in refusal.error.next_actions[0]


@needs_bwrap
def test_secrets_are_not_on_the_command_line(home: Path) -> None:
    secret = {"TOKEN": {"description": "d", "secret": True}}
    script = 'sh -c \'cat /proc/*/cmdline | tr "\\0" " "\''
    result = run(home, script, env=secret, environ={"TOKEN": "s3cret-value"}, backend="bubblewrap")
    assert "***" not in result.output and "s3cret-value" not in result.output


@pytest.mark.parametrize("place", PLACES)
def test_a_tool_that_takes_too_long_is_stopped_with_its_children(home: Path, place: str) -> None:
    script = "sh -c 'trap \"\" TERM; sleep 61.25 & sleep 61.25'"
    started = time.monotonic()
    with refused("TIMEOUT") as refusal:
        run(home, script, backend=place, timeout="700ms")
    assert time.monotonic() - started < 10
    assert refusal.error.details["provider"] == place
    wait_until(lambda: not running("61.25"))


def test_a_group_that_ignores_being_asked_is_killed_without_a_marker() -> None:
    """As on a system without /proc, where nothing else would find it."""
    stubborn = "trap '' TERM; sleep 77.125 & while true; do sleep 1; done"
    command = Command(["sh", "-c", stubborn], {"PATH": os.environ["PATH"]})
    ended = execute(command, timeout_s=1)
    assert ended.reason == "timeout"
    assert ended.duration_s < KILL_WAIT_S
    wait_until(lambda: not running("77.125"))


@pytest.mark.parametrize("place", PLACES)
def test_a_tool_that_forks_away_does_not_survive(home: Path, place: str) -> None:
    script = "sh -c 'setsid sleep 62.5 & echo gone'"
    result = run(home, script, backend=place)
    assert result.output == "gone\n"
    wait_until(lambda: not running("62.5"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("stream", ["", ">&2"])
def test_a_tool_that_prints_for_ever_is_stopped(home: Path, place: str, stream: str) -> None:
    with refused("OUTPUT_TOO_LARGE") as refusal:
        run(home, f"sh -c 'yes {stream}'", backend=place, timeout="20s")
    assert len(json.dumps(refusal.error.payload())) < 20_000
    wait_until(lambda: not running("yes"))


@needs_bwrap
def test_a_tool_that_fills_the_disk_fills_only_its_own(home: Path) -> None:
    script = "sh -c 'dd if=/dev/zero of=/tmp/x bs=1M count=400 2>&1; df -m /tmp | tail -1'"
    result = run(home, script, backend="bubblewrap", timeout="60s")
    assert "No space left" in result.output
    look = "for d in / /dev/shm /dev /usr /etc; do touch $d/x 2>/dev/null && echo $d; done; true"
    (home / "second").mkdir()
    found = run(home / "second", f"sh -c '{look}'", backend="bubblewrap").output
    assert found == "/dev/shm\n", "which has a limit of its own"


PROBE = """
import json, os, socket, sys
home, port, own = sys.argv[1], int(sys.argv[2]), os.path.abspath(__file__)
def attempt(work):
    try:
        return repr(work())
    except Exception as error:
        return type(error).__name__
def write(path):
    with open(path, "w") as stream:
        stream.write("changed")
print(json.dumps({
    "home": attempt(lambda: os.listdir(home)),
    "secret": attempt(lambda: open(os.path.join(home, "secret.txt")).read()),
    "store": attempt(lambda: os.listdir(os.path.join(home, ".enact"))),
    "own file": attempt(lambda: write(own)),
    "own folder": attempt(lambda: write(os.path.join(os.path.dirname(own), "new"))),
    "port": attempt(lambda: socket.create_connection(("127.0.0.1", port), 2)),
    "environment": sorted(os.environ),
    "processes": len([p for p in os.listdir("/proc") if p.isdigit()]),
    "parent": attempt(lambda: open("/proc/1/environ").read()),
    "passwd": attempt(lambda: open("/etc/passwd").read()),
    "shadow": attempt(lambda: open("/etc/shadow").read()),
    "keys": attempt(lambda: os.listdir("/etc/ssl/private")),
    "kernel": [
        attempt(lambda path=path: open(path, "r+b").close())
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname")
    ],
}))
"""


def check_isolation(seen: dict[str, Any]) -> None:
    """None of what the probe tried has worked."""
    assert "secret.txt" not in seen["home"]
    assert seen["secret"] == "FileNotFoundError"
    assert "config.yaml" not in seen["store"]
    assert seen["own file"] in ("OSError", "PermissionError")
    assert seen["own folder"] in ("OSError", "PermissionError")
    assert seen["port"] in ("ConnectionRefusedError", "OSError", "TimeoutError")
    assert "AWS_SECRET_ACCESS_KEY" not in seen["environment"]
    assert "s3cret" not in seen["parent"]
    assert seen["processes"] < 10
    assert seen["keys"] in ("FileNotFoundError", "PermissionError")
    assert all(each in ("OSError", "PermissionError") for each in seen["kernel"])


@needs_bwrap
def test_the_sandbox_isolates(home: Path) -> None:
    (home / "secret.txt").write_text("s3cret")
    script = {
        "command": "python3 probe.py {{home}} {{port}}",
        "inputSchema": {
            "type": "object",
            "properties": {"home": {"type": "string"}, "port": {"type": "integer"}},
        },
    }
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        arguments = {"home": str(home), "port": port}
        folder = home / "registry"
        add_tool(folder, NAME, files={"probe.py": PROBE}, scripts={"run": script})
        use_directory(home, folder)
        service = make_service(home, environ={"AWS_SECRET_ACCESS_KEY": "s3cret"})
        service.install(NAME)
        result = service.run(NAME, arguments)
        socket.create_connection(("127.0.0.1", port), 2).close()
    assert result.provider == "bubblewrap"
    check_isolation(result.output)
    assert service.run(NAME, arguments).exit_code == 0, "its files are what they were"


@needs_bwrap
def test_the_network_brings_certificates_and_no_keys(home: Path) -> None:
    look = "ls -d /etc/ssl/certs /etc/ssl/private /etc/pki/tls/private 2>/dev/null; true"
    options: dict[str, Any] = {"backend": "bubblewrap", "x-network": True}
    output = run(home, f"sh -c '{look}'", **options).output
    assert "private" not in output
    assert ("certs" in output) == Path("/etc/ssl/certs").exists()


@needs_bwrap
def test_a_path_is_mounted_read_only_and_nothing_beside_it(home: Path, work: Path) -> None:
    (work / "given.txt").write_text("given")
    (work / "beside.txt").write_text("beside")
    schema = {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "file-path"}},
    }
    look = "cat $1; cat $(dirname $1)/beside.txt 2>/dev/null; echo x 2>/dev/null >$1; echo $?"
    script = {"command": f"sh -c '{look}' sh {{{{file}}}}", "inputSchema": schema}
    result = run(home, script, {"file": "given.txt"}, backend="bubblewrap")
    assert result.output.split("\n")[0].startswith("given")
    assert "beside" not in result.output
    assert (work / "given.txt").read_text() == "given"


@pytest.mark.parametrize("place", PLACES)
def test_a_directory_declared_writable_is_written_to(home: Path, work: Path, place: str) -> None:
    (work / "out").mkdir()
    rule = {"type": "string", "format": "directory-path", "x-access": "write"}
    schema = {"type": "object", "properties": {"out": rule}}
    script = {"command": "cp hello.txt {{out}}", "inputSchema": schema}
    run(home, script, {"out": "out"}, backend=place)
    assert (work / "out" / "hello.txt").read_text() == f"hello from {NAME}\n"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("path", "nothing-here"),
        ("file-path", "."),
        ("directory-path", "file.txt"),
        ("path", "/"),
        ("path", "/proc/self/environ"),
        ("path", "/dev/null"),
        ("path", "../../../../../../nonexistent"),
        ("path", "pipe"),
        ("write", "~/"),
        ("write", "~/.enact"),
        ("write", "/"),
        ("write", ".."),
        ("write", "~/.config"),
        ("write", "~/.config/agentpack"),
        ("write", "~/.local/agentpack/enact-sessions"),
    ],
)
def test_a_path_that_must_not_be_given_is_refused(
    home: Path, work: Path, kind: str, value: str
) -> None:
    (work / "file.txt").write_text("x")
    os.mkfifo(work / "pipe")
    (home / ".config" / "agentpack").mkdir(parents=True)
    (home / ".local" / "agentpack" / "enact-sessions").mkdir(parents=True)
    rule = {"type": "string", "format": "path" if kind == "write" else kind}
    rule |= {"x-access": "write"} if kind == "write" else {}
    schema = {"type": "object", "properties": {"p": rule}}
    with refused("INVALID_ARGUMENTS"):
        run(home, {"command": "echo {{p}}", "inputSchema": schema}, {"p": value})


def test_a_link_is_followed_and_what_it_points_to_is_what_the_tool_gets(
    home: Path, work: Path
) -> None:
    (work / "real.txt").write_text("real")
    (work / "link.txt").symlink_to("real.txt")
    (home / "also.txt").symlink_to(work / "real.txt")
    rule = {"type": "array", "items": {"type": "string", "format": "path"}}
    script = {
        "command": "printf %s {{files}}",
        "inputSchema": {"type": "object", "properties": {"files": rule}},
    }
    result = run(home, script, {"files": ["link.txt", "~/also.txt"]})
    assert result.output == [str(work / "real.txt")] * 2


@pytest.mark.parametrize("section", [{"default": "banana"}, {"default": "remote"}, {"fallback": 5}])
def test_an_unknown_backend_is_never_the_host(
    home: Path, work: Path, section: dict[str, Any]
) -> None:
    folder = home / "registry"
    add_tool(folder, NAME, scripts={"run": "touch /tmp/never"})
    use_directory(home, folder, execution=section)
    service = make_service(home)
    assert service.install(NAME).success is True
    (work / "x.csv").write_text("a\n1\n")
    for act in (
        lambda: service.run(NAME),
        lambda: service.call(service.projection().callables["eve__tool"], {}),
        lambda: service.run("agentpack/csv/stats", {"file": "x.csv"}),
    ):
        with refused("CONFIG_INVALID") as refusal:
            act()
        assert "execution" in refusal.error.message


def test_without_a_sandbox_only_the_built_in_tools_run(
    home: Path, work: Path, tmp_path: Path
) -> None:
    folder = home / "registry"
    add_tool(folder, NAME)
    add_tool(folder, "eve/imaged", scripts={"run": "true"}, **{"from": "alpine:latest"})
    use_directory(home, folder)
    (work / "x.csv").write_text("a\n1\n")
    service = make_service(home, environ={"PATH": path_without_bwrap(tmp_path / "bin")})
    for name in (NAME, "eve/imaged"):
        with refused("PROVIDER_UNAVAILABLE"):
            service.run(name)
    assert service.run("agentpack/csv/stats", {"file": "x.csv"}).provider == "direct"
    for backend in ("docker", "podman", "container", "bubblewrap"):
        configure(home, trust={"policy": "allow"}, registry={"url": str(folder)},
                  execution={"default": backend})  # fmt: skip
        with refused("PROVIDER_UNAVAILABLE"):
            service.run(NAME)


def test_the_host_is_used_when_the_configuration_says_so(
    home: Path, tools: Path, tmp_path: Path
) -> None:
    add_tool(tools, NAME)
    service = make_service(home, environ={"PATH": path_without_bwrap(tmp_path / "bin")})
    for execution in (
        {"default": "local"},
        {"default": "bubblewrap", "fallback": "local"},
        {"trusted_scopes": ["eve/*"]},
    ):
        use_directory(home, tools, execution=execution)
        assert service.run(NAME).provider == "local"
    use_directory(home, tools, execution={"trusted_scopes": ["eve"]})
    with refused("PROVIDER_UNAVAILABLE"):
        service.run(NAME)


def test_dagger_without_its_sdk_says_what_to_install(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dagger", None)  # it may be installed here
    with refused("PROVIDER_UNAVAILABLE") as refusal:
        run(home, "true", backend="dagger")
    assert "fleet-agentpack[dagger]" in refusal.error.message


def test_output_that_is_json_is_parsed_and_held_against_the_schema(home: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    cases = {'{"n": 1}': {"n": 1}, '{"n": "x"}': None, "not json": None, "[1]": None}
    for number, (printed, expected) in enumerate(cases.items()):
        place = home / str(number)
        script = {"command": "cat out.txt", "outputSchema": schema}
        if expected is None:
            with refused("OUTPUT_INVALID"):
                run(place, script, files={"out.txt": printed})
        else:
            assert run(place, script, files={"out.txt": printed}).output == expected
    assert run(home / "list", "cat out.txt", files={"out.txt": "[1, 2]"}).output == [1, 2]
    assert run(home / "text", "cat out.txt", files={"out.txt": "{ no"}).output == "{ no"
    assert run(home / "bytes", "printf \\\\377").output == "\ufffd"


def test_a_failing_tool_says_how_it_failed(home: Path) -> None:
    with refused("EXECUTION_FAILED") as refusal:
        run(home, "sh -c 'echo out; echo why >&2; exit 7'")
    details = refusal.error.details
    assert (details["exit_code"], details["stdout"], details["stderr"]) == (7, "out\n", "why\n")
    with refused("PROVIDER_UNAVAILABLE"):
        run(home / "second", "no-such-program")


def test_an_instruction_tool_gives_its_text(home: Path) -> None:
    folder = home / "registry" / "carol/review/1.0.0"
    folder.mkdir(parents=True)
    header = "name: carol/review\nversion: 1.0.0\ndescription: Review\n"
    (folder / "SKILL.md").write_text(f"---\n{header}---\n\n# How to review\n\n---\n\nRead.\n")
    use_directory(home, home / "registry")
    service = make_service(home)
    result = service.run("carol/review")
    assert (result.output, result.provider) == ("# How to review\n\n---\n\nRead.", "instructions")
    service.install("carol/review")
    tool = service.projection().callables["carol__review"]
    assert "How to review" in service.call(tool, {"topic": "x"}).output


def test_scripts_are_chosen_by_name(home: Path, tools: Path) -> None:
    add_tool(tools, NAME, scripts={"one": "echo 1", "two": "echo 2"})
    use_directory(home, tools, execution={"default": "local"})
    service = make_service(home)
    assert service.run(f"{NAME}:two").output == "2\n"
    assert service.run(f"{NAME}:one@1.0.0").output == "1\n"
    for wrong in (NAME, f"{NAME}:three"):
        with refused("SCRIPT_NOT_FOUND") as refusal:
            service.run(wrong)
        assert refusal.error.details["scripts"] == ["one", "two"]


def test_a_run_that_is_not_installed_leaves_nothing(
    service: EnactService, home: Path, tools: Path
) -> None:
    add_tool(tools, NAME)
    use_directory(home, tools, execution={"default": "local"})
    before = {*home.rglob("*")}
    assert service.run(NAME).output == f"hello from {NAME}\n"
    new = {*home.rglob("*")} - before
    assert {each for each in new if each.is_file()} == {
        home / ".local/agentpack/enact-runs" / name for name in (".lock", "eve__tool.jsonl")
    }


def test_a_hidden_tool_runs_from_its_installed_copy(
    service: EnactService, home: Path, tools: Path
) -> None:

    add_tool(tools, NAME)
    use_directory(home, tools, execution={"default": "local"})
    service.install(NAME)
    service.toolsets.create("none")
    service.toolsets.remove("none", NAME)
    service.toolsets.use("none")
    assert service.projection().callables == {}
    add_tool(tools, NAME, "2.0.0")
    service.run(NAME)
    assert service.store.tools().tools == {NAME: "1.0.0"}


def test_progress_is_reported_and_can_stop_the_run(home: Path, tools: Path) -> None:
    add_tool(tools, NAME, scripts={"run": "sleep 63.75"})
    use_directory(home, tools, execution={"default": "local"})
    told: list[str] = []

    class Stop(Exception):
        pass

    def report(_done: float, _total: float | None, text: str) -> None:
        told.append(text)
        if "running" in text:
            raise Stop

    with pytest.raises(Stop):
        make_service(home).run(NAME, report=report)
    assert told[0] == f"fetching {NAME}"
    assert "has been running" in told[1]
    wait_until(lambda: not running("63.75"))
