"""Templates for Coder's echo provisioner, which replays prepared protobuf messages at each build.

Nothing is provisioned: no Terraform, no container, no network. The lab starts the agents itself.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Value = str | bytes | int
Fields = Mapping[int, Value | Sequence[Value]]

ROLES = (
    ("coder", "Software Engineer", "Writes code, implements features, fixes bugs"),
    ("operator", "Operations Engineer", "Manages deployments, monitors systems, handles incidents"),
    ("manager", "Engineering Manager", "Coordinates work, reviews specs, verifies agent alignment"),
)
METADATA = ("agent_spec", "pull_request_url", "pull_request_status", "pull_request_check_status")
INFO, ERROR = 2, 4


@dataclass(frozen=True)
class Parameter:
    """Something that a template asks for."""

    name: str
    display_name: str
    description: str
    default: str | None = None  # None: a value has to be given
    options: tuple[tuple[str, str, str], ...] = ()
    mutable: bool = False


SPEC = Parameter("agent_spec", "Spec", "What the agent is for", mutable=True)
REGION = Parameter("region", "Region", "Where it runs")
SIZE = Parameter("size", "Size", "How large it is", default="S")


@dataclass(frozen=True)
class Template:
    """A template of the lab, and how its builds go."""

    name: str
    display_name: str
    description: str
    roles: tuple[tuple[str, str, str], ...] = ROLES
    others: tuple[Parameter, ...] = ()
    presets: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    agent_timeout_s: int = 120
    start_error: str | None = None
    never_starts: bool = False
    delete_error: str | None = None
    startup: str | None = None  # a script that its agent runs first

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Everything that it asks for."""
        if not self.roles:
            return self.others
        first = self.roles[0][0]
        role = Parameter("agent_role", "Role", "Persona of the agent", first, self.roles)
        return (role, SPEC, *self.others)


CATALOGUE = (
    Template("setup-devcontainer", "Setup Monorepo", "Infrastructure and tooling monorepo"),
    Template(
        "dataone-devcontainer",
        "DataOne Platform",
        "Data processing and analytics platform",
        roles=ROLES[:2],
    ),
    Template(
        "offline-devcontainer",
        "Offline",
        "Builds, but its agent never connects",
        agent_timeout_s=1,
    ),
    Template(
        "broken-build",
        "Broken build",
        "Every start fails",
        start_error="Error: image registry.example.test/dev:1 not found",
    ),
    Template(
        "slow-build", "Slow build", "Start never ends until it is canceled", never_starts=True
    ),
    Template(
        "broken-delete",
        "Broken delete",
        "Cannot be destroyed",
        delete_error="Error: volume is in use",
    ),
    Template("plain", "Plain workspace", "No role or spec parameter: not for agents", roles=()),
    Template(
        "go-dev",
        "Go development",
        "Made for people: no roles, a required region, presets",
        roles=(),
        others=(REGION, SIZE),
        presets=(
            ("Large", (("region", "eu"), ("size", "L"))),
            ("Small", (("region", "us"), ("size", "S"))),
        ),
    ),
    Template(
        "broken-startup",
        "Broken startup",
        "Builds, but its startup script fails",
        roles=(),
        startup="echo 'npm: command not found' >&2; exit 1",
    ),
)


def message(fields: Fields) -> bytes:
    """A protobuf message; numbers are varints, everything else is length-delimited."""
    out = bytearray()
    for number, value in fields.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, int):
                out += _varint(number << 3) + _varint(one)
            else:
                data = one.encode() if isinstance(one, str) else bytes(one)
                out += _varint(number << 3 | 2) + _varint(len(data)) + data
    return bytes(out)


