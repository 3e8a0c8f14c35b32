"""How long the deploy engine takes, against reading and hashing the same files once.

    python benchmarks/deploy.py [--modules 300] [--grow] [--directory DIR]

Everything is measured in one process and printed as a ratio of the limit, so that figures from
different machines can be compared. The limit is taken in two ways: with `open` as everybody
writes it, and with `buffering=0`, the cheapest that Python itself offers; the bounds are checked
against the cheaper one. Calls are made as a server makes them; what it answers again while nothing
has changed is also asked of a real server process. `--grow` goes up to ten times the files. With
AGENTPACK_BIN naming the original binary, it is measured beside ours on the same repo, and the
outputs are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.service import DeployService
from fleet_agentpack.deploy.unchanged import Unchanged
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import sync_directory
from fleet_agentpack.kit.results import jsonable

FILES_PER_SKILL = 10
MEAN_BYTES = 3700


class World:
    """A repo of skills, prompts, commands and instructions, and a project to deploy it to."""

    def __init__(self, root: Path, modules: int, *, durable: bool = False) -> None:
        self.root = root
        self.durable = durable
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
            "AGENTPACK_FSYNC": "1" if self.durable else "0",
        }

    def service(self, cache: str = "cache", unchanged: Unchanged | None = None) -> DeployService:
        home = Home.of(self.environ, self.user, self.project, self.root / cache)
        return DeployService(home, unchanged=unchanged)

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


def beside(*works: Callable[[], Any], rounds: int = 7) -> list[float]:
    """Some works in turns, so that noise meets all of them; the fastest round of each."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for place, work in zip(times, works, strict=True):
            place.append(timed(work))
            if isinstance(work, Fresh):
                work.forget()
    return list(map(min, times))


def read_and_hash(paths: list[str]) -> None:
    """The limit, as one would write it."""
    for path in paths:
        with open(path, "rb") as stream:  # noqa: PTH123
            hashlib.sha256(stream.read()).hexdigest()


def read_and_hash_unbuffered(paths: list[str]) -> None:
    """The limit, without the buffer that reading a whole file does not need."""
    for path in paths:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123
            hashlib.sha256(stream.read()).hexdigest()


def write_plainly(contents: list[tuple[str, bytes]], top: Path, *, durable: bool) -> None:
    """Every output by way of a temporary file, and one copy of each, as a deploy leaves them."""
    for number, (_path, data) in enumerate(contents):
        for place in (top / "out" / str(number % 997), top / "copy" / str(number % 997)):
            place.mkdir(parents=True, exist_ok=True)
            name, temporary = f"{place}/{number}", f"{place}/.{number}.tmp"
            with open(temporary, "wb") as stream:  # noqa: PTH123
                stream.write(data)
                if durable:
                    stream.flush()
                    os.fsync(stream.fileno())
            os.rename(temporary, name)  # noqa: PTH104
            if durable:
                sync_directory(str(place))


def server_memory(world: World) -> float:
    """Resident memory of a served process after one plan."""
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from fleet_agentpack.wire.server import build_server\n"
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
    """Rows of a name, seconds, and their ratio to the limits."""

    def __init__(self) -> None:
        print(f"{'':<50} {'time':>12} {'× buffered':>11} {'× unbuffered':>13}")

    def add(self, name: str, seconds: float, *limits: float, bound: float | None = None) -> None:
        ratios = [seconds / limit for limit in limits]
        shown = " ".join(f"{ratio:11.2f}×" for ratio in ratios)
        kept = bound is None or ratios[-1] <= bound
        verdict = "" if bound is None else f"  ≤ {bound:g}× {'yes' if kept else 'NO'}"
        print(f"{name:<50} {seconds * 1000:9.1f} ms {shown}{verdict}")


def settle() -> None:
    """Files written a moment ago are not trusted by the cache; wait until they are old enough."""
    time.sleep(0.3)


