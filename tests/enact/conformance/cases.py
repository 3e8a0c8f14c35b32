"""What every backend promises. A case raises `AssertionError` where a promise does not hold."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.permissions import Permissions
from tests.enact.conformance.places import Place

FILE = {"type": "string", "format": "file-path"}
FOLDER = {"type": "string", "format": "directory-path"}
WRITABLE = {**FOLDER, "x-access": "write"}
TEXT = {"type": "string"}
ODD = ("[slug]", "!a", "#b", "b*", "c d", "e?", "f\\g", "{h}", " j ", "ü")  # names of directories
# Fetches an address the way that the variables of a proxy say, with whatever is there.
FETCH = """
fetch() {
  if command -v python3 >/dev/null; then
    python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' "$1"
  else busybox wget -q -O - "$1" && echo
  fi 2>/dev/null || echo refused
}
"""


@dataclass(frozen=True)
class Case:
    """One promise."""

    name: str
    area: str
    promise: str
    check: Callable[[Place], None]
    needs_image: bool = False


CASES: dict[str, Case] = {}


def case(area: str, promise: str, *, needs_image: bool = False) -> Callable[..., None]:
    """Declare a promise; its name is the function's."""

    def declare(check: Callable[[Place], None]) -> None:
        CASES[check.__name__] = Case(check.__name__, area, promise, check, needs_image)

    return declare


def failing(place: Place, script: str, *codes: str, **given: object) -> EnactError:
    """The refusal of a run, which has one of these codes."""
    try:
        result = place.run(script, **given)  # type: ignore[arg-type]
    except EnactError as error:
        assert error.code in codes, f"{error.code}: {error.message}"
        return error
    raise AssertionError(f"it ran: {result.output!r}")


@case("files", "its own files are there and cannot be changed")
def own(place: Place) -> None:
    result = place.run("cat hello.txt; echo x > hello.txt; touch new; echo done")
    assert result.output == "hello from eve/case\ndone\n"
    folder = place.home / ".enact/tools/eve/case/1.0.0"
    assert (folder / "hello.txt").read_text() == "hello from eve/case\n"
    assert not (folder / "new").exists()


@case("files", "nothing else of the user's is there")
def private(place: Place) -> None:
    (place.home / "secret.txt").write_text("s3cret")
    args = {"folder": str(place.home)}  # text, since nobody could be given the whole home
    script = 'cat "$1/secret.txt"; ls "$1"; echo done'
    output = place.run(script, args, properties={"folder": TEXT})
    assert output.output == "done\n"


@case("files", "a file that is given can be read and not changed")
def given(place: Place) -> None:
    file = place.work / "given.txt"
    file.write_text("given")
    file.chmod(0o600)
    args = {"file": str(file)}
    script = 'cat "$1"; echo x > "$1"; echo; echo done'
    assert place.run(script, args, properties={"file": FILE}).output == "given\ndone\n"
    assert file.read_text() == "given"


@case("files", "what the user changes between two runs is there in the second")
def current(place: Place) -> None:
    file = place.work / "given.txt"
    for again, text in enumerate(("first", "second")):
        file.write_text(text)
        args = {"file": str(file)}
        result = place.run('cat "$1"', args, properties={"file": FILE}, again=again)
        assert result.output == text


@case("files", "`.git` in a directory that is given looks empty, whatever is around it")
def hidden(place: Place) -> None:
    for folder in (".", *ODD):
        git = place.work / folder / ".git"
        git.mkdir(parents=True)
        (git / "config").write_text("token")
        (git.parent / "seen").write_text("seen")
    args = {"folder": str(place.work)}
    script = 'cd "$1"; find . -type f | sort; find . -name config -exec cat {} +; echo done'
    expected = "".join(f"{each}\n" for each in sorted(["./seen", *(f"./{x}/seen" for x in ODD)]))
    output = place.run(script, args, properties={"folder": FOLDER}).output
    assert output.replace("token", "TOKEN") == f"{expected}done\n"


@case("directories", "what a tool makes, changes and deletes in a directory is so afterwards")
def written(place: Place) -> None:
    for name in ("kept", "changed", "deleted"):
        (place.work / name).write_text(name)
    script = 'cd "$1"; echo made > made; echo new > changed; rm deleted; mkdir d; echo x > d/x'
    place.run(script, {"out": str(place.work)}, properties={"out": WRITABLE})
    found = {
        str(path.relative_to(place.work)): path.read_text()
        for path in place.work.rglob("*")
        if path.is_file()
    }
    assert found == {"kept": "kept", "changed": "new\n", "made": "made\n", "d/x": "x\n"}


