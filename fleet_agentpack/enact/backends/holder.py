"""The container that makes a network for another one, in docker: it runs our Python and no image's.

Its image is an empty one of ours, so that nothing of a publisher runs in it: the machine's own
system, read-only, is all that it has.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleet_agentpack.enact.backends.job import SYSTEM, python_places
from fleet_agentpack.kit import process

EMPTY = "localhost/fleet-agentpack/nothing:1"  # no registry can have another one of this name
ENGINE_S = 60.0


def image(base: Sequence[str], env: Mapping[str, str]) -> str:
    """The empty image, made where there is none. Raises `OSError`."""
    known = [*base, "image", "inspect", EMPTY]
    if process.run(known, env=env, timeout_s=ENGINE_S).status:
        nothing = io.BytesIO()
        tarfile.open(fileobj=nothing, mode="w").close()
        argv = [*base, "import", "-", EMPTY]
        made = process.run(argv, env=env, stdin=nothing.getvalue(), timeout_s=ENGINE_S)
        if made.status:
            raise OSError(made.complaint[-300:])
    return EMPTY


def options(name: str, folder: Path, user: str, home: Path) -> Iterator[str]:
    """How such a container is run; `folder` has the socket over which it hands on another one."""
    yield from ("run", "--rm", "--interactive", "--name", name, "--entrypoint", "")
    yield from ("--network", "none", "--read-only", "--user", user, "--log-driver", "none")
    yield from ("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", "8")
    yield from ("--security-opt", "label=disable")  # it has to reach a socket of ours
    for place in dict.fromkeys([*_system(), *python_places(home), folder]):
        yield from ("--mount", f"type=bind,source={place.resolve()},target={place},readonly")


def _system() -> Iterator[Path]:
    places = map(Path, ("/usr", *SYSTEM, "/etc/ld.so.cache", "/nix/store"))
    return (each for each in places if each.exists())
