"""How long the deploy engine takes, against reading and hashing the same files once.

    python benchmarks/deploy.py [--modules 300] [--grow] [--directory DIR]

Everything is measured in one process and printed as a ratio of the limit, so that figures from
different machines can be compared. The limit is taken in two ways: with `open` as everybody
writes it, and with `buffering=0`, the cheapest that Python itself offers; the bounds are checked
against the cheaper one. Calls are made as a server makes them; what it answers again while nothing
has changed is also asked of a real server process. `--grow` goes up to ten times the files. It ends
with status 1 if a bound was missed. With DEPLOY_BASELINE naming another tree of this project, a
deploy of one changed file is compared with that tree's, in turns. With AGENTPACK_BIN naming the
original binary, its deploy of one changed file and its plan are measured beside ours on the same
repo, and the plans are compared.

ext4 makes files ten times as slowly for some minutes after many were deleted on the same disk, and
Linux is slow to watch a directory while it remembers very many names that are gone from it. So
nothing is deleted before the end, and `--directory` can name a place where nothing was lately.
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
from contextlib import ExitStack, contextmanager
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
        self.modules = modules
        self.durable = durable
        self.repo = root / "agentpack/repo"
        self.project = root / "project"
        self.user = root / "user"
        self.project.mkdir(parents=True)
        self.user.mkdir()
        self._random = random.Random(7)
        self._forgotten = itertools.count()
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
        for place in (self.user, self.project, self.root / "agentpack/state"):
            self.put_aside(place)
        self.user.mkdir()
        self.project.mkdir()
        subprocess.run(["git", "init", "--quiet", str(self.project)], check=True, env=self.environ)

    def put_aside(self, place: Path) -> None:
        """Have something no longer where it was, without deleting it."""
        if place.exists():
            place.rename(self.root / f"forgotten-{next(self._forgotten)}")

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


def write_plainly(contents: list[bytes], records: list[bytes], top: Path, *, durable: bool) -> None:
    """What an apply writes: each content once, a name for it per output, outputs and records.

    An output comes by way of a temporary file; a content is written in its place.
    """
    stored: set[str] = set()
    store, copies = top / "contents", top / "copy"
    for place in (store, copies):
        place.mkdir(parents=True)
    for number, data in enumerate(records):
        _write(f"{top}/{number}.json", data, durable=durable)
    for number, data in enumerate(contents):
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 not in stored:
            stored.add(sha256)
            _write(f"{store}/{sha256}", data, durable=durable)
        os.link(f"{store}/{sha256}", f"{copies}/{number}")
        place = top / "out" / str(number % 997)
        place.mkdir(parents=True, exist_ok=True)
        _write(f"{place}/.{number}.tmp", data, durable=durable)
        os.rename(f"{place}/.{number}.tmp", f"{place}/{number}")  # noqa: PTH104
        if durable:
            sync_directory(str(place))


def _write(path: str, data: bytes, *, durable: bool) -> None:
    with open(path, "wb") as stream:  # noqa: PTH123
        stream.write(data)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())


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
    """Rows of a name, seconds, and their ratio to the limits; knows whether all bounds held."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        print(f"{'':<50} {'time':>12} {'× buffered':>11} {'× unbuffered':>13}")

    def add(self, name: str, seconds: float, *limits: float, bound: float | None = None) -> None:
        ratios = [seconds / limit for limit in limits]
        shown = " ".join(f"{ratio:11.2f}×" for ratio in ratios)
        kept = bound is None or ratios[-1] <= bound
        verdict = "" if bound is None else f"  ≤ {bound:g}× {'yes' if kept else 'NO'}"
        print(f"{name:<50} {seconds * 1000:9.1f} ms {shown}{verdict}")
        if not kept:
            self.missed.append(name)

    def check(self, name: str, found: float, bound: float, unit: str) -> None:
        """A figure with a bound of its own."""
        kept = found <= bound
        print(f"{name}: {found:.2f}{unit} (≤ {bound:g}{unit}) {'yes' if kept else 'NO'}")
        if not kept:
            self.missed.append(name)


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
        self._world.put_aside(self._world.root / f"cache-{self._name}-{self._number}")


def measure(world: World, durable: World) -> list[str]:
    """Everything; the names of the bounds that were missed."""
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
    table.check("resident memory of a server after a plan", server_memory(world), 150, " MB")
    return table.missed


def measure_apply(world: World, table: Table) -> None:
    """Everything new, twice; between the two, the same files written plainly in the same way."""
    took, plain = [], []
    for number in range(2):
        world.forget()
        took.append(timed(lambda: world.service("cache-apply").deploy(Request())))
        contents = [Path(path).read_bytes() for path in world.outputs()]
        records = [path.read_bytes() for path in (world.root / "agentpack/state").rglob("*.json")]
        top = world.root / f"plain-{number}"
        plain.append(
            timed(
                lambda c=contents, r=records, t=top: write_plainly(c, r, t, durable=world.durable)
            )
        )
    limit, how = min(plain), ", each synced" if world.durable else ""
    table.add(f"limit: write {len(contents)} files, each content and its names{how}", limit, limit)
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
    measure_one_file(world, service, table, limits)
    snapshot = service.snapshots().data.snapshots[-1].id
    print(f"rollback to the first snapshot: {timed(lambda: service.rollback(snapshot)):.2f} s")


