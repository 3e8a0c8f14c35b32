"""S1: an image named by a tag, which is moved after the audit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.enact.settings import ContainerSettings
from tests.enact.attacks.publisher import NAME
from tests.enact.fake_registry import FakeRegistry
from tests.enact.kit import add_tool, configure, make_service, refused, tool_bundle
from tests.enact.test_trust import ALICE, VERSION, endorse, trust
from tests.enact.test_trust import NAME as SIGNED

__all__ = ["trust"]  # a fixture

DIGEST = "registry.example.test/tool@sha256:" + "a" * 64
# A container program that keeps what it is asked, and knows images by tag.
ENGINE = """#!/bin/sh
echo "$@" >> "$HOME/asked"
case "$1 $2" in
"image inspect") shift 4; cat "$HOME/images/$(echo "$1" | tr / _)" ;;
"pull "*) exit 1 ;;
"run "*) echo ran ;;
esac
"""


def engine(home: Path, images: dict[str, dict[str, Any]]) -> ContainerSettings:
    program = home / "bin" / "podman"
    program.parent.mkdir(exist_ok=True)
    program.write_text(ENGINE)
    program.chmod(0o755)
    (home / "images").mkdir(exist_ok=True)
    for name, facts in images.items():
        (home / "images" / name.replace("/", "_")).write_text(json.dumps([facts]))
    return ContainerSettings(str(program))


def publish(home: Path, image: str, policy: str = "allow", **images: Any) -> EnactService:
    add_tool(home / "registry", NAME, **{"from": image, "scripts": {"run": "true"}})
    configure(home, trust={"policy": policy}, registry={"url": str(home / "registry")})
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    return make_service(home, environ=environ, container=engine(home, images))


def asked(home: Path) -> list[str]:
    return (home / "asked").read_text().splitlines()


@pytest.mark.parametrize(
    ("facts", "pinned"),
    [
        ({"Id": "sha256:" + "b" * 64, "RepoDigests": [DIGEST]}, DIGEST),
        ({"Id": "b" * 64, "RepoDigests": ["localhost/tool@sha256:" + "c" * 64]}, "b" * 64),
        ({"Id": "b" * 64}, "b" * 64),
    ],
    ids=["from a registry", "made here", "no digests"],
)
def test_a_tag_that_moves_after_the_install_changes_nothing(
    home: Path, facts: dict[str, Any], pinned: str
) -> None:
    service = publish(home, "tool:1", **{"tool:1": facts})
    answer = service.install(NAME)
    receipt = json.loads((home / ".enact/receipts" / NAME / "1.0.0.json").read_text())
    assert receipt["image"] == pinned
    assert pinned in str(answer.permissions)
    engine(home, {"tool:1": {"Id": "sha256:" + "e" * 64}})  # the tag now names another image
    service.run(NAME)
    assert f" {pinned} true" in asked(home)[-1] and "tool:1" not in asked(home)[-1]


def test_an_image_that_could_not_be_pinned_does_not_run(home: Path) -> None:
    service = publish(home, "tool:1")
    assert "was not pinned" in str(service.install(NAME).warnings)
    with refused("PROVIDER_UNAVAILABLE") as refusal:
        service.run(NAME)
    assert "enact__install" in refusal.error.next_actions[0]
    assert not [line for line in asked(home) if line.startswith("run ")]


@pytest.mark.parametrize(("image", "fine"), [("tool:1", False), ("tool", False), (DIGEST, True)])
def test_a_tag_cannot_have_been_audited(
    service: EnactService,
    registry: FakeRegistry,
    trust: Callable[..., None],
    image: str,
    fine: bool,
) -> None:
    fields = {"from": image, "scripts": {"run": "true"}}
    digest = registry.publish(SIGNED, VERSION, tool_bundle(SIGNED, **fields))
    endorse(registry, digest, email=ALICE)
    trust("github:alice")
    if fine:
        assert service.install(SIGNED).success
        return
    for act in (service.install, service.run):
        with refused("TRUST_REFUSED") as refusal:
            act(SIGNED)
        assert "tag" in refusal.error.message
    trust("github:alice", policy="allow")
    service.install(SIGNED)
    trust("github:alice")
    with refused("TRUST_REFUSED"):
        service.run(SIGNED)
