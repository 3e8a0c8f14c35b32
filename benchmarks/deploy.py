"""How long the deploy engine takes, against reading and hashing the same files once.

    python benchmarks/deploy.py [--modules 300] [--directory DIR]

Everything is measured in one process and printed as a ratio of the limit, so that figures from
different machines can be compared. With AGENTPACK_BIN naming the original binary, it is measured
beside ours on the same repo, and the outputs are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.service import DeployService
from fleet_agentpack.deploy.workspace import Request
from fleet_agentpack.support import yaml12

FILES_PER_SKILL = 10
MEAN_BYTES = 3700


class World:
    """A repo of skills, prompts, commands and instructions, and a project to deploy it to."""

    def __init__(self, root: Path, modules: int) -> None:
        self.root = root
        self.repo = root / "agentpack/repo"
        self.project = root / "project"
        self.user = root / "user"
        self.project.mkdir(parents=True)
        self.user.mkdir()
        self._random = random.Random(7)
        self._write_repo(modules)
        git = ["git", "init", "--quiet", str(self.project)]
        subprocess.run(git, check=True, env=self.environ)

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.user),
            "AGENTPACK_HOME": str(self.root / "agentpack"),
            "AGENTPACK_MACHINE_ID": "bench",
        }

    def service(self, cache: str = "cache") -> DeployService:
        return DeployService(Home.of(self.environ, self.user, self.project, self.root / cache))

    def sources(self) -> list[str]:
        return [str(path) for path in (self.repo / "modules").rglob("*") if path.is_file()]

    def outputs(self) -> list[str]:
        found = [path for top in (self.user, self.project) for path in top.rglob("*")]
        return [str(p) for p in found if p.is_file() and ".git/" not in f"{p}/"]

    def forget(self) -> None:
        """As if nothing had ever been deployed."""
        shutil.rmtree(self.user)
        self.user.mkdir()
        shutil.rmtree(self.project)
        self.project.mkdir()
        subprocess.run(["git", "init", "--quiet", str(self.project)], check=True, env=self.environ)
        shutil.rmtree(self.root / "agentpack/state", ignore_errors=True)

    def _write_repo(self, modules: int) -> None:
        rows = []
        for number in range(modules):
            kind = ("instructions", "prompt", "command")[number % 3] if number % 50 < 3 else "skill"
            path = f"modules/{kind}/m{number}"
            if kind == "skill":
                self._file(
                    f"{path}/SKILL.md", f"---\nname: m{number}\ndescription: Does {number}.\n---\n"
                )
                for index in range(FILES_PER_SKILL):
                    self._file(f"{path}/{'docs/' if index % 3 else ''}file{index}.md")
            elif kind == "instructions":
                self._file(f"{path}/AGENTS.md")
            else:
                head = "---\ndescription: Runs.\n---\n" if kind == "command" else ""
                path += ".md"
                self._file(path, head)
            source = {"local_path": {"path": path}}
            rows.append(
                {"id": f"{kind}:m{number}", "type": kind, "tags": ["base"], "source": source}
            )
        skills = {"write_user_skills": True, "write_repo_skills": True}
        document = {
            "version": 1,
            "profiles": {"default": {"include_tags": ["base"]}},
            "targets": {
                "codex": {"mode": "files", "scope": "both", "options": {}},
                "claude_code": {"mode": "files", "scope": "both", "options": skills},
                "cursor": {"mode": "files", "scope": "project", "options": {}},
                "vscode": {"mode": "files", "scope": "project", "options": {}},
            },
            "modules": rows,
        }
        (self.repo / "agentpack.yaml").write_text(yaml12.dump(document))

    def _file(self, name: str, head: str = "") -> None:
        path = self.repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        size = int(self._random.expovariate(1 / MEAN_BYTES)) + 200
        path.write_text(head + self._random.randbytes(size // 2).hex() + "\n")


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best(work: Callable[[], Any], rounds: int = 5) -> float:
    return statistics.median(timed(work) for _ in range(rounds))


def read_and_hash(paths: list[str]) -> None:
    for path in paths:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123
            hashlib.sha256(stream.read()).hexdigest()


def write_plainly(contents: list[tuple[str, bytes]], top: Path) -> None:
    """Every output by way of a temporary file, and one copy of each, as a deploy leaves them."""
    for number, (_path, data) in enumerate(contents):
        for place in (top / "out" / str(number % 997), top / "copy" / str(number % 997)):
            place.mkdir(parents=True, exist_ok=True)
            name, temporary = f"{place}/{number}", f"{place}/.{number}.tmp"
            with open(temporary, "wb", buffering=0) as stream:  # noqa: PTH123
                stream.write(data)
            os.rename(temporary, name)  # noqa: PTH104


def rss_mb() -> float:
    """Resident memory of a server process after a plan, from the kernel."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    row = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(row.split()[1]) / 1024


