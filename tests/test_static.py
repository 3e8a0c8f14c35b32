"""The rules that tools can check: style, types, layers, file length, what must not be here."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.rig import SESSION_TOKEN

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fleet_agentpack"
MAX_LINES = 500
MOST_SHAPELESS = 40
IMPORT_LINTER = ["-c", "from importlinter.cli import lint_imports_command as run; run()"]
APART = ("__init__", "__pycache__")


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["importlinter.cli"],
    ],
    ids=["lint", "format", "types", "layers"],
)
def test_the_checker_is_content(command: list[str]) -> None:
    words = IMPORT_LINTER if command == ["importlinter.cli"] else ["-m", *command]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_list_of_mutations_fits_the_code() -> None:
    words = [sys.executable, "benchmarks/mutations.py", "--check"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_is_held_by_the_layers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    held = {name.strip() for line in layers for name in line.split("|")}
    names = [path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")]
    ours = {f"fleet_agentpack.{name}" for name in names if name[0] != "." and name not in APART}
    assert ours == held


# What must not be written, where, and the word of the checker that stops it.
PLANTED = {
    "climpt/service.py": ("import fleet_agentpack.forge.service", "rooms do not meet"),
    "kit/locks.py": ("import fleet_agentpack.settings", "rooms do not meet"),
    "forge/service.py": ("import fastmcp", "only tools and the wire know MCP"),
    "fleet/ledger.py": ("import httpx", "only kit.http knows httpx"),
    "enact/service.py": ("import rich", "only the console knows rich"),
    "deploy/service.py": (
        "import fleet_agentpack.console.text",
        "neither the wire nor the terminal",
    ),
    "doctor/commands.py": ("import fleet_agentpack.forge.tools", "through the domains alone"),
}


def test_a_planted_violation_of_each_rule_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "fleet_agentpack"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, (line, _) in PLANTED.items():
        with (copy / name).open("a", encoding="utf-8") as module:
            module.write(f"\n{line}  # noqa\n")
    layers = subprocess.run(
        [sys.executable, *IMPORT_LINTER], cwd=tmp_path, capture_output=True, text=True
    )
    assert layers.returncode == 1, layers.stdout + layers.stderr
    _, _, broken = layers.stdout.partition("Broken contracts")
    for name, (_, contract) in PLANTED.items():
        assert contract in broken
        assert f"fleet_agentpack.{name[:-3].replace('/', '.')} -> " in broken

    (copy / "climpt" / "search.py").write_text('print("in a service")\n')
    prints = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "T20", "."],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert prints.returncode == 1
    assert "climpt/search.py" in prints.stdout


def test_no_module_grows_past_what_one_reads_in_one_go() -> None:
    sizes = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}


def test_few_functions_return_data_of_no_known_shape() -> None:
    """Only parsed files, JSON Schemas and what a library hands out; our own answers have types."""
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for path in PACKAGE.rglob("*.py")
        if "builtin" not in path.parts
    }
    aliases = {module: _shapeless_aliases(tree) for module, tree in trees.items()}
    shapeless = []
    for module, tree in trees.items():
        named = {"Any", "dict", "list", "Mapping"} | aliases[module]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                named |= {each.name for each in node.names} & aliases.get(node.module or "", set())
        shapeless += [
            f"{module}: {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if node.returns and _is_shapeless(node.returns, named)
        ]
    assert len(shapeless) < MOST_SHAPELESS, "\n".join(shapeless)


def _shapeless_aliases(tree: ast.Module) -> set[str]:
    """A module's own names for such data: `Schema = dict[str, object]`."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript)
        if _is_shapeless(node.value, {"Any"})
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_shapeless(hint: ast.expr, named: set[str]) -> bool:
    """Whether a type is, or holds, `Any`, a bare collection, or a mapping of names to anything."""
    if isinstance(hint, ast.Constant) and isinstance(hint.value, str):
        hint = ast.parse(hint.value, mode="eval").body
    if isinstance(hint, ast.Subscript) and ast.unparse(hint.value) == "Callable":
        return False  # a function is no data
    filled = {id(node.value) for node in ast.walk(hint) if isinstance(node, ast.Subscript)}
    return any(
        (isinstance(node, ast.Name) and node.id in named and id(node) not in filled)
        or (isinstance(node, ast.Tuple) and ast.unparse(node).endswith("str, object)"))
        for node in ast.walk(hint)
    )


def test_public_functions_say_what_they_do() -> None:
    silent = []
    for path in PACKAGE.rglob("*.py"):
        if "builtin" not in path.parts:
            body = ast.parse(path.read_text(encoding="utf-8")).body
            silent += [f"{path.name}: {name}" for name in _undocumented(body)]
    assert silent == []


def _undocumented(body: list[ast.stmt]) -> list[str]:
    found = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name.startswith("_"):
                continue
            if not ast.get_docstring(node):
                found.append(node.name)
            if isinstance(node, ast.ClassDef):
                found += [f"{node.name}.{name}" for name in _undocumented(node.body)]
    return found


def test_the_tree_names_no_download_addresses_and_no_session_tokens() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = listed.stdout.split("\n")
    assert "uv.lock" not in names
    for name in filter(None, names):
        path = ROOT / name
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            assert not SESSION_TOKEN.search(text), name


def test_constraints_pin_by_name_and_version_only() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[a-z0-9_.-]+==[0-9][\w.+!]*(?: ; .*)?", line), line
