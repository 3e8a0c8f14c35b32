"""The JSON envelope that every answer of this domain comes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet_agentpack.version import __version__

SCHEMA_VERSION = 1


def envelope(
    command_id: str,
    *,
    data: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
    errors: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """An answer in the contract's key order; `command_id` is such as `deploy --apply`."""
    path = command_id.split()
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": not errors,
        "command": path[0],
        "command_id": command_id,
        "command_path": path,
        "version": __version__,
        "data": dict(data or {}),
        "warnings": list(warnings),
        "errors": [dict(error) for error in errors],
    }
