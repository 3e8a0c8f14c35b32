"""The same cases against every backend; what does not hold somewhere is documented, and is so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet_agentpack.enact.errors import EnactError
from tests.enact.conformance.cases import CASES
from tests.enact.conformance.places import DAGGER_IMAGE, KINDS, OUTSIDE, Place
from tests.enact.conformance.record import keep, recorded
from tests.enact.test_container import IMAGE, image, root_of_image

__all__ = ["image"]  # a fixture

MARKS = {
    "podman": [pytest.mark.container],
    "docker": [pytest.mark.container],
    "dagger": [
        pytest.mark.dagger,
        pytest.mark.skipif(not DAGGER_IMAGE, reason="ENACT_DAGGER_IMAGE names no image"),
    ],
    "bubblewrap": [
        pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
    ],
    "local": [],
}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the cases look into /proc")


@pytest.fixture(params=[pytest.param(name, marks=MARKS[name]) for name in KINDS])
def place(request: pytest.FixtureRequest, home: Path, work: Path) -> Iterator[Place]:
    """A backend, with an image that it knows."""
    kind = KINDS[request.param]
    if kind.name == "podman":
        found = Place(kind, home, work, IMAGE, request.getfixturevalue("image"))
    elif kind.name == "docker":
        found = Place(kind, home, work, request.getfixturevalue("docker_image"))
    else:
        found = Place(kind, home, work, DAGGER_IMAGE if kind.name == "dagger" else None)
    yield found
    if kind.has_images:
        found.clear()


@pytest.fixture(scope="module")
def docker_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image with busybox in docker, where an engine runs."""
    if not shutil.which("docker") or docker("version").returncode:
        pytest.skip("no docker engine runs here")
    made = docker("import", "-", IMAGE, stdin=root_of_image(tmp_path_factory.mktemp("image")))
    if made.returncode:
        pytest.skip(f"docker cannot import an image: {made.stderr.decode()[-200:]}")
    yield IMAGE
    docker("rmi", "--force", IMAGE)


def docker(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environ = {"PATH": os.environ["PATH"], **OUTSIDE}
    return subprocess.run(["docker", *words], input=stdin, capture_output=True, env=environ)


@pytest.mark.parametrize("name", CASES)
def test_a_backend_keeps_its_word(place: Place, name: str) -> None:
    case, kind = CASES[name], place.kind
    if case.needs_image and not kind.has_images:
        pytest.skip(f"{kind.name} has no images")
    lack = kind.lacks.get(name)
    if lack and lack.applies:
        with pytest.raises((AssertionError, EnactError)):
            case.check(place)
    else:
        case.check(place)
    result = lack.said if lack else "yes"
    if not keep(kind.name, name, result):
        documented = recorded().get(kind.name, {}).get(name)
        assert documented == result, "run: python docs/enact_backends.py"
