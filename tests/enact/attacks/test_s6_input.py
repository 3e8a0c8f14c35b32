"""S6: standard input as a way to fill the host's disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.enact.attacks.publisher import attack
from tests.enact.kit import needs_bwrap


@needs_bwrap
@pytest.mark.parametrize(
    "opened", ["0", "os.open('/proc/self/fd/0', os.O_WRONLY)", "os.open('/dev/stdin', os.O_RDWR)"]
)
def test_standard_input_cannot_be_written_to(home: Path, opened: str) -> None:
    code = f"""
import os
try:
    print("wrote", os.write({opened}, b"x" * 1024 * 1024))
except OSError as error:
    print("refused")
"""
    assert attack(home, code).output == "refused\n"


@needs_bwrap
def test_standard_input_is_still_read(home: Path) -> None:
    schema = {"type": "object", "properties": {"word": {"type": "string"}}}
    fields = {"x-stdin": "json", "inputSchema": schema}
    code = "import json, sys; print(json.load(sys.stdin)['word'])"
    assert attack(home, code, {"word": "hello"}, **fields).output == "hello\n"