class Fresh:
    """First calls of a server that finds no cache: every call gets a service and a cache anew."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._number = 0
        self._kept: Any = None

    def __call__(self) -> None:
        self._number += 1
        service = self._world.service(f"cache-{self._name}-{self._number}", Unchanged())
        self._kept = service, getattr(service, self._name)(Request())

    def forget(self) -> None:
        """Let go of what a real process would still hold when it has answered."""
        self._kept[0].close()
        self._kept = None
        shutil.rmtree(self._world.root / f"cache-{self._name}-{self._number}", ignore_errors=True)


def measure(world: World, durable: World) -> None:
    table = Table()
    sources = world.sources()
    read_and_hash(sources)
    settle()
    buffered, plain, first = beside(
        lambda: read_and_hash(sources),
        lambda: read_and_hash_unbuffered(sources),
        Fresh(world, "plan"),
        rounds=11,
    )
    table.add(f"limit: read and hash {len(sources)} sources", plain, buffered, plain)
    table.add("plan, nothing deployed, first call", first, buffered, plain, bound=4)
    measure_apply(durable, table)
    measure_apply(world, table)
    measure_deployed(world, table, sources + world.outputs())


def measure_apply(world: World, table: Table) -> None:
    """Everything new, twice; between the two, the same files written plainly in the same way."""
    took, plain = [], []
    for number in range(2):
        world.forget()
        took.append(timed(lambda: world.service("cache-apply").deploy(Request())))
        contents = [(path, Path(path).read_bytes()) for path in world.outputs()]
        top = world.root / f"plain-{number}"
        plain.append(timed(lambda c=contents, t=top: write_plainly(c, t, durable=world.durable)))
        shutil.rmtree(top)
    limit, how = min(plain), ", each synced" if world.durable else ""
    table.add(f"limit: write {len(contents)} files and a copy of each{how}", limit, limit)
    table.add(f"deploy --apply, everything new{how}", min(took), limit, bound=1.5)


def measure_deployed(world: World, table: Table, everything: list[str]) -> None:
    read_and_hash(everything)
    settle()
    for name in ("plan", "status", "diff"):
        again, unchanged = world.service("cache-again"), Unchanged()
        server = world.service("cache-again", unchanged)
        getattr(again, name)(Request())
        getattr(server, name)(Request())
        buffered, plain, looks, first, second, kept, cached = beside(
            lambda: read_and_hash(everything),
            lambda: read_and_hash_unbuffered(everything),
            lambda: [os.lstat(path) for path in everything],
            Fresh(world, name),
            lambda n=name, s=again: getattr(s, n)(Request()),
            lambda n=name, s=server: getattr(s, n)(Request()),
            lambda n=name: getattr(world.service("cache-again"), n)(Request()),
        )
        limits = buffered, plain
        table.add(f"limit: read and hash {len(everything)} files", plain, *limits)
        table.add("one lstat of every file", looks, *limits)
        table.add(f"{name}, deployed, first call, no cache", first, *limits, bound=2)
        table.add(f"{name}, again, with a look at everything", second, *limits, bound=0.6)
        bound = 0.05 if unchanged.is_watching else None  # without notifications, it looks
        table.add(f"{name}, again in the same server", kept, *limits, bound=bound)
        server.close()
        table.add(f"{name}, first call of another process", cached, *limits)
    measure_served(world, table, limits, bound)
    service = world.service("cache-again")
    snapshot = service.snapshots().data.snapshots[0].id
    (world.repo / "modules/skill/m10/file1.md").write_text("changed\n")
    print(
        f"deploy --apply of one changed file: {timed(lambda: service.deploy(Request())):.2f} s,",
        end=" ",
    )
    print(f"rollback: {timed(lambda: service.rollback(snapshot)):.2f} s")


def measure_served(
    world: World, table: Table, limits: tuple[float, float], bound: float | None
) -> None:
    """The same as users have it: asked of a server process, over its pipes."""
    command = [sys.executable, "-m", "fleet_agentpack", "--only", "agentpack"]
    with served(world, command) as ask:
        for name in ("plan", "status", "diff"):
            ask(name)
            took = min(timed(lambda n=name: ask(n)) for _ in range(9))
            table.add(f"{name}, again, asked over stdio", took, *limits, bound=bound)


class Original:
    """The original binary on the same repo."""

    def __init__(self, world: World, program: str) -> None:
        self._where = {"env": world.environ, "cwd": world.project, "stdout": subprocess.PIPE}
        self._program = program

    def plan(self) -> Any:
        """`plan --json`: a process of its own."""
        command = [self._program, "plan", "--json"]
        done = subprocess.run(command, check=True, **self._where)
        return json.loads(done.stdout)["data"]


@contextmanager
def served(world: World, command: list[str]) -> Iterator[Callable[[str], Any]]:
    """A call of a tool without arguments on a running server."""
    root = str(Path(__file__).resolve().parent.parent)
    environ = {**world.environ, "XDG_CACHE_HOME": str(world.root / "xdg"), "PYTHONPATH": root}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environ, cwd=world.project, **pipes) as process:
        send, answers = process.stdin, process.stdout
        numbers = itertools.count(1)

        def call(method: str, **params: Any) -> Any:
            number = next(numbers)
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            send.write(json.dumps(message).encode() + b"\n")
            send.flush()
            return json.loads(answers.readline())["result"]

        client = {"name": "benchmark", "version": "1"}
        call("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        send.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        yield lambda tool: call("tools/call", name=tool, arguments={})["structuredContent"]["data"]
        send.close()


OURS = ("edited_by_hand", "layer", "module_ids", "adopts")


def without_ours(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan without the keys that only we have."""
    rows = [{k: v for k, v in row.items() if k not in OURS} for row in plan["changes"]]
    return {k: v for k, v in {**plan, "changes": rows}.items() if k != "plan_id"}


