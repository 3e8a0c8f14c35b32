"""What is remembered about auditors and installed tools: one JSON object per file, ours alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.tool_lists import read_object
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock
from fleet_agentpack.kit.results import json_file
from fleet_agentpack.kit.stamps import Remembered

Content = Mapping[str, Any]


class StateFile:
    """A file in the user's state directory; read when it has changed, and only then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: Remembered[Content] = Remembered()

    def read(self) -> Content:
        """What it holds; nothing where there is none. Raises `EnactError` for a corrupt one."""
        return self._last.get(lambda: read_object(self.path) or {}, self.path)

    def change(self, change: Callable[[Content], Content]) -> bool:
        """Write it anew under its lock; whether that worked. Raises `EnactError`."""
        lock = self.path.with_name(f".{self.path.name}.lock")
        with contextlib.suppress(OSError, LockTimeoutError), file_lock(lock, timeout_s=2):
            before = read_object(self.path) or {}
            after = change(before)
            if after != before:
                write_atomic(self.path, json_file(after), mode=0o600)
            return True
        return False
