"""A server's second answer: given again while nothing has changed, made again as soon as it has."""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet_agentpack.deploy import running
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.model import module_fs_key
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.service import DeployService
from fleet_agentpack.deploy.unchanged import Unchanged
from fleet_agentpack.kit import inotify, tree_watch
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.results import jsonable
from fleet_agentpack.kit.tree_watch import TreeWatch
from tests.deploy.lab import CLAUDE, Lab

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's notifications")


class Counting(TreeWatch):
    """Counts the looks that it was told of."""

    looks = 0

    def begin(self) -> None:
        super().begin()
        type(self).looks += 1


class Served:
    """A lab with a service as a server has it."""

    def __init__(self, lab: Lab, unchanged: Unchanged | None = None, *names: str) -> None:
        self.lab = lab
        self.names = names or ("plan", "diff", "status")
        self.variables: dict[str, str] = dict(lab.environ)
        home = Home.of(self.variables, lab.user, lab.project, lab.cache)
        self.service = DeployService(home, unchanged=unchanged or Unchanged(lambda: Counting(4096)))

    def answers(self, service: DeployService | None = None) -> Any:
        service = service or self.service
        return [
            _outcome(getattr(service, name), Request(target=target))
            for name in self.names
            for target in ("all", "codex")
        ]

    def fresh(self) -> Any:
        """The same answers from a process that knows nothing."""
        cache = self.lab.root / "another-cache"
        return self.answers(
            DeployService(Home.of(dict(self.variables), self.lab.user, self.lab.project, cache))
        )

    def looks(self, act: Callable[[], object]) -> int:
        before = Counting.looks
        act()
        return Counting.looks - before


def _outcome(ask: Callable[[Request], object], request: Request) -> object:
    try:
        return jsonable(ask(request))
    except DeployError as error:  # the same error is the same answer
        return jsonable(error.payload())


