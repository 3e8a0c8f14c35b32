"""`agentpack.yaml`: what is accepted, what is refused, with which code and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_agentpack.deploy import manifest, manifest_file
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.targets import OPTIONS, PROJECT_ONLY

HEAD = "version: 1\nprofiles:\n  default: {}\n"
MODULE = "modules:\n- id: {id}\n  type: prompt\n  source: {{local_path: {{path: x.md}}}}\n"


def load(tmp_path: Path, text: str | bytes) -> manifest.Manifest:
    data = text.encode() if isinstance(text, str) else text
    (tmp_path / "agentpack.yaml").write_bytes(data)
    return manifest_file.load(tmp_path, OPTIONS, PROJECT_ONLY)


def refusal(tmp_path: Path, text: str | bytes) -> DeployError:
    with pytest.raises(DeployError) as raised:
        load(tmp_path, text)
    return raised.value


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DeployError) as raised:
        manifest_file.load(tmp_path, OPTIONS, PROJECT_ONLY)
    assert raised.value.code == "E_CONFIG_MISSING"
    assert raised.value.details["next_actions"] == [
        "import_config",
        "run_init",
        "retry_with_repo",
        "retry_command",
    ]


@pytest.mark.parametrize("version", ["1", "+1", "0x1", "0o1", "0b1"])
def test_versions_that_are_one(tmp_path: Path, version: str) -> None:
    load(tmp_path, HEAD.replace("version: 1", f"version: {version}"))


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("2", "E_CONFIG_UNSUPPORTED_VERSION"),
        ("0", "E_CONFIG_UNSUPPORTED_VERSION"),
        ("01", "E_CONFIG_INVALID"),
        ("1.0", "E_CONFIG_INVALID"),
        ("-1", "E_CONFIG_INVALID"),
        ('"1"', "E_CONFIG_INVALID"),
        ("4294967297", "E_CONFIG_INVALID"),
    ],
)
def test_versions_that_are_not(tmp_path: Path, version: str, code: str) -> None:
    error = refusal(tmp_path, HEAD.replace("version: 1", f"version: {version}"))
    assert error.code == code
    assert error.details["reason_code"] == code.removeprefix("E_").lower()


@pytest.mark.parametrize("written", ["12", "true", "1.50", "null", "~", "2026-01-24", "yes"])
def test_any_plain_scalar_is_text_where_text_is_wanted(tmp_path: Path, written: str) -> None:
    found = load(tmp_path, HEAD + MODULE.format(id=written))
    assert found.modules[0].id == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a\n- b\n",
        HEAD + "modules: null\n",
        HEAD + "modules: ~\n",
        HEAD + MODULE.format(id="p:x") + "  enabled: yes\n",
        HEAD + MODULE.format(id="p:x") + "  enabled:\n",
        HEAD + MODULE.format(id="p:x") + "  tags: base\n",
        HEAD + "targets:\n  codex:\n",
        HEAD + "targets:\n  codex: {mode: copy, scope: user}\n",
        HEAD + "targets:\n  codex: {mode: files, scope: User}\n",
        HEAD + "version: 1\n",
        HEAD + "profiles: {}\n",
        HEAD.replace("default: {}", "default: {}\n  default: {}"),
        HEAD + "targets: {codex: {mode: files, scope: user, options: {a: 1, a: 2}}}\n",
        HEAD + "---\nversion: 1\n",
        HEAD + "\tmodules: []\n",
        "\ufeff" + HEAD,
        HEAD + MODULE.format(id="p:x").replace("prompt", "Prompt"),
    ],
)
def test_what_is_not_a_manifest(tmp_path: Path, text: str) -> None:
    error = refusal(tmp_path, text)
    assert error.code == "E_CONFIG_INVALID"
    assert error.details["next_actions"] == ["fix_config", "retry_command"]


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "modules:\ntargets:\n",
        "version: 1\nprofiles:\n  default:\n",
        HEAD + "targets:\n  codex: {mode: files, scope: user, options: }\n",
        HEAD + MODULE.format(id="p:x") + "  tags:\n  metadata: {a: {b: 1}}\n  unknown: 5\n",
        HEAD + "extra: {anything: [1, 2]}\n<<: {a: 1}\n5: five\n",
        "%YAML 1.2\n---\n" + HEAD + "...\n",
        HEAD.replace("\n", "\r\n"),
        '{"version": 1, "profiles": {"default": {}}, "modules": []}',
        HEAD + MODULE.format(id="p:x").replace("{path: x.md}}", "{path: x.md}, git: null}"),
    ],
)
def test_what_is_lenient(tmp_path: Path, text: str) -> None:
    load(tmp_path, text)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    assert refusal(tmp_path, b"version: 1\n# \xff\n").code == "E_UNEXPECTED"


def test_the_order_of_the_checks(tmp_path: Path) -> None:
    """Each text has every later fault as well; the first one is told."""
    modules = (
        "modules:\n"
        "- {id: a:b, type: prompt, source: {local_path: {path: x}}}\n"
        "- {id: a:b, type: prompt, targets: [mars], source: {}}\n"
    )
    targets = "targets:\n  cursor: {mode: files, scope: user}\n  mars: {mode: files, scope: user}\n"
    everything = f"version: 9\nprofiles: {{}}\n{targets}{modules}"
    error = refusal(tmp_path, everything)
    assert error.code == "E_CONFIG_UNSUPPORTED_VERSION"
    assert error.details["supported"] == [1] and error.details["version"] == 9
    error = refusal(tmp_path, everything.replace("9", "1", 1))
    assert error.details["allowed_scopes"] == ["project", "both"]
    near = everything.replace("9", "1", 1).replace("cursor", "codex").replace("mars", "cursr")
    error = refusal(tmp_path, near)
    assert error.code == "E_TARGET_UNSUPPORTED" and "did you mean cursor?" in error.message
    assert error.details["reason_code"] == "target_not_compiled"
    assert error.details["next_actions"] == [
        "inspect_help_json",
        "edit_manifest_targets",
        "rebuild_with_target_feature",
        "retry_command",
    ]
    error = refusal(tmp_path, f"version: 1\nprofile: {{}}\n{modules}")
    assert error.details["nearest"] == "profiles"
    error = refusal(tmp_path, f"version: 1\nprofiles: {{}}\n{modules}")
    assert error.details["profile"] == "default"
    error = refusal(tmp_path, HEAD + modules)
    assert error.code == "E_CONFIG_INVALID" and error.details["module_id"] == "a:b"
    changed = modules.replace("id: a:b", "id: a:c", 1).replace("targets: [mars], ", "")
    assert "exactly one source" in refusal(tmp_path, HEAD + changed).message


@pytest.mark.parametrize(
    "module_id", ["skill:", ":x", "skill:../../e", "skill:a//b", "skill:a/./b", "..", "'a\\b'"]
)
def test_ids_that_would_lead_elsewhere(tmp_path: Path, module_id: str) -> None:
    text = HEAD + MODULE.format(id="X").replace(
        "X", f'"{module_id}"' if "'" not in module_id else module_id
    )
    assert refusal(tmp_path, text).code == "E_CONFIG_INVALID"


def test_profiles_choose_modules(tmp_path: Path) -> None:
    rows = "".join(
        f"- {{id: {name}, type: prompt, tags: [{tag}], enabled: {on},"
        f" source: {{local_path: {{path: x}}}}}}\n"
        for name, tag, on in [
            ("p:b", "base", "true"),
            ("p:a", "base", "true"),
            ("p:off", "base", "false"),
            ("p:named", "other", "true"),
            ("p:out", "base", "true"),
        ]
    )
    profile = "{include_tags: [base], include_modules: [p:named, p:none], exclude_modules: [p:out]}"
    found = load(tmp_path, f"version: 1\nprofiles:\n  default: {profile}\nmodules:\n{rows}")
    assert [module.id for module in found.select("default")] == ["p:a", "p:b", "p:named"]
    with pytest.raises(DeployError) as raised:
        found.select("work")
    assert raised.value.code == "E_UNEXPECTED"
    assert raised.value.message.startswith("profile not found: work")
