"""Runs one job through Dagger's SDK in a separate process; the job comes on standard input."""

from __future__ import annotations

import asyncio
import importlib
import json
import secrets
import sys
from typing import Any

from fleet_agentpack.enact.backends.child import MARKER

WORKSPACE = "/workspace"


async def run(job: dict[str, Any], dagger: Any) -> tuple[int, str, str]:
    """Build the container, run the command in it, return its exit code and output."""
    async with dagger.connection(dagger.Config(log_output=None)):
        dag = dagger.dag
        container = (
            dag.container()
            .from_(job["image"])
            .with_mounted_directory(WORKSPACE, dag.host().directory(job["folder"]), read_only=True)
            .with_workdir(WORKSPACE)
            # Without a new value, the engine would answer from its cache and run nothing.
            .with_env_variable(MARKER, secrets.token_hex(8))
        )
        for path in job["files"]:
            container = container.with_mounted_file(path, dag.host().file(path))
        for path, _ in job["directories"]:
            container = container.with_mounted_directory(path, dag.host().directory(path))
        for name, value in job["env"].items():
            container = container.with_secret_variable(name, dag.set_secret(name, value))
        done = container.with_exec(
            job["argv"], stdin=job["stdin"], expect=dagger.ReturnType.ANY, use_entrypoint=False
        )
        code, stdout, stderr = await done.exit_code(), await done.stdout(), await done.stderr()
        for path, writable in job["directories"]:
            if writable and code == 0:
                await done.directory(path).export(path)
        return code, stdout, stderr


def main() -> int:
    """Read the job, run it, print what it printed."""
    job = json.loads(sys.stdin.buffer.read())
    code, stdout, stderr = asyncio.run(run(job, importlib.import_module("dagger")))
    sys.stdout.write(stdout)
    sys.stderr.write(stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
