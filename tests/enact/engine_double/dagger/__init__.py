"""A double of Dagger's SDK: writes down every call, and answers as `engine.json` in HOME says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

assert sys.modules.get("httpx2", "") is None, "gql would take it, and the SDK gives it httpx"

HOME = Path(os.environ["HOME"])
ANSWERS: dict[str, Any] = {
    "version": "v0.21.8",
    "image_ref": "docker.io/library/known@sha256:" + "a" * 64,
    "added_paths": [],
    "modified_paths": [],
    "removed_paths": [],
    "glob": [],
    "env_variables": [],
    "prune": None,
}
WRITTEN: dict[str, str] = {}


class DaggerError(Exception):
    pass


class QueryError(DaggerError):
    pass


class ExecError(QueryError):
    exit_code, stdout, stderr = 137, "said", "killed"


def told() -> dict[str, Any]:
    file = HOME / "engine.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def note(*call: Any) -> None:
    with (HOME / "calls.jsonl").open("a") as stream:
        stream.write(json.dumps([os.getpid(), *call], default=repr) + "\n")


class Node:
    """Any object of the SDK; its chain of calls is its name."""

    def __init__(self, chain: str, log: Any = None) -> None:
        self.chain, self.log = chain, log

    def __repr__(self) -> str:
        return self.chain

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            note(self.chain, name, arguments, options)
            if name == "with_new_file":
                WRITTEN[arguments[0]] = arguments[1]
            if name in ANSWERS or name in ("exists", "sync", "size", "export"):
                return self._answer(name, arguments)
            made = " ".join(map(repr, arguments)) if name in ("directory", "from_", "file") else ""
            return Node(f"{self.chain}.{name}{f'({made})' if made else ''}")

        return call

    async def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        said = told()
        if name == "exists":
            place = arguments[0]
            return (
                said.get("fills", False)
                if place == "large"
                else place not in said.get("absent", ())
            )
        if name == "sync":
            if self.chain.endswith("docker_build") and "\nRUN " in WRITTEN["enact.Dockerfile"]:
                await carried_out(said)
            return Node(f"{self.chain}.sync")
        if name == "size":
            return len(content(said, self.chain))
        if name == "export" and not self.chain.endswith(("layer", "file", "directory")):
            Path(arguments[0]).write_bytes(content(said, self.chain))
        if name == "image_ref" and "none" in self.chain:
            raise QueryError("not found")
        return said.get(name, ANSWERS.get(name))


def content(said: dict[str, Any], chain: str) -> bytes:
    """What is in a file that a task has made."""
    if chain.endswith("as_tarball"):
        return b"an archive"
    name = chain.rpartition(".file('")[2].removesuffix("')")
    if name not in said.get("leaves", ("code", "stdout", "stderr")):
        raise QueryError(f"{name}: no such file")
    return str(said.get(name, {"code": 0, "stdout": "out", "stderr": "err"}[name])).encode()


async def carried_out(said: dict[str, Any]) -> None:
    """What happens while a tool runs."""
    if said.get("is_killed"):
        raise ExecError("exit code: 137")
    if said.get("breaks"):
        raise DaggerError("the session is gone")
    if said.get("exits"):
        os._exit(3)
    for path, text in said.get("edits", {}).items():
        Path(path).write_text(text)
    if swap := said.get("swaps"):
        place, target = map(Path, swap)
        place.rmdir()
        place.symlink_to(target) if swap[1] else place.write_text("")
    await asyncio.sleep(said.get("takes_s", 0))


class Connection:
    async def __aenter__(self) -> Node:
        note("connection")
        if told().get("down"):
            raise DaggerError("connection refused")
        return Node("dag")

    async def __aexit__(self, *_: object) -> None:
        note("closed")


ImageLayerCompression = SimpleNamespace(Zstd="Zstd")


def BuildArg(name: str, value: str) -> list[str]:
    return [name, value]