ONE = "modules/skill/m10/file1.md"  # the file that changes when only one does


def measure_one_file(
    world: World, service: DeployService, table: Table, limits: tuple[float, float]
) -> None:
    """Twenty deploys of one changed file, between those of others: their time, and the state."""
    before, took = state_bytes(world), []
    with others(world) as by_name:
        theirs: dict[str, list[float]] = {name: [] for name in by_name}
        for number in range(20):
            (world.repo / ONE).write_text(f"changed {number}\n")
            took.append(timed(lambda: service.deploy(Request())))
            for name, (rounds, _, deploy) in by_name.items():
                if number < rounds:
                    theirs[name].append(deploy())
    table.add("deploy --apply of one changed file", min(took), *limits)
    for name, found in theirs.items():
        table.check(f"  of the same by {name}", min(took) / min(found), by_name[name][1], "×")
    table.check("state after 20 such deploys", state_bytes(world) / before, 1.3, "×")


Other = tuple[int, float, Callable[[], float]]  # rounds, our bound, a deploy that says how long


@contextmanager
def others(world: World) -> Iterator[dict[str, Other]]:
    """Who else can deploy one changed file, each in a world of its own."""
    found: dict[str, Other] = {}
    with ExitStack() as stack:
        if tree := os.environ.get("DEPLOY_BASELINE"):
            place = stack.enter_context(scratch_below(world.root))
            deploy = stack.enter_context(another_tree(tree, place, world.modules))
            found[f"the tree in {Path(tree).name}"] = (20, 0.25, deploy)
        if program := os.environ.get("AGENTPACK_BIN"):
            place = stack.enter_context(scratch_below(world.root))
            original = Original(World(place / "world", world.modules), program)
            original.deploy_one()
            found["the original"] = (5, 0.15, original.deploy_one)
        yield found


@contextmanager
def scratch_below(directory: Path) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(dir=directory))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def another_tree(tree: str, place: Path, modules: int) -> Iterator[Callable[[], float]]:
    """Deploys with the code of another tree: in a process of its own, one for every line."""
    code = (
        "import sys, time, pathlib; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/benchmarks']\n"
        "import deploy\n"
        "from fleet_agentpack.deploy.request import Request\n"
        "world = deploy.World(pathlib.Path(sys.argv[2]), int(sys.argv[3]))\n"
        "world.service().deploy(Request()); time.sleep(0.3)\n"
        "service = world.service(); service.plan(Request()); print(flush=True)\n"
        "for line in sys.stdin:\n"
        f"    (world.repo / {ONE!r}).write_text('changed ' + line)\n"
        "    print(deploy.timed(lambda: service.deploy(Request())), flush=True)\n"
    )
    command = [sys.executable, "-c", code, tree, str(place / "world"), str(modules)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        process.stdout.readline()
        numbers = itertools.count()

        def deploy() -> float:
            process.stdin.write(f"{next(numbers)}\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield deploy
        process.stdin.close()


def state_bytes(world: World) -> int:
    """The bytes of all files in the state, hard links once, without records in JSON."""
    state = world.root / "agentpack/state"
    found = [path.lstat() for path in state.rglob("*") if path.is_file() and _is_content(path)]
    return sum({each.st_ino: each.st_size for each in found}.values())


def _is_content(path: Path) -> bool:
    return path.suffix != ".json" and not path.read_bytes().startswith(b'{\n  "schema_version"')


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
        self._world, self._count = world, itertools.count()
        self._where = {"env": world.environ, "cwd": world.project, "stdout": subprocess.PIPE}
        self._program = program

    def plan(self) -> Any:
        """`plan --json`: a process of its own."""
        command = [self._program, "plan", "--json"]
        done = subprocess.run(command, check=True, **self._where)
        return json.loads(done.stdout)["data"]

    def deploy_one(self) -> float:
        """How long it takes to deploy one changed file; its start takes next to nothing."""
        (self._world.repo / ONE).write_text(f"changed {next(self._count)}\n")
        command = [self._program, "deploy", "--apply", "--yes", "--json"]
        return timed(lambda: subprocess.run(command, check=True, **self._where))


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
        durable = World(scratch / "durable", max(3, options.modules // 30), durable=True)
        missed = measure(world, durable)
        if program := os.environ.get("AGENTPACK_BIN"):
            compare_with_original(world, program)
        if options.grow:
            grow(scratch, options.modules)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
