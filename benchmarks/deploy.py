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
    """The fastest of some rounds: what the work costs when nobody else is in the way."""
    return min(timed(work) for _ in range(rounds))


def beside(
    limit: Callable[[], Any], *works: Callable[[], Any], rounds: int = 5
) -> tuple[float, list[float]]:
    """The limit and some works in turns, so that noise meets all of them; the fastest of each."""
    times: list[list[float]] = [[] for _ in range(1 + len(works))]
    for _ in range(rounds):
        for place, work in zip(times, (limit, *works), strict=True):
            place.append(timed(work))
    first, *others = map(min, times)
    return first, others


def read_and_hash(paths: list[str]) -> None:
    """The limit, in ordinary Python."""
    for path in paths:
        with open(path, "rb") as stream:  # noqa: PTH123
            hashlib.sha256(stream.read()).hexdigest()


def write_plainly(contents: list[tuple[str, bytes]], top: Path) -> None:
    """Every output by way of a temporary file, and one copy of each, as a deploy leaves them."""
    for number, (_path, data) in enumerate(contents):
        for place in (top / "out" / str(number % 997), top / "copy" / str(number % 997)):
            place.mkdir(parents=True, exist_ok=True)
            name, temporary = f"{place}/{number}", f"{place}/.{number}.tmp"
            with open(temporary, "wb") as stream:  # noqa: PTH123
                stream.write(data)
            os.rename(temporary, name)  # noqa: PTH104


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


class Fresh:
    """First calls of a process that finds no cache: every call gets a service and a cache anew."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._number = 0

    def __call__(self) -> None:
        self._number += 1
        service = self._world.service(f"cache-{self._name}-{self._number}")
        getattr(service, self._name)(Request())


def measure(world: World) -> Table:
    table = Table()
    sources = world.sources()
    read_and_hash(sources)
    settle()
    limit, (first,) = beside(lambda: read_and_hash(sources), Fresh(world, "plan"))
    table.add(f"limit: read and hash {len(sources)} sources", limit, limit)
    table.add("plan, nothing deployed, first call", first, limit, 4)
    measure_apply(world, table)
    measure_deployed(world, table, sources + world.outputs())
    return table


def measure_apply(world: World, table: Table) -> None:
    """Everything new, twice; between the two, the same files written plainly."""
    took, plain = [], []
    for number in range(2):
        world.forget()
        took.append(timed(lambda: world.service("cache-apply").deploy(Request())))
        contents = [(path, Path(path).read_bytes()) for path in world.outputs()]
        top = world.root / f"plain-{number}"
        plain.append(timed(lambda c=contents, t=top: write_plainly(c, t)))
        shutil.rmtree(top)
    table.add(f"limit: write {len(contents)} files and a copy of each", min(plain), min(plain))
    table.add("deploy --apply, everything new", min(took), min(plain), 1.5)


def measure_deployed(world: World, table: Table, everything: list[str]) -> None:
    read_and_hash(everything)
    settle()
    for name in ("plan", "status", "diff"):
        again = world.service("cache-again")
        getattr(again, name)(Request())
        limit, (looks, first, second, cached) = beside(
            lambda: read_and_hash(everything),
            lambda: [os.lstat(path) for path in everything],
            Fresh(world, name),
            lambda n=name, s=again: getattr(s, n)(Request()),
            lambda n=name: getattr(world.service("cache-again"), n)(Request()),
        )
        table.add(f"limit: read and hash {len(everything)} files", limit, limit)
        table.add("one lstat of every file", looks, limit)
        table.add(f"{name}, deployed, first call, no cache", first, limit, 2)
        table.add(f"{name}, again in the same process", second, limit, 0.6)
        table.add(f"{name}, first call of another process", cached, limit)
    service = world.service("cache-again")
    snapshot = service.snapshots()["data"]["snapshots"][0]["id"]
    (world.repo / "modules/skill/m10/file1.md").write_text("changed\n")
    print(
        f"deploy --apply of one changed file: {timed(lambda: service.deploy(Request())):.2f} s,",
        end=" ",
    )
    print(f"rollback: {timed(lambda: service.rollback(snapshot)):.2f} s\n")


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
