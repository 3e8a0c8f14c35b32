"""Puts small faults into the code, one at a time, and tells which of them the tests do not notice.

    python benchmarks/mutations.py [--list] [--check] [--only NAME …]

The faults are listed in mutations.toml: a file, the exact text, what to put in its place, and the
tests that must fail then. They are made in scratch copies of the tree, never in the checkout. The
status is 1 when fewer than 95 % are noticed, or when the list no longer fits the code.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
WANTED = 0.95
WORKERS = 2
TIMEOUT_S = 900.0
COPIED = ("fleet_agentpack", "tests", "cassettes", "docs", "README.md", "pyproject.toml")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Mutation:
    """One fault, and the tests that should notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def problem(self, root: Path = ROOT) -> str | None:
        """Why it cannot be made, if so."""
        path = root / self.file
        if not path.is_file():
            return f"there is no {self.file}"
        if (count := path.read_text(encoding="utf-8").count(self.old)) != 1:
            return f"its text is {count} times in {self.file}"
        missing = [test for test in self.tests if not (root / test.partition("::")[0]).exists()]
        return f"there is no {missing[0]}" if missing else None


@dataclass(frozen=True)
class Verdict:
    """What the tests said."""

    state: str  # killed, survived, timeout or broken
    told: str
    seconds: float

    @property
    def noticed(self) -> bool:
        """Whether the fault did not go through; a test that hangs has noticed it too."""
        return self.state in ("killed", "timeout")


class Scratch:
    """A copy of the tree with an interpreter that imports the package from there only."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.tree.mkdir(parents=True)
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, self.tree / name, ignore=ignored)
            else:
                shutil.copy2(ROOT / name, self.tree / name)
        # Not the checkout's own environment: what is installed there is the checkout.
        venv.create(folder / "env", with_pip=False)
        self._python = folder / "env" / "bin" / "python"
        self._running: subprocess.Popen[str] | None = None
        libraries = next((folder / "env" / "lib").glob("python*")) / "site-packages"
        paths = f"{self.tree}\n{sysconfig.get_path('purelib')}\n"
        (libraries / "tree.pth").write_text(paths, encoding="utf-8")
        self._install_command()

    def _install_command(self) -> None:
        """Put our command beside the interpreter: advice names it where it is installed."""
        command = self._python.with_name("fleet-agentpack")
        start = "from fleet_agentpack.__main__ import main\n\nraise SystemExit(main())\n"
        command.write_text(f"#!{self._python}\n{start}", encoding="utf-8")
        command.chmod(0o755)

    def judge(self, mutation: Mutation) -> Verdict:
        """Make the fault, run its tests, take the fault back."""
        if problem := mutation.problem(self.tree):
            return Verdict("broken", problem, 0.0)
        with self._changed(mutation):
            return self.run(mutation.tests)

    def run(self, tests: Sequence[str], *more: str) -> Verdict:
        """What pytest says of these tests in the copy as it is."""
        command = [self._python, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE"]
        command += ["-p", "no:cacheprovider", *more, *tests]
        began = time.monotonic()
        process = self._running = subprocess.Popen(
            command,
            cwd=self.tree,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            output = None
        finally:
            self.stop()
            process.wait()
        return _verdict(process.returncode, output, time.monotonic() - began)

    def stop(self) -> None:
        """End the tests that run here, with all that they started."""
        if self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)

    @contextlib.contextmanager
    def _changed(self, mutation: Mutation) -> Iterator[None]:
        path = self.tree / mutation.file
        text = path.read_text(encoding="utf-8")
        try:
            self._write(path, text.replace(mutation.old, mutation.new))
            yield
        finally:
            self._write(path, text)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Write a file; byte code of another text of the same size and second would be used."""
        path.write_text(text, encoding="utf-8")
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*"):
            stale.unlink()


def _verdict(status: int, output: str | None, seconds: float) -> Verdict:
    if output is None:
        return Verdict("timeout", f"still running after {TIMEOUT_S:g} s", seconds)
    if status == 0:
        return Verdict("survived", "", seconds)
    found = FAILED.search(output)
    if status == 1 and found:
        return Verdict("killed", found[1], seconds)
    last = next(iter(output.strip().splitlines()[-1:]), "")
    failed = " ".join(["", *FAILED.findall(output)])
    return Verdict("broken", f"pytest ended with status {status}: {last}{failed}", seconds)


def load(path: Path = LIST) -> list[Mutation]:
    """The list, in its order."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]
    return [
        Mutation(row["name"], row["file"], row["old"], row["new"], tuple(row["tests"]))
        for row in rows
    ]


def main() -> int:
    """Judge the chosen mutations and print what came of each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the list and stop")
    parser.add_argument("--check", action="store_true", help="only see that the list fits the code")
    parser.add_argument("--only", action="append", metavar="NAME", help="a name, or a pattern")
    options = parser.parse_args()
    wanted = options.only or ["*"]
    chosen = [each for each in load() if any(fnmatch.fnmatch(each.name, n) for n in wanted)]
    if not chosen:
        parser.error("no such mutation; --list shows the names")
    if options.list:
        for each in chosen:
            print(f"{each.name:34} {each.file:44} {' '.join(each.tests)}")
        return 0
    if unfit := [f"{each.name}: {problem}" for each in chosen if (problem := each.problem())]:
        print("the list does not fit the code:", *unfit, sep="\n  ")
        return 1
    return 0 if options.check else _judge_all(chosen)


def _judge_all(chosen: Sequence[Mutation]) -> int:
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        scratches = [Scratch(Path(folder, str(number))) for number in range(WORKERS)]
        tests = sorted({test for each in chosen for test in each.tests})
        sound = scratches[0].run(tests, "-n", str(WORKERS))
        if sound.state != "survived":
            print(f"the tests fail without any fault: {sound.told}")
            return 1
        print(f"{len(chosen)} mutations; their tests pass without them ({sound.seconds:.0f} s)")
        free: queue.SimpleQueue[Scratch] = queue.SimpleQueue()
        for scratch in scratches:
            free.put(scratch)

        def judge(mutation: Mutation) -> tuple[Mutation, Verdict]:
            scratch = free.get()
            try:
                return mutation, scratch.judge(mutation)
            finally:
                free.put(scratch)

        verdicts = {}
        pool = ThreadPoolExecutor(WORKERS)
        try:
            for mutation, verdict in pool.map(judge, chosen):
                verdicts[mutation] = verdict
                word = verdict.state if verdict.noticed else verdict.state.upper()
                line = f"{word:9} {mutation.name:34} {verdict.seconds:4.0f} s  {verdict.told}"
                print(line.rstrip(), flush=True)
        except BaseException:  # Ctrl-C reaches us alone: the tests have sessions of their own
            pool.shutdown(wait=False, cancel_futures=True)
            for scratch in scratches:
                scratch.stop()
            raise
        finally:
            pool.shutdown()
    return _summary(verdicts)


def _summary(verdicts: dict[Mutation, Verdict]) -> int:
    noticed = sum(verdict.noticed for verdict in verdicts.values())
    broken = [each.name for each, verdict in verdicts.items() if verdict.state == "broken"]
    survived = [each.name for each, verdict in verdicts.items() if verdict.state == "survived"]
    share = noticed / len(verdicts)
    print(f"\n{noticed} of {len(verdicts)} noticed ({share:.1%}; {WANTED:.0%} wanted)")
    if survived:
        print("survived:", *survived, sep="\n  ")
    if broken:
        print("could not be judged:", *broken, sep="\n  ")
    return 0 if share >= WANTED and not broken else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
