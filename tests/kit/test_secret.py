"""A secret shows itself to nobody who does not ask for it by name."""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass

import pytest

from fleet_agentpack.kit.secret import Secret

VALUE = "s3cret-value"


@dataclass(frozen=True)
class Login:
    token: Secret


@pytest.mark.parametrize(
    "shown",
    [
        repr(Secret(VALUE)),
        str(Secret(VALUE)),
        f"{Secret(VALUE)}",
        f"{Secret(VALUE)!r}",
        repr(Login(Secret(VALUE))),
        str([Secret(VALUE)]),
    ],
)
def test_no_text_made_of_it_holds_the_value(shown: str) -> None:
    assert VALUE not in shown


def test_a_log_line_does_not_hold_the_value(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("fleet_agentpack").error("token %s, %r", Secret(VALUE), Secret(VALUE))
    assert caplog.text
    assert VALUE not in caplog.text


def test_it_is_revealed_on_request_compared_by_value_and_never_stored() -> None:
    assert Secret(VALUE).reveal() == VALUE
    assert Secret(VALUE) == Secret(VALUE) != Secret("other")
    with pytest.raises(TypeError):
        pickle.dumps(Secret(VALUE))
