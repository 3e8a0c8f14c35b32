"""What is said between a server and its process that is connected to a Dagger engine."""

from __future__ import annotations

from typing import Literal, TypedDict

RUNNER = "_EXPERIMENTAL_DAGGER_RUNNER_HOST"
CONNECT_S = 10.0  # until an engine that runs answers
START_S = 30.0  # until one answers that has to be started
CLEAN_S = 10.0  # until a process that is told to end has stopped its task and pruned


class ImageRequest(TypedDict):
    """Look for an image."""

    kind: Literal["image"]
    image: str


class Task(TypedDict):
    """What a run and a build have in common."""

    image: str
    argv: list[str]
    folder: str  # the tool's own files, or the image that was built of them
    network: bool
    memory_bytes: int
    processes: int
    disk_bytes: int


class RunRequest(Task):
    """Run a tool."""

    kind: Literal["run"]
    in_image: bool
    places: list[str]  # where the tool's own files are; it begins in the first one
    env: dict[str, str]
    plain: dict[str, str]  # variables that are no secrets: an engine hides those in the output
    files: list[str]
    directories: list[tuple[str, bool, list[str]]]  # path, whether it is writable, what is hidden
    stdin: str


class BuildRequest(Task):
    """Build a tool, and keep the image as an archive."""

    kind: Literal["build"]
    archive: str
    limit_bytes: int


class PruneRequest(TypedDict):
    """Forget copies of the user's files."""

    kind: Literal["prune"]


Request = ImageRequest | RunRequest | BuildRequest | PruneRequest


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