def server_memory(world: World) -> float:
    """Resident memory of a served process after one plan."""
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from fleet_agentpack.server import build_server\n"
        "from fleet_agentpack.settings import Settings\n"
        "import asyncio\n"
        "from fastmcp import Client\n"
        "async def main():\n"
        "    async with Client(build_server(Settings.read())) as client:\n"
        "        await client.call_tool('plan', {})\n"
        "asyncio.run(main())\n"
        "rows = Path('/proc/self/status').read_text().splitlines()\n"
        "print(next(r for r in rows if r.startswith('VmRSS')).split()[1])\n"
    )
    environ = {
        **world.environ,
        "FLEET_AGENTPACK_ONLY": "agentpack",
        "XDG_CACHE_HOME": str(world.root / "xdg"),
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        cwd=world.project,
        capture_output=True,
        check=True,
    )
    return int(done.stdout) / 1024


class Table:
    def __init__(self) -> None:
        self.rows: list[tuple[str, float, float, float | None]] = []

    def add(self, name: str, seconds: float, limit: float, bound: float | None = None) -> None:
        self.rows.append((name, seconds, limit, bound))

    def show(self) -> None:
        for name, seconds, limit, bound in self.rows:
            ratio = seconds / limit
            verdict = (
                "" if bound is None else f"  (≤ {bound:g}×: {'yes' if ratio <= bound else 'NO'})"
            )
            print(f"{name:<48} {seconds * 1000:9.1f} ms  {ratio:6.2f}×{verdict}")


def settle() -> None:
    """Files written a moment ago are not trusted by the cache; wait until they are old enough."""
    time.sleep(0.3)


def measure(world: World) -> Table:
    table = Table()
    sources = world.sources()
    read_and_hash(sources)
    limit = best(lambda: read_and_hash(sources))
    settle()
    table.add("limit: read and hash the sources", limit, limit)
    fresh = world.service("cache-undeployed")
    table.add("plan, nothing deployed, first call", timed(lambda: fresh.plan(Request())), limit, 4)

    apply = world.service("cache-apply")
    answer: dict[str, Any] = {}
    took = timed(lambda: answer.update(apply.deploy(Request(adopt=True))))
    outputs = world.outputs()
    contents = [(path, Path(path).read_bytes()) for path in outputs]
    plain = timed(lambda: write_plainly(contents, world.root / "plain"))
    table.add(f"write {len(outputs)} files and a copy of each, plainly", plain, plain)
    table.add("deploy --apply, everything new", took, plain, 1.5)

    everything = sources + outputs
    read_and_hash(everything)
    limit = best(lambda: read_and_hash(everything), 3)
    settle()
    table.add(f"limit: read and hash {len(everything)} files", limit, limit)
    table.add("one lstat of every file", best(lambda: [os.lstat(p) for p in everything], 3), limit)
    for name in ("plan", "status", "diff"):
        service = world.service(f"cache-{name}")
        call = getattr(service, name)
        table.add(
            f"{name}, deployed, first call, no cache", timed(lambda c=call: c(Request())), limit, 2
        )
        table.add(f"{name}, again", best(lambda c=call: c(Request()), 5), limit, 0.6)
        other = getattr(world.service(f"cache-{name}"), name)
        table.add(
            f"{name}, new process's first call, cached", timed(lambda c=other: c(Request())), limit
        )
    (world.repo / "modules/skill/m10/file1.md").write_text("changed\n")
    table.add("deploy --apply, one file changed", timed(lambda: apply.deploy(Request())), plain)
    snapshot = answer["data"]["snapshot_id"]
    table.add("rollback", timed(lambda: apply.rollback(snapshot)), plain)
    return table


def compare_with_original(world: World, program: str) -> None:
    """The original on the same repo: its time, and whether it wants the same outputs."""
    ours = world.service("cache-compare").plan(Request())["data"]
    theirs: dict[str, Any] = {}

    def run() -> None:
        done = subprocess.run(
            [program, "plan", "--json"],
            env=world.environ,
            cwd=world.project,
            capture_output=True,
            check=True,
        )
        theirs.update(json.loads(done.stdout)["data"])

    took = best(run, 3)
    mine = best(lambda: world.service("cache-compare").plan(Request()), 3)
    print(f"\noriginal plan --json {took * 1000:.1f} ms, ours in process {mine * 1000:.1f} ms")
    pick = ("target", "op", "path", "after_sha256", "before_sha256")
    same = [
        [tuple(row[key] for key in pick) for row in answer["changes"]] for answer in (ours, theirs)
    ]
    print(f"same changes: {same[0] == same[1]} ({len(same[0])} ours, {len(same[1])} theirs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", type=int, default=300)
    parser.add_argument("--directory", type=Path, help="where to work (a new temporary directory)")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="deploy-bench-", dir=options.directory))
    try:
        world = World(scratch / "world", options.modules)
        print(f"{options.modules} modules, {len(world.sources())} source files\n")
        measure(world).show()
        print(
            f"\nresident memory of a server after a plan: {server_memory(world):.0f} MB (≤ 150 MB)"
        )
        small = World(scratch / "tenth", max(3, options.modules // 10))
        for each in (small, world):
            each.forget()
            each.service("cache-linear").deploy(Request())
        settle()
        costs = [
            best(lambda w=each: w.service("cache-linear").plan(Request()), 3)
            for each in (small, world)
        ]
        print(f"ten times the files cost {costs[1] / costs[0]:.1f} times as much")
        if program := os.environ.get("AGENTPACK_BIN"):
            compare_with_original(world, program)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
