"""Builds in Dagger without an engine: a double of its SDK."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_agentpack.enact.permissions import Permissions
from tests.enact.kit import refused
from tests.enact.test_build import builds, kept
from tests.enact.test_dagger import NAME, Made, calls, engine, files

__all__ = ["engine"]  # a fixture

STEPS = {"build": ["make <<E", "make install"], "x-build-network": ["*"]}
QUIET = {**STEPS, "x-build-network": False}


def texts(home: Path) -> list[list[str]]:
    """The builds that an engine was asked for, one for each task."""
    return [each.splitlines() for each in files(home)["enact.Dockerfile"]]


def test_a_tool_is_built_once_and_runs_in_the_image_that_was_made(home: Path, engine: Made) -> None:
    declared = {"TOKEN": {"description": "a token", "secret": True}}
    service = engine(**QUIET, env=declared, granted=Permissions(variables=("TOKEN",)))
    for _ in range(2):
        assert service.run(NAME).output == "out"
    build, first, second = texts(home)
    (folder,) = kept(home)
    archive = folder / "tree" / "image.tar"
    assert archive.read_bytes() == b"an archive"
    (imported,) = {each[3][0] for each in calls(home, "file") if each[1] == "dag.host"}
    assert imported == str(archive)
    assert [each[3] for each in calls(home, "with_directory") if each[3][0] == "/workspace"] == [
        ["/workspace", f"dag.host.directory('{home}/.enact/tools/{NAME}/1.0.0')"]
    ], "a run has no other files than those of its image"
    assert build[1].startswith("COPY --chown=65532:65532 --from=")
    assert "USER 65532:65532" in build, "nobody's, with limits for its processes"
    assert build[-1].startswith("RUN --network=none --mount=type=tmpfs")
    assert "TOKEN" not in str(build) and "make" not in str(build)
    for run in (first, second):
        assert run[1].strip() == 'COPY --chown=0:0 ["image/", "/"]', "which a run cannot change"
        assert "env=TOKEN" in run[-1]


def test_a_build_has_the_network_that_was_granted_to_it(home: Path, engine: Made) -> None:
    service = engine(**STEPS)
    service.grants.allow(NAME, Permissions(build=("files.example",)))
    with refused("PROVIDER_UNAVAILABLE") as told:
        service.run(NAME)
    assert "--build-network '*'" in str(told.error.payload())
    service.grants.allow(NAME, Permissions(build=("*",)))
    service.run(NAME)
    build, run = texts(home)
    assert "--network" not in build[-1]
    assert "--network=none" in run[-1], "and a run does not"


def test_a_build_that_fails_is_told_and_nothing_is_kept(home: Path, engine: Made) -> None:
    with refused("BUILD_FAILED") as told:
        engine({"code": 7, "stderr": "no compiler"}, **QUIET).run(NAME)
    assert "exited with code 7: no compiler" in told.error.message
    assert kept(home) == [] and list(builds(home).glob("*.part")) == []


STOPPED = {
    "writes": ("wrote more than 1 MiB", {"fills": True}),
    "takes": ("did not finish within 2 s", {"takes_s": 60}),
    "prints": ("printed more than", {"stdout": "x" * (16 * 1024**2 + 1)}),
}


@pytest.mark.parametrize("how", STOPPED)
def test_a_build_within_limits(home: Path, engine: Made, how: str) -> None:
    reason, said = STOPPED[how]
    limits = {"buildSize": "1MiB", "buildTimeout": "2s"}
    with refused("BUILD_FAILED") as told:
        engine(said, **QUIET, execution=limits).run(NAME)
    assert reason in told.error.message
    assert kept(home) == []
    assert len(texts(home)) == 1


def test_an_engine_that_fails_is_not_the_build(home: Path, engine: Made) -> None:
    with refused("PROVIDER_UNAVAILABLE"):
        engine({"breaks": True}, **QUIET).run(NAME)


def test_an_archive_that_was_changed_is_made_again(home: Path, engine: Made) -> None:
    service = engine(**QUIET)
    service.run(NAME)
    (folder,) = kept(home)
    (folder / "tree" / "image.tar").write_bytes(b"forged")
    service.run(NAME)
    assert len(texts(home)) == 4
    assert (folder / "tree" / "image.tar").read_bytes() == b"an archive"
    service.uninstall(NAME)
    assert kept(home) == []