@case("directories", "what the user changes and deletes there meanwhile is so afterwards")
def both_sides(place: Place) -> None:
    for name in ("mine", "gone", "theirs", "old"):
        (place.work / name).write_text(name)
    edited = threading.Event()

    def edit(*_: object) -> None:
        if not edited.is_set():
            (place.work / "mine").write_text("mine, longer")
            (place.work / "gone").unlink()
            (place.work / "added").write_text("added")
            edited.set()

    script = 'cd "$1"; sleep 1.5; echo tool > theirs; rm old; echo made > made'
    args = {"out": str(place.work)}
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(place.work)
        listening.bind("live")
        place.run(script, args, properties={"out": WRITABLE}, report=edit)
        assert edited.is_set() and (place.work / "live").is_socket()
    found = {path.name: path.read_text() for path in place.work.iterdir() if path.is_file()}
    expected = {"mine": "mine, longer", "added": "added", "theirs": "tool\n", "made": "made\n"}
    assert found == expected


@case("directories", "what is hidden there stays, also where the tool deletes what is around it")
def covered(place: Place) -> None:
    (place.work / "d" / ".git").mkdir(parents=True)
    (place.work / "d" / ".git" / "config").write_text("token")
    (place.work / "d" / "x").write_text("x")
    script = 'rm -rf "$1/d" 2>/dev/null; echo done'
    output = place.run(script, {"out": str(place.work)}, properties={"out": WRITABLE}).output
    assert output == "done\n"
    assert not (place.work / "d" / "x").exists()
    assert [*place.work.rglob("config")], "it was deleted"


@case("directories", "what it makes belongs to the user, and nothing setuid is left")
def owner(place: Place) -> None:
    script = 'cp run.sh "$1/made"; chmod 6755 "$1/made"; echo done'
    place.run(script, {"out": str(place.work)}, properties={"out": WRITABLE})
    found = (place.work / "made").stat()
    assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())
    assert not found.st_mode & (stat.S_ISUID | stat.S_ISGID)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"reached")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def server() -> Iterator[int]:
    """A server on this machine; its port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        serving = threading.Thread(target=made.serve_forever, args=[0.05], daemon=True)
        serving.start()
        try:
            yield int(made.server_address[1])
        finally:
            made.shutdown()


@case("network", "none without a grant, not even this machine's")
def loopback(place: Place) -> None:
    with server() as port:
        args = {"url": f"http://127.0.0.1:{port}/"}
        script = f'{FETCH}fetch "$1"; grep -c : /proc/net/dev; echo done'
        result = place.run(script, args, properties={"url": TEXT})
    assert result.output == "refused\n1\ndone\n"


@case("network", "a host that was granted, and no other, through the proxy")
def host(place: Place) -> None:
    with server() as port, server() as other:
        hosts = (f"127.0.0.1:{port}",)
        script = f'unset no_proxy NO_PROXY; {FETCH}fetch "$1"; fetch "$2"'
        args = {"one": f"http://127.0.0.1:{port}/", "other": f"http://127.0.0.1:{other}/"}
        result = place.run(
            script,
            args,
            granted=Permissions(network=hosts),
            properties={"one": TEXT, "other": TEXT},
            **{"x-network": True},
        )
    assert result.output.split() == ["reached", "refused"]


@case("network", "a program that ignores the proxy reaches nothing")
def deaf(place: Place) -> None:
    with server() as port:
        script = f'{FETCH}unset http_proxy HTTP_PROXY; fetch "$1"'
        result = place.run(
            script,
            {"url": f"http://127.0.0.1:{port}/"},
            granted=Permissions(network=(f"127.0.0.1:{port}",)),
            properties={"url": TEXT},
            **{"x-network": True},
        )
    assert result.output.split() == ["refused"]


@case("variables", "those with a default or a grant, and no other of the server's")
def variables(place: Place) -> None:
    declared = {
        "GREETING": {"description": "d", "default": "hello world"},
        "MODE": {"description": "d"},
        "UNGRANTED": {"description": "d"},
    }
    environ = {"MODE": "fast", "UNGRANTED": "x", "AWS_SECRET": "x"}
    script = 'echo "$GREETING|$MODE|${UNGRANTED-none}|${AWS_SECRET-none}"'
    granted = Permissions(variables=("MODE",))
    result = place.run(script, environ=environ, granted=granted, env=declared)
    assert result.output == "hello world|***|none|none\n"


@case("variables", "a secret reaches the tool and is masked in its output")
def secret(place: Place) -> None:
    declared = {"TOKEN": {"description": "d", "secret": True}}
    result = place.run(
        'echo "${#TOKEN} $TOKEN"',
        environ={"TOKEN": "s3cret-value"},
        granted=Permissions(variables=("TOKEN",)),
        env=declared,
    )
    assert result.output == "12 ***\n"


@case("limits", "memory")
def memory(place: Place) -> None:
    script = "dd if=/dev/zero of=/dev/null bs=700M count=1 2>/dev/null && echo had it; echo done"
    assert "had it" not in outcome(place, script, limits={"memory": "256MiB"})


@case("limits", "processes")
def processes(place: Place) -> None:
    script = "i=0; while [ $i -lt 120 ]; do sleep 3 & i=$((i+1)); done; echo all of them"
    assert "all of them" not in outcome(place, script, limits={"processes": 60})


def outcome(place: Place, script: str, **given: object) -> str:
    """What a run printed, also where it was killed for it."""
    try:
        return str(place.run(script, **given).output)  # type: ignore[arg-type]
    except EnactError as error:
        assert error.code == "EXECUTION_FAILED", f"{error.code}: {error.message}"
        return str(error.details["stdout"])


@case("limits", "scratch space")
def scratch(place: Place) -> None:
    fill = 'dd if=/dev/zero of="$1/f" bs=1M count=40; wc -c < "$1/f" >&3'
    script = f"""
