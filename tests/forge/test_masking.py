"""What a configuration shows never holds a secret, wherever somebody wrote it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.access import masked
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import jsonable
from tests.forge.registry import Site

SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    "written",
    [
        {"token": SECRET},
        {"tokens": [SECRET]},
        {"tokens": {"one": [SECRET]}},
        {"token": {"value": SECRET}},
        {"apiKeys": {"a": SECRET}},
        {"access_key": SECRET},
        {"deep": [[{"password": SECRET}]]},
        {"headers": {"X-Api-Key": SECRET}},
        {"headers": [f"Authorization: Bearer {SECRET}"]},
        {"headers": [f"x-api-key: {SECRET}"]},
        {"headers": [{"name": "Authorization", "value": f"Basic {SECRET}"}]},
        {"env": [{"key": "GITHUB_TOKEN", "value": SECRET}]},
        {"args": [f"--token={SECRET}"]},
        {"auth": f"Bearer {SECRET}"},
        {"mirrors": [f"https://me:{SECRET}@host.example.test/x"]},
        {"mirrors": [f"https://{SECRET}@host.example.test/x"]},
        {"note": f"see https://me:{SECRET}@host.example.test/ and https://other.example.test/"},
        {"url": f"https://host.example.test/x?sig={SECRET}"},
        {"url": f"https://host.example.test/#access_token={SECRET}"},
        {"pem": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"},
    ],
)
def test_a_secret_is_masked_wherever_it_is(
    forge: ForgeService, configure: Callable[..., None], written: dict[str, Any]
) -> None:
    configure(**written)
    answers = [forge.config_show(layout="yaml"), forge.config_get(next(iter(written)))]
    assert SECRET not in json.dumps(jsonable(answers))


@pytest.mark.parametrize("key", ["password", "pin_token", "apiKey"])
def test_a_secret_need_not_be_text(key: str) -> None:
    assert masked({key: 12345, "deep": [{key: True}]}) == {key: "***", "deep": [{key: "***"}]}


@pytest.mark.parametrize(
    "plain",
    [
        {"max_tokens": 4096},
        {"token_env": "MY_TOKEN"},
        {"note": "the basic idea: https://host.example.test/docs"},
        {"name": "token", "url": "https://host.example.test/registry.json"},
        {"list": [{"name": "plain", "value": "shown"}], "nothing": None, "token": ""},
        {"url": "https://host.example.test/r.json?ref=main&v=1.2.0&page=3#readme"},
        {"url": "${REGISTRY_URL}/registry.json"},
    ],
)
def test_what_is_no_secret_is_left_as_it_is(plain: dict[str, Any]) -> None:
    assert masked(plain) == plain


def test_errors_and_paths_do_not_repeat_a_password_in_a_url(
    forge: ForgeService, site: Site, configure: Callable[..., None]
) -> None:
    base = site.url.replace("http://", f"http://me:{SECRET}@")
    entry = {"name": "@acme/x", "version": "1.0.0", "checksum": f"sha256:{'0' * 64}"}
    site.put("/registry.json", {"plugins": [{**entry, "manifest_url": f"{base}/plugin.json"}]})
    site.put("/plugin.json", {"name": "@acme/x"})
    configure({"name": "r", "url": f"{base}/registry.json"})
    with pytest.raises(Exception, match="Checksum mismatch") as refused:
        forge.plugin_info("@acme/x", remote=True)
    assert SECRET not in json.dumps(refused.value.payload())  # type: ignore[attr-defined]
    row = {"name": "far", "type": "agent", "version": "1.0.0"}
    site.put("/api/v1/search?q=&type=agent&page=1&pageSize=100", {"results": [row], "total": 1})
    configure({"name": "s", "url": base, "type": "stockyard"})
    listed = forge.listing("agent", source="stockyard")
    assert listed.agents[0].path.startswith("http://***@")


def test_a_manifest_that_is_a_link_to_a_foreign_file_is_no_plugin(
    forge: ForgeService, work: Path, home: Path
) -> None:
    home.joinpath("private.json").write_text(json.dumps({"name": "evil", "auth": SECRET}))
    folder = work / ".fractary/plugins/evil"
    folder.mkdir(parents=True)
    (folder / "plugin.json").symlink_to(home / "private.json")
    assert jsonable(forge.plugin_list().plugins) == []
    with pytest.raises(Exception, match="not installed"):
        forge.plugin_manifest_text("evil")


def test_a_secret_may_be_a_number() -> None:
    shown = masked({"password": 12345, "max_tokens": 2048, "auth": {"api_key": 7}})
    assert shown == {"password": "***", "max_tokens": 2048, "auth": {"api_key": "***"}}
