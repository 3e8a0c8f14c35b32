"""A domain's own tools."""

from __future__ import annotations

import pytest

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.wire.provider import DomainTools


def test_a_domain_cannot_have_two_tools_of_one_name() -> None:
    mcp = DomainTools(
        "toy", server_name="toy", instructions="", error=ClimptError, open_service=lambda _: None
    )

    def echo() -> dict[str, str]:
        """Answer."""
        return {}

    mcp.tool(echo)
    with pytest.raises(ValueError, match="echo"):
        mcp.tool(echo)
