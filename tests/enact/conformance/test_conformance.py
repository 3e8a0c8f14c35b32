"""The same cases against every backend; what does not hold somewhere is documented, and is so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleet_agentpack.enact.errors import EnactError
from tests.enact.conformance.cases import CASES
from tests.enact.conformance.places import DAGGER_IMAGE, DOCKER_IMAGE, KINDS, OUTSIDE, Place
from tests.enact.conformance.record import keep, recorded
from tests.enact.test_container import IMAGE, image

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
def place(request: pytest.FixtureRequest, home: Path, work: Path) -> Place:
    """A backend, with an image that it knows."""
    kind = KINDS[request.param]
    if kind.name == "podman":
        return Place(kind, home, work, IMAGE, request.getfixturevalue("image"))
    if kind.name == "docker":
        return Place(kind, home, work, request.getfixturevalue("docker_image"))
    return Place(kind, home, work, DAGGER_IMAGE if kind.name == "dagger" else None)


@pytest.fixture(scope="module")
def docker_image() -> str:
    """An image with busybox in docker, where an engine runs."""
    if not shutil.which("docker"):
        pytest.skip("docker is not installed")
    found = subprocess.run(
        ["docker", "version"], capture_output=True, env={**os.environ, **OUTSIDE}
    )
    if found.returncode:
        pytest.skip("no docker engine runs here")
    return DOCKER_IMAGE


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
