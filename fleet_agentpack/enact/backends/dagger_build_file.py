"""The text of the build in which a Dagger engine carries out a task, and of its command.

Only a build has a switch for the network. The image is copied, so that none of its own instructions
(ONBUILD) run; of a caller and a publisher, nothing is in the text but plain variables.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType

from fleet_agentpack.enact.backends.child import MARKER

USER = "65532:65532"  # nobody's: a tool works on copies, which belong to this user
SCRIPT = "/.enact-run"
STDIN = "/.enact-stdin"
TOLD = "/.enact-told"
_SCRATCH = ("/tmp", "/var/tmp")  # noqa: S108
_LAST_SCRATCH = "/dev/shm"  # noqa: S108 - always there, and always small
# Both outputs up to a limit, beyond which the command gets SIGPIPE. They are files, and so is its
# exit code: what a container itself prints, an engine reads into memory and writes into its log.
# What the command leaves running may hold them open for a moment. What a build writes is measured
# from within, since nothing outside can see it before the end.
_BOUNDED = """
told={told} limit={limit}
rm -f $told/* && mkfifo $told/out $told/err || exit
head -c {most} <$told/out >$told/stdout & out=$!
head -c {most} <$told/err >$told/stderr & err=$!
end_rest() {{
  for each in /proc/[0-9]*; do
    case " 1 $$ $out $err " in *" ${{each#/proc/}} "*) ;; *) kill -9 "${{each#/proc/}}" ;; esac
  done 2>/dev/null
}}
written() {{ set -- $(du -skx / 2>/dev/null); echo $((${{1:-0}} - first)); }}
check() {{ [ "$(written)" -le $limit ] || {{ : >$told/large; end_rest; }}; }}
if [ -z "$limit" ]; then
  "$@" >$told/out 2>$told/err; code=$?
else
  first=0; first=$(written)
  "$@" >$told/out 2>$told/err & job=$!
  while sleep 1; kill -0 $job 2>/dev/null; do check; done
  wait $job; code=$?
  check; chmod -R a+rX,go-w .
fi
rest=15
while [ $rest -gt 0 ] && {{ kill -0 $out || kill -0 $err; }} 2>/dev/null; do
  sleep 0.02; rest=$((rest - 1))
done
end_rest; wait $out $err
echo $code >$told/code
"""


def scratch(given: Sequence[str]) -> list[str]:
    """The directories of scratch space: an empty one must not hide what a tool was given."""
    paths = [PurePosixPath(each) for each in given]
    free = [each for each in _SCRATCH if not any(path.is_relative_to(each) for path in paths)]
    return free or [_LAST_SCRATCH]


def script(argv: Sequence[str], stdin: str = "") -> str:
    """What a shell in the image runs."""
    return f"exec {shlex.join(argv)}{f' < {stdin}' if stdin else ''}\n"


def bounded(argv: Sequence[str], most: int, limit_bytes: int | None = None) -> list[str]:
    """A command with limits for its outputs, and for what it writes if that is a build."""
    limit = "" if limit_bytes is None else str(limit_bytes // 1024)
    return ["/bin/sh", "-c", _BOUNDED.format(told=TOLD, most=most + 1, limit=limit), "sh", *argv]


def base(source: str, owner: str = "") -> str:
    """How every build begins: with a copy of an image, its owner's if one is named."""
    words = [f"--from={source}", '["/", "/"]'] if source else ['["image/", "/"]']
    return " ".join(["FROM scratch\nCOPY", *([f"--chown={owner}"] if owner else []), *words, "\n"])


def text(
    *,
    source: str,
    folder: str,
    variables: Mapping[str, str],
    network: bool,
    disk_bytes: int,
    given: Sequence[str] = (),
    secrets: Mapping[str, str] = MappingProxyType({}),
    owner: str = "",
) -> str:
    """The build that carries out its script in a folder of an image.

    `source` is the image by digest, or empty for one that is in the context, and `owner` becomes
    the owner of all of it. `given` are paths of the user, `secrets` the names of variables with
    those of their values.
    """
    free = scratch(given)
    own = {"HOME": free[0], "TMPDIR": free[0]}
    mounts = [f"--mount=type=secret,id={each},env={name}" for name, each in secrets.items()]
    mounts += [f"--mount=type=tmpfs,target={each},size={disk_bytes}" for each in free]
    lines = [
        'COPY ["given/", "/"]',
        *(f"ENV {name}={_quoted(value)}" for name, value in _plain({**variables, **own})),
        f"WORKDIR {folder}",  # before the user, whose it would become
        f"USER {USER}",
        f"ARG {MARKER}",
        " ".join(
            ["RUN", *([] if network else ["--network=none"]), *mounts, f'["/bin/sh", "{SCRIPT}"]']
        ),
    ]
    return base(source, owner) + "\n".join(lines) + "\n"


def _plain(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Those that a line can hold."""
    for name, value in variables.items():
        if name.replace("_", "a").isalnum() and not {"\n", "\r"} & set(value):
            yield name, value


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'