def compare_with_original(world: World, program: str) -> None:
    """Ours and the original in turns, with everything deployed and with nothing deployed."""
    original = Original(world, program)
    for state in ("deployed", "nothing deployed"):
        if state == "nothing deployed":
            world.forget()
        everything = world.sources() + world.outputs()
        service = world.service("cache-compare")
        with served(world, [program, "mcp", "serve"]) as ask:
            ours = without_ours(jsonable(service.plan(Request()).data))
            same = ours == original.plan() == ask("plan")
            plain, first, again, theirs, by_mcp = beside(
                lambda e=everything: read_and_hash_unbuffered(e),
                Fresh(world, "plan"),
                lambda s=service: s.plan(Request()),
                original.plan,
                lambda a=ask: a("plan"),
                rounds=4,
            )
        print(f"\n{state}: plans equal: {'yes' if same else 'NO'}; against reading once:")
        for name, seconds in (
            ("ours, first call", first),
            ("ours, again", again),
            ("original, plan --json", theirs),
            ("original, mcp serve", by_mcp),
        ):
            print(f"  {name:<24} {seconds * 1000:9.1f} ms {seconds / plain:7.2f}×")


def grow(scratch: Path, modules: int) -> None:
    """The cost of one file while there are ever more of them."""
    print("\nmicroseconds per source file; ratio to reading and hashing the same files once")
    for factor in (1, 3, 10):
        world = World(scratch / f"grow-{factor}", modules * factor)
        count = len(world.sources())
        applied = timed(lambda w=world: w.service("cache-grow").deploy(Request()))
        settle()
        everything, service = world.sources() + world.outputs(), world.service("cache-grow")
        plain, first, again, status = beside(
            lambda e=everything: read_and_hash_unbuffered(e),
            Fresh(world, "plan"),
            lambda s=service: s.plan(Request()),
            lambda s=service: s.status(Request()),
            rounds=4,
        )
        rows = {"apply": applied, "plan first": first, "plan again": again, "status again": status}
        shown = ", ".join(
            f"{name} {seconds / count * 1e6:.0f}"
            + (f" ({seconds / plain:.2f}×)" if name != "apply" else "")
            for name, seconds in rows.items()
        )
        print(f"{count:6} sources, {len(everything) - count:6} outputs: {shown}", flush=True)
        shutil.rmtree(world.root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", type=int, default=300)
    parser.add_argument(
        "--grow", action="store_true", help="also measure up to ten times the files"
    )
    parser.add_argument("--directory", type=Path, help="where to work (a new temporary directory)")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="deploy-bench-", dir=options.directory))
    try:
        world = World(scratch / "world", options.modules)
        print(f"{options.modules} modules, {len(world.sources())} source files\n")
        measure(world, World(scratch / "durable", max(3, options.modules // 30), durable=True))
        memory = server_memory(world)
        print(f"resident memory of a server after a plan: {memory:.0f} MB (≤ 150 MB)")
        if program := os.environ.get("AGENTPACK_BIN"):
            compare_with_original(world, program)
        if options.grow:
            grow(scratch, options.modules)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