exec 3>&1
for each in "$TMPDIR" . /workspace / /tmp /var/tmp /run /etc /home /data; do
  sh -c '{fill}' sh $each 2>/dev/null || true
done
"""
    sizes = str(place.run(script, limits={"scratch": "16MiB"}).output).split()
    assert sizes and max(map(int, sizes)) <= 16 * 1024**2, sizes


@case("limits", "time: a run that takes too long ends, with all that it started")
def timeout(place: Place) -> None:
    started = time.monotonic()
    mark = f"{os.getpid()}{len(place.kind.name)}71"
    script = f"(trap '' TERM HUP; sleep {mark}) & sleep {mark}"
    failing(place, script, "TIMEOUT", timeout="4s" if place.kind.has_images else "1s")
    assert time.monotonic() - started < 40
    assert not running(mark)


@case("limits", "output: a run that prints for ever ends")
def output(place: Place) -> None:
    failing(place, "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done", "OUTPUT_TOO_LARGE")


@case("endings", "what it started in the background ends with it")
def background(place: Place) -> None:
    mark = f"{os.getpid()}{len(place.kind.name)}72"
    for quiet in ("</dev/null >/dev/null 2>&1", ""):  # or it keeps the tool's output open
        script = f"(sleep {mark} {quiet} &); echo done"
        assert place.run(script).output == "done\n"
        assert not running(mark)


def running(mark: str) -> bool:
    """Whether a process with this argument is left, after a moment in which it may go."""
    for _ in range(50):
        found = False
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as stream:
                found |= mark.encode() in stream.read().split(b"\0")
        if not found:
            return False
        time.sleep(0.1)
    return True


@case("endings", "the exit code is told, with what was printed")
def codes(place: Place) -> None:
    for code in (3, 141, 200):
        error = failing(place, f"echo said; exit {code}", "EXECUTION_FAILED")
        assert (error.details["exit_code"], error.details["stdout"].strip()) == (code, "said")


@case("endings", "a signal is told, with what was printed")
def signals(place: Place) -> None:
    script = "echo said; sh -c 'kill -9 $$'; exit $?"  # process 1 cannot kill itself
    error = failing(place, script, "EXECUTION_FAILED")
    assert error.details["exit_code"] in (137, -9) and error.details["stdout"].strip() == "said"


@case("input", "arguments arrive as JSON where the tool asks for it, else nothing does")
def stdin(place: Place) -> None:
    args = {"text": "ä $(x)"}
    result = place.run("cat", args, properties={"text": TEXT}, **{"x-stdin": "json"})
    assert result.output == args
    assert place.run("cat; echo end").output == "end\n"


@case("input", "an argument is one argument, whatever is in it")
def arguments(place: Place) -> None:
    text = "a 'b' \"c\" $(d) ${e} `f` \\ <<g\n#h"
    result = place.run('printf "%s" "$1"', {"text": text}, properties={"text": TEXT})
    assert result.output == text


@case("input", "an argument of 100 kB")
def long(place: Place) -> None:
    args = {"text": "x" * 100_000}
    assert place.run('echo "${#1}"', args, properties={"text": TEXT}).output == "100000\n"


@case("input", "its own files are at `/workspace`, and at `/work` where its command says so")
def workspaces(place: Place) -> None:
    result = place.run("cat /workspace/hello.txt", command="sh /work/run.sh")
    assert result.output == "hello from eve/case\n"


def building(place: Place, script: str, *build: str, **given: object) -> object:
    """What a tool prints that is installed, built and run, twice."""
    outputs = [place.run(script, build=[*build], again=each, **given).output for each in (0, 1)]  # type: ignore[arg-type]
    assert outputs[0] == outputs[1], f"it was built twice: {outputs}"
    return outputs[0]


@case("building", "once, in a copy of the tool's files, and never changed by a run")
def built(place: Place) -> None:
    steps = ("cat hello.txt > made.txt; date >> made.txt", "mkdir d && mv made.txt d/x")
    script = "echo x > d/x; touch new; cat d/x; [ -e new ] || echo done"
    output = building(place, script, *steps)
    lines = str(output).splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("hello from eve/case", "done", 3)


@case("building", "what is made elsewhere in the image is there in a run", needs_image=True)
def elsewhere(place: Place) -> None:
    assert building(place, "cat /opt/made", "mkdir -p /opt && echo made > /opt/made") == "made\n"


@case("building", "no network without a grant, and no file or variable of the user's")
def alone(place: Place) -> None:
    (place.home / "secret.txt").write_text("s3cret")
    with server() as port:
        look = f"{FETCH}fetch http://127.0.0.1:{port}/; cat {place.home}/secret.txt; env"
        step = f"({look}) > made.txt 2>&1; true"
        declared = {"TOKEN": {"description": "d", "secret": True}}
        output = building(
            place,
            "cat made.txt",
            step,
            environ={"TOKEN": "s3cret"},
            granted=Permissions(variables=("TOKEN",)),
            env=declared,
        )
    assert "refused" in str(output)
    assert "reached" not in str(output) and "***" not in str(output) and "TOKEN" not in str(output)


@case("building", "one that takes too long ends, with all that it started")
def slow_build(place: Place) -> None:
    mark = f"{os.getpid()}{len(place.kind.name)}73"
    step = f"(trap '' TERM HUP; sleep {mark}) & sleep {mark}"
    failing(place, "true", "BUILD_FAILED", build=step, limits={"buildTimeout": "4s"})
    assert not running(mark)


@case("building", "one that writes too much ends, in many files or in one")
def large_build(place: Place) -> None:
    many = "i=0; while :; do dd if=/dev/zero of=f$i bs=1M count=2 2>/dev/null; i=$((i+1)); done"
    one = "dd if=/dev/zero of=f bs=1M count=100"
    limits = {"buildSize": "8MiB", "buildTimeout": "120s"}
    for step in (many, one):
        failing(
            place, "true", "BUILD_FAILED", "PERMISSION_REQUIRED", build=step, limits=dict(limits)
        )


@case("missing parts", "a program that is not there is named")
def program(place: Place) -> None:
    codes = ("EXECUTION_FAILED", "PROVIDER_UNAVAILABLE")
    error = failing(place, "", *codes, command="no-such-program x")
    assert "no-such-program" in f"{error.message} {error.details}"


@case("missing parts", "an image that cannot be pulled is not the tool's fault", needs_image=True)
def image(place: Place) -> None:
    missing = {"from": f"{place.image}-none"}
    error = failing(place, "echo x", "PROVIDER_UNAVAILABLE", **missing)
    assert f"{place.image}-none" in error.message