@pytest.fixture(autouse=True)
def overlays_notify(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the tests may be on an overlay; all of its changes are our own."""
    monkeypatch.setattr(tree_watch, "NOTIFYING", tree_watch.NOTIFYING | {"overlay"})


def furnished(root: Path, *, git: bool = False) -> Lab:
    """A lab with some of everything that a plan looks at, deployed."""
    lab = Lab(root, git=git)
    lab.furnish()
    lab.source("shared/notes.md", "Notes.\n")
    lab.source("shared/others.md", "Others.\n")
    (lab.repo / "modules/skills/tidy/notes.md").symlink_to("../../../shared/notes.md")
    (root / "elsewhere").mkdir()
    lab.source("modules/skills/tidy/linked.md", "Linked.\n")
    os.link(lab.repo / "modules/skills/tidy/linked.md", root / "elsewhere/linked.md")
    overlay = f"overlays/{module_fs_key('skill:tidy')}"
    lab.source(f"{overlay}/more.md", "More.\n")
    lab.source(f"{overlay}/.agentpack/overlay.json", '{"overlay_kind": "dir"}')
    (root / "dotfiles/codex").mkdir(parents=True)
    (lab.user / ".codex").symlink_to(root / "dotfiles/codex")
    lab.deploy()
    output = lab.user / ".claude/skills/tidy/SKILL.md"
    output.rename(root / "elsewhere/SKILL.md")
    output.symlink_to(root / "elsewhere/SKILL.md")
    shutil.rmtree(root / "project/.claude/skills/tidy/scripts")
    return lab


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(furnished(tmp_path))
    found.answers()
    found.answers()  # what was late the first time is watched the second time
    yield found
    found.service.close()


def _append(path: Path, text: str = "changed\n") -> None:
    with path.open("a") as stream:
        stream.write(text)


def _replace(path: Path) -> None:
    other = path.with_name("replacement.tmp")
    other.write_text("replaced\n")
    other.rename(path)


def _write_mapped(path: Path) -> None:
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        mapped[:1] = b"X"


def _swap_directories(path: Path) -> None:
    """Another directory takes the name, with other files in it."""
    shutil.copytree(path, path.with_name("other"), symlinks=True)
    path.rename(path.with_name("former"))
    path.with_name("other").rename(path)
    for file in path.rglob("AGENTS.md"):
        _append(file)


def _relink(path: Path, target: str | Path) -> None:
    path.unlink()
    path.symlink_to(target)


REPO = "agentpack/repo"
TIDY = f"{REPO}/modules/skills/tidy"
OUTPUT = "project/.codex/skills/tidy"
CHANGES: dict[str, Callable[[Path], object]] = {
    "source: modified": lambda top: _append(top / TIDY / "SKILL.md"),
    "source: created": lambda top: (top / TIDY / "new.md").write_text("new"),
    "source: created deeper": lambda top: (top / TIDY / "scripts/new.sh").write_text("new"),
    "source: a directory": lambda top: shutil.copytree(top / TIDY / "scripts", top / TIDY / "b"),
    "source: deleted": lambda top: (top / TIDY / "scripts/run.sh").unlink(),
    "source: renamed": lambda top: (top / TIDY / "scripts/run.sh").rename(top / TIDY / "a.sh"),
    "source: replaced": lambda top: _replace(top / TIDY / "scripts/run.sh"),
    "source: truncated": lambda top: os.truncate(top / TIDY / "scripts/run.sh", 3),
    "source: mode": lambda top: (top / TIDY / "SKILL.md").chmod(0o755),
    "source: mapped": lambda top: _write_mapped(top / TIDY / "scripts/run.sh"),
    "source: another directory": lambda top: _swap_directories(top / REPO / "modules"),
    "source: hard link": lambda top: _append(top / "elsewhere/linked.md"),
    "link: retargeted": lambda top: _relink(top / TIDY / "notes.md", "../../../shared/others.md"),
    "link: target modified": lambda top: _append(top / REPO / "shared/notes.md"),
    "link: target's directory": lambda top: (top / REPO / "shared").rename(top / REPO / "away"),
    "single file": lambda top: _append(top / REPO / "modules/prompts/hello.md"),
    "repo: manifest": lambda top: _append(top / REPO / "agentpack.yaml", "bad: [\n"),
    "repo: gone": lambda top: (top / REPO).rename(top / "away"),
    "repo: lockfile": lambda top: (top / REPO / "agentpack.lock.json").write_text("{"),
    "overlay: modified": lambda top: _append(next((top / REPO / "overlays").rglob("more.md"))),
    "overlay: kind": lambda top: _describe_overlay(top, "overlay.json"),
    "overlay: baseline": lambda top: _describe_overlay(top, "baseline.json"),
    "overlay: patches": lambda top: _describe_overlay(top, "patches/SKILL.md.patch"),
    "overlay: of a machine": lambda top: _machine_overlay(top),
    "output: modified": lambda top: _append(top / OUTPUT / "SKILL.md"),
    "output: deleted": lambda top: (top / OUTPUT / "SKILL.md").unlink(),
    "output: mode": lambda top: (top / OUTPUT / "scripts/run.sh").chmod(0o644),
    "output: all gone": lambda top: shutil.rmtree(top / "project/.codex"),
    "output: in a root with other files": lambda top: _append(top / "project/AGENTS.md"),
    "output: through a link": lambda top: _append(top / "dotfiles/codex/AGENTS.md"),
    "output: extra": lambda top: (top / OUTPUT / "extra.md").write_text("extra"),
    "output: a link's target": lambda top: _append(top / "elsewhere/SKILL.md"),
    "output: where no directory was": lambda top: _write_below_missing(top),
    "output: became a link": lambda top: _to_link(top / OUTPUT / "SKILL.md", top / "elsewhere/a"),
    "target manifest: modified": lambda top: _append(_manifest(top), "}"),
    "target manifest: deleted": lambda top: _manifest(top).unlink(),
    "root: link retargeted": lambda top: _relink(top / "user/.codex", top / "elsewhere"),
    "root: link's target moved": lambda top: (top / "dotfiles").rename(top / "files"),
    "home: moved": lambda top: (top / "user").rename(top / "was-user"),
    "project: gone": lambda top: (top / "project").rename(top / "away"),
    "project: another one": lambda top: _swap_directories(top / "project"),
    "state: a journal": lambda top: (top / "agentpack/state/journal.json").write_text("{}"),
    "state: snapshots gone": lambda top: _forget_deploys(top),
    "settings: a target less": lambda top: _drop_target(top),
}


def _manifest(top: Path) -> Path:
    return top / "project/.codex/skills/.agentpack.manifest.codex.json"


def _write_below_missing(top: Path) -> None:
    path = top / "project/.claude/skills/tidy/scripts/run.sh"
    path.parent.mkdir()
    path.write_text("mine\n")


def _to_link(path: Path, target: Path) -> None:
    target.write_text("elsewhere\n")
    _relink(path, target)


def _describe_overlay(top: Path, name: str) -> None:
    metadata = next((top / REPO / "overlays").rglob("overlay.json")).parent
    (metadata / name).parent.mkdir(exist_ok=True)
    (metadata / name).write_text('{"overlay_kind": "patch"}')


def _machine_overlay(top: Path) -> None:
    name = next((top / REPO / "overlays").rglob("more.md")).parent.name
    place = top / REPO / "overlays/machines/test-machine" / name
    place.mkdir(parents=True)
    (place / "machine.md").write_text("Here.\n")


def _forget_deploys(top: Path) -> None:
    shutil.rmtree(top / "agentpack/state/snapshots")
    for path in [*top.glob("*/.*/**/.agentpack.manifest.*"), *top.glob("project/.agentpack.*")]:
        path.unlink()


def _drop_target(top: Path) -> None:
    manifest = top / REPO / "agentpack.yaml"
    text = manifest.read_text()
    assert "write_user_skills: true" in text
    manifest.write_text(text.replace("write_user_skills: true", "write_user_skills: false"))


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_by_the_next_answer(tmp_path: Path, name: str) -> None:
    served = Served(furnished(tmp_path))
    unwatched = Served(served.lab, Unchanged(lambda: None))
    served.answers()
    before = served.answers()
    assert before == unwatched.answers()
    assert served.looks(served.answers) == 0
    CHANGES[name](tmp_path)
    after = served.answers()
    assert after == served.fresh() != before
    assert after == served.answers() == unwatched.answers()
    served.service.close()


def test_nothing_is_looked_at_while_nothing_changes(served: Served) -> None:
    asked: list[str] = []
    with Listening(asked):
        served.answers()
    assert asked == []


def test_the_first_answer_is_kept_unless_a_file_has_other_names(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.furnish()
    served = Served(lab)
    assert served.looks(lambda: served.service.plan(Request())) == 1
    assert served.looks(lambda: served.service.plan(Request(session="another"))) == 0
    assert served.looks(lambda: served.service.plan(Request(target="codex"))) == 1
    served.service.close()


def test_other_files_beside_the_outputs_do_not_matter(served: Served) -> None:
    noise = [served.lab.project / "README.md", served.lab.user / ".codex/history.jsonl"]
    for path in (*noise, *noise):
        _append(path)
    assert served.looks(served.answers) == 0
    assert served.answers() == served.fresh()


def test_a_variable_matters(served: Served) -> None:
    before = served.answers()
    served.variables["CODEX_HOME"] = str(served.lab.root / "elsewhere")
    assert served.answers() == served.fresh() != before


def test_a_change_during_the_first_look_is_seen(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.furnish()

    class Interrupted(Counting):
        def files(self, paths: Any) -> None:
            super().files(paths)
            if not self._meanwhile:  # all sources have been read
                self._meanwhile = True
                lab.source("modules/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: x\n---\n")

        _meanwhile = False

    served = Served(lab, Unchanged(lambda: Interrupted(4096)))
    before = served.service.plan(Request())
    after = served.service.plan(Request())
    assert jsonable(after) == served.fresh()[0] != jsonable(before)
    served.service.close()


def test_too_many_events_mean_a_full_look(served: Served) -> None:
    longest = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if longest > 100_000:
        pytest.skip("the queue is very long here")
    noise = [served.lab.write(f"project/noise{number}", "") for number in (1, 2)]
    for _ in range(longest // 2 + 10):
        for path in noise:
            os.utime(path)
    _append(served.lab.root / TIDY / "SKILL.md")  # finds no room in the queue
    assert served.answers() == served.fresh()
    assert served.answers() == served.fresh()


def test_beyond_the_limit_every_answer_is_made_by_looking(tmp_path: Path) -> None:
    lab = furnished(tmp_path)
    before = _descriptors()
    served = Served(lab, Unchanged(lambda: Counting(12)))
    first = served.answers()
    assert _descriptors() == before
    assert served.answers() == first == served.fresh()
    _append(tmp_path / TIDY / "SKILL.md")
    assert served.answers() == served.fresh() != first


@pytest.mark.parametrize("number", ["ENOSPC", "EMFILE", "EACCES"])
def test_a_watch_that_the_system_refuses(
    tmp_path: Path, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(getattr(errno, number), "refused")

    served = Served(furnished(tmp_path))
    served.answers()
    monkeypatch.setattr(inotify.Inotify, "add", refuse)
    _swap_directories(tmp_path / "project")
    assert served.answers() == served.fresh()
    _append(tmp_path / TIDY / "SKILL.md")
    assert served.answers() == served.fresh()
    served.service.close()


def test_where_changes_are_not_notified_every_answer_is_made_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_watch, "NOTIFYING", frozenset({"nfs4"}))
    served = Served(furnished(tmp_path))
    first = served.answers()
    assert served.looks(served.answers) == 0  # nobody is told any longer
    _append(tmp_path / TIDY / "SKILL.md")
    assert served.answers() == served.fresh() != first


def test_an_apply_always_looks(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an apply must look")

    _append(served.lab.root / OUTPUT / "SKILL.md")
    monkeypatch.setattr(Unchanged, "answer", refuse)
    answer = served.service.deploy(Request(adopt=True))
    assert {Path(row.path).name for row in answer.data.changes} == {"SKILL.md", "run.sh"}


def test_our_own_apply_is_seen(served: Served) -> None:
    _append(served.lab.root / TIDY / "SKILL.md")
    planned = served.service.plan(Request()).data
    assert planned.changes
    served.service.deploy(Request(adopt=True))  # one output is a link by now
    assert served.service.plan(Request()).data.changes == []
    assert served.answers() == served.fresh()


def test_everything_is_released_at_the_end(tmp_path: Path) -> None:
    before = _descriptors()
    served = Served(furnished(tmp_path))
    served.answers()
    assert _descriptors() == before + 2
    served.service.close()
    assert _descriptors() == before


def test_what_is_not_pinned_is_looked_for_every_time(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    _commit(lab, "upstream", "SKILL.md", "---\nname: far\ndescription: Far.\n---\n")
    upstream = tmp_path / "upstream"
    lab.module("skill", "far", "", source={"git": {"url": str(upstream), "ref": "main"}})
    served = Served(lab)
    served.service.upkeep.update(Request())
    (lab.repo / "agentpack.lock.json").unlink()
    before = [served.service.plan(Request()).data for _ in range(3)][-1]
    _commit(lab, "upstream", "SKILL.md", "---\nname: far\ndescription: Farther.\n---\n")
    assert served.service.plan(Request()).data == before  # the network is not asked
    lab.service().upkeep.update(Request())
    (lab.repo / "agentpack.lock.json").unlink()
    assert served.service.plan(Request()).data != before
    served.service.close()


def test_who_holds_the_lock_is_asked_every_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = served.lab.home()
    home.journal.write_text("{}")
    monkeypatch.setattr(running, "pending", lambda _: "123")
    for _ in range(2):
        assert "an interrupted deploy (123)" in served.service.plan(Request()).warnings[0]
    with file_lock(home.lock, timeout_s=0):
        assert "a deploy (123) is running" in served.service.plan(Request()).warnings[0]


def _commit(lab: Lab, repository: str, name: str, text: str) -> None:
    place = lab.write(f"{repository}/{name}", text) and lab.root / repository
    lab.git("init", "--quiet", "--initial-branch=main", cwd=place)
    lab.git("add", ".", cwd=place)
    someone = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    lab.git(*someone, "commit", "--quiet", "--message", text, cwd=place)


class Listening:
    """Notes every path that is asked of the system inside the block."""

    def __init__(self, asked: list[str]) -> None:
        self._asked = asked
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        for name in ("stat", "lstat", "open", "scandir", "listdir", "readlink", "access"):
            self._patch.setattr(os, name, self._noting(getattr(os, name)))
        self._patch.setattr(builtins, "open", self._noting(open))
        self._patch.setattr(io, "open", self._noting(io.open))

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _noting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def noted(path: Any = ".", *others: Any, **named: Any) -> Any:
            if not isinstance(path, int):
                around = f"/proc/self/fd/{named['dir_fd']}" if named.get("dir_fd") else ""
                self._asked.append(os.path.join(os.path.realpath(around), os.fsdecode(path)))
            return real(path, *others, **named)

        return noted


@pytest.mark.parametrize("name", ["plan", "status"])
def test_every_path_that_an_answer_asks_for_is_watched(tmp_path: Path, name: str) -> None:
    """If this fails, code that reads a file does not say so: call `reads.at` or `reads.into`."""
    lab = furnished(tmp_path, git=True)
    lab.targets["claude_code"] = {**CLAUDE, "scope": "user"}  # leaves the project's files behind
    _commit(lab, "upstream", "part/SKILL.md", "---\nname: far\ndescription: Far.\n---\n")
    source = {"url": str(tmp_path / "upstream"), "ref": "main", "subdir": "part"}
    lab.module("skill", "far", "", source={"git": source})
    lab.service().upkeep.update(Request())
    (lab.repo / "projects").mkdir()
    served = Served(lab, None, name)
    served.answers()
    served.answers()
    asked: list[str] = []
    (lab.project / "AGENTS.md").touch()
    with Listening(asked):
        served.answers()
    top, own = str(tmp_path), f"{lab.cache}/"
    places = sorted({path for path in asked if path.startswith(top) and not path.startswith(own)})
    assert len(places) > 80
    unheard = [path for path in places if not _is_heard_of(served, path)]
    assert unheard == []
    served.service.close()


def _is_heard_of(served: Served, path: str) -> bool:
    """Whether the next answer looks again after something happened at a path."""
    assert served.looks(served.answers) == 0, path
    made: list[str] = []
    if os.path.lexists(path):
        os.utime(path, follow_symlinks=False)
    else:
        above = path
        while not os.path.lexists(above):
            made.append(above)
            above = os.path.dirname(above)
        if not os.path.isdir(above):
            return True  # below a file there can be nothing
        os.makedirs(path)
    heard = served.looks(served.answers) > 0
    for each in made:
        os.rmdir(each)
    served.answers()
    served.answers()
    return heard


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


PLACES = [
    f"{TIDY}/SKILL.md",
    f"{TIDY}/scripts/run.sh",
    f"{TIDY}/docs/deep/a.md",
    f"{REPO}/shared/notes.md",
    f"{REPO}/modules/prompts/hello.md",
    f"{OUTPUT}/SKILL.md",
    f"{OUTPUT}/docs/deep/a.md",
    "project/AGENTS.md",
    "project/.claude/commands/go.md",
    "dotfiles/codex/prompts/hello.md",
    "user/.claude/skills/tidy/scripts/run.sh",
    "project/README.md",
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "append", "delete", "mode", "move up", "link", "deploy", "none"]),
        st.sampled_from(PLACES),
    ),
    max_size=6,
)


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_answers_are_those_of_a_process_that_knows_nothing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    top = tmp_path_factory.mktemp("lab")
    served = Served(furnished(top))
    try:
        for step, place in steps:
            _take(step, top / place, served)
            assert served.answers() == served.fresh()
    finally:
        served.service.close()
        shutil.rmtree(top)


def _take(step: str, path: Path, served: Served) -> None:
    try:
        if step in ("write", "append"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("written\n") if step == "write" else _append(path)
        elif step == "delete":
            path.unlink()
        elif step == "mode":
            path.chmod(path.stat().st_mode ^ 0o111)
        elif step == "move up":
            path.parent.rename(path.parent.with_name("moved"))
        elif step == "link":
            _to_link(path, served.lab.root / "elsewhere/target")
        elif step == "deploy":
            _outcome(served.service.deploy, Request(adopt=True))
    except OSError:
        return  # an earlier step was in the way