def archive(template: Template, workspaces: Path, port: int) -> bytes:
    """The tar that Coder takes as a template."""
    files = {
        "0.parse.protobuf": message({2: b""}),
        "0.init.protobuf": message({3: b""}),
        "0.plan.protobuf": _log("Planning the workspace"),
        "1.plan.protobuf": message({4: message({3: "{}"})}),
        "0.apply.protobuf": _log("workspace: applying"),
        "1.apply.protobuf": message({5: b""}),
        "0.graph.protobuf": message({6: _graph(template, workspaces, port)}),
        "main.tf": _terraform(template).encode(),
    }
    if template.start_error:
        files["0.start.apply.protobuf"] = _log("workspace: pulling the image")
        files["1.start.apply.protobuf"] = _log(template.start_error, ERROR)
        files["2.start.apply.protobuf"] = message({5: message({2: template.start_error})})
    if template.never_starts:
        # The general answers would end the start as well.
        del files["0.apply.protobuf"], files["1.apply.protobuf"]
        files["0.start.apply.protobuf"] = _log("workspace: waiting for capacity")
        files["0.stop.apply.protobuf"] = files["0.destroy.apply.protobuf"] = message({5: b""})
    if template.delete_error:
        files["0.destroy.apply.protobuf"] = _log(template.delete_error, ERROR)
        files["1.destroy.apply.protobuf"] = message({5: message({2: template.delete_error})})
    return _tar(files)


def _graph(template: Template, workspaces: Path, port: int) -> bytes:
    agent = message(
        {
            2: "main",
            5: "linux",
            6: "amd64",
            8: message({1: "claude-code", 2: "Claude Code", 4: f"http://localhost:{port}"}),
            11: template.agent_timeout_s,
            18: [
                message(
                    {
                        1: f"fleet_mcp_{name}",
                        2: name.replace("_", " "),
                        3: f"cat {workspaces}/$CODER_WORKSPACE_NAME/{name} 2>/dev/null || true",
                        4: 1,
                        5: 5,
                        6: order,
                    }
                )
                for order, name in enumerate(METADATA)
            ],
            21: [message({1: "Startup", 3: template.startup, 6: 1})] if template.startup else [],
        }
    )
    resource = message({1: "workspace", 2: "docker_container", 3: agent})
    asked = [_parameter(one) for one in template.parameters]
    presets = [
        message({1: name, 2: [message({1: key, 2: value}) for key, value in values]})
        for name, values in template.presets
    ]
    return message({3: resource, 4: asked, 6: presets})


def _parameter(one: Parameter) -> bytes:
    fields: dict[int, Value | Sequence[Value]] = {
        1: one.name,
        2: one.description,
        3: "string",
        15: one.display_name,
    }
    if one.mutable:
        fields[4] = 1
    if one.default is None:
        fields[13] = 1
    else:
        fields[5] = one.default
    if one.options:
        fields[7] = [message({1: label, 2: about, 3: value}) for value, label, about in one.options]
        fields[18] = 2
    return message(fields)


def _terraform(template: Template) -> str:
    """The same parameters in Terraform's words: Coder renders them itself, and both must agree."""
    lines = [
        "terraform {",
        "  required_providers {",
        '    coder = { source = "coder/coder" }',
        "  }",
        "}",
    ]
    for one in template.parameters:
        lines += [
            f'data "coder_parameter" "{one.name}" {{',
            f'  name         = "{one.name}"',
            f'  display_name = "{one.display_name}"',
            f'  description  = "{one.description}"',
            '  type         = "string"',
        ]
        lines += [f'  default      = "{one.default}"'] if one.default is not None else []
        lines += ["  mutable      = true"] if one.mutable else []
        for value, label, about in one.options:
            lines += [
                "  option {",
                f'    name        = "{label}"',
                f'    description = "{about}"',
                f'    value       = "{value}"',
                "  }",
            ]
        lines.append("}")
    for name, values in template.presets:
        given = ", ".join(f'{key} = "{value}"' for key, value in values)
        lines += [
            f'data "coder_workspace_preset" "{name.lower()}" {{',
            f'  name       = "{name}"',
            f"  parameters = {{ {given} }}",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _log(line: str, level: int = INFO) -> bytes:
    return message({1: message({1: level, 2: line})})


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, body in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return out.getvalue()
