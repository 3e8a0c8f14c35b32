"""What is said between a server and its process that is connected to a Dagger engine."""

from __future__ import annotations

from typing import Literal, TypedDict


class ImageRequest(TypedDict):
    """Look for an image."""

    kind: Literal["image"]
    image: str


class RunRequest(TypedDict):
    """Run a tool."""

    kind: Literal["run"]
    image: str
    argv: list[str]
    env: dict[str, str]
    plain: dict[str, str]  # variables that are no secrets: an engine hides those in the output
    folder: str
    files: list[str]
    directories: list[tuple[str, bool, list[str]]]  # path, whether it is writable, what is hidden
    stdin: str
    network: bool
    memory_bytes: int
    processes: int
    disk_bytes: int


class PruneRequest(TypedDict):
    """Forget copies of the user's files."""

    kind: Literal["prune"]


Request = ImageRequest | RunRequest | PruneRequest


class Answer(TypedDict, total=False):
    """What came of a request; `lacks` and `reason` where it could not be carried out."""

    ready: bool
    image: str  # by digest
    code: int
    stdout: str  # base64
    stderr: str
    kept: list[str]  # changed by the tool and by the user
    lacks: str  # the missing part
    reason: str
