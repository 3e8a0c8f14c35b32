"""The forge commands that write: start a project, create, fork, merge, install, log in."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from fleet_agentpack.console.ask import ask_secret
from fleet_agentpack.console.command import Commands, Console
from fleet_agentpack.console.progress import progress
from fleet_agentpack.forge.errors import ForgeError, Warnings
from fleet_agentpack.forge.forking import create_fork, merge, plan_merge
from fleet_agentpack.forge.installer import Installer
from fleet_agentpack.forge.listing import Lockfile
from fleet_agentpack.forge.names import Directories, Registry
from fleet_agentpack.forge.service import Workspace, open_service
from fleet_agentpack.forge.setup import (
    Draft,
    Format,
    RegistryAddition,
    add_registry,
    create,
    initialise,
    remove_registry,
)
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.kit.secret import Secret


@dataclass(frozen=True)
class Login:
    """Where the token of a registry is kept: `keyring` or a file's path."""

    registry: str
    stored: str
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class Logout:
    """Whether there was a login to forget."""

    registry: str
    loggedOut: bool


LONGEST_TOKEN = 10_000
FORMATS = {
    "claude": "a Claude Code marketplace",
    "fractary": "a registry manifest",
    "plugins": "plugin folders",
}
PROVIDERS = ("anthropic", "openai", "google")


def add(commands: Commands) -> None:
    """Add every command that writes."""
    init = commands.add("init", "start a configuration in this project", _init, "--global")
    init.add_argument("--global", dest="for_user", action="store_true", help="in ~/.fractary")
    _add_creation(commands)
    _add_forking(commands)
    _add_registries(commands)
    _add_installing(commands)
    line = "write a lockfile of everything that the project uses"
    lock = commands.add("lock", line, _lock, "--check")
    lock.add_argument("--check", action="store_true", help="check instead of writing")
    lock.add_argument("--force", action="store_true", help="replace a broken lockfile")
    login = commands.add("login", "store a token for a registry", _login, "acme")
    login.add_argument("registry", nargs="?", default="stockyard")
    login.add_argument("--token-stdin", action="store_true", help="read the token from a pipe")
    logout = commands.add("logout", "remove the stored token of a registry", _logout, "acme")
    logout.add_argument("registry", nargs="?", default="stockyard")


def _add_creation(commands: Commands) -> None:
    examples = {
        "agent": "reviewer --description 'Reads every change' --tool line-count",
        "tool": "line-count --description 'Counts lines' --command 'wc -l'",
    }
    for kind, example in examples.items():
        create = commands.add(f"{kind}-create", f"create a new {kind}", _create, example)
        create.set_defaults(kind=kind)
        create.add_argument("name", help="lower-case words joined by hyphens")
        create.add_argument("--description", required=True)
        create.add_argument("--tag", action="append", dest="tags", default=[])
        create.add_argument("--author")
        create.add_argument("--extends", help="name or name@range of a base")
        create.add_argument("--format", choices=("md", "yaml"), default=None)
        if kind == "agent":
            create.add_argument(
                "--tool", action="append", dest="tools", default=[], help="a tool it may use"
            )
            create.add_argument("--provider", choices=PROVIDERS, default=PROVIDERS[0])
            create.add_argument("--model", default="claude-sonnet-4")
            create.add_argument("--prompt", help="the system prompt")
        else:
            create.add_argument("--command", default="echo 'replace this command'")


def _add_forking(commands: Commands) -> None:
    fork = commands.add(
        "fork create", "copy a definition to change it", _fork_create, "reviewer my-reviewer"
    )
    fork.add_argument("source", help="name or name@range")
    fork.add_argument("name", help="the fork's own name")
    fork.add_argument("--type", choices=("agent", "tool"), default=None)
    merge = commands.add(
        "merge", "bring upstream's changes into a fork", _merge, "my-reviewer --dry-run"
    )
    merge.add_argument("name")
    side = merge.add_mutually_exclusive_group()
    for name, text in (
        ("theirs", "take upstream's where both changed the same"),
        ("ours", "keep the fork's there"),
        ("resolved", "take the copies, once their conflicts are settled"),
    ):
        side.add_argument(f"--{name}", action="store_const", const=name, dest="side", help=text)
    merge.add_argument("--dry-run", action="store_true", help="show what would change")


def _add_registries(commands: Commands) -> None:
    registry = commands.add("registry add", "add a registry", _registry_add, "acme/plugins")
    registry.add_argument("name", nargs="?", help="default: what it calls itself")
    registry.add_argument(
        "address", help="owner/repo on GitHub, a URL, a marketplace.json or a directory"
    )
    registry.add_argument("--offline", action="store_true", help="add it without a look at it")
    registry.add_argument("--type", choices=("manifest", "stockyard"), default="manifest")
    registry.add_argument("--priority", type=int, default=10, help="the lowest is asked first")
    registry.add_argument("--token-env", metavar="NAME", help="variable that holds its token")
    remove = commands.add("registry remove", "remove a registry", _registry_remove, "acme")
    remove.add_argument("name")
    for parser in (registry, remove):
        parser.add_argument("--global", dest="for_user", action="store_true", help="in ~/.fractary")


def _add_installing(commands: Commands) -> None:
    install = commands.add("install", "install a plugin", _install, "@acme/review@^2")
    install.add_argument(
        "plugin", nargs="?", help="name, name@range or name@registry; default: the lockfile's"
    )
    uninstall = commands.add("uninstall", "remove a plugin", _uninstall, "@acme/review")
    uninstall.add_argument("plugin")
    for parser in (install, uninstall):
        parser.add_argument("--scope", choices=("local", "global"), default=None)
        parser.add_argument(
            "--for",
            dest="program",
            choices=("fractary", "claude"),
            default="fractary",
            help="the program that is to find it",
        )
        parser.add_argument("--force", action="store_true", help="even if files were edited")
    update = commands.add("update", "update installed plugins", _update, "--dry-run")
    update.add_argument("plugin", nargs="*", help="default: all of them")
    update.add_argument("--major", action="store_true", help="also across major versions")
    update.add_argument("--dry-run", action="store_true", help="show what would change")


def _init(console: Console) -> None:
    configuration = _workspace(console).configuration
    result = initialise(configuration, for_user=console.arguments.for_user)
    console.answer(result, [f"created {path}" for path in result.created])


def _create(console: Console) -> None:
    given = console.arguments
    known = {each.name for each in dataclasses.fields(Draft)}
    draft = Draft(**{key: value for key, value in vars(given).items() if key in known})
    form: Format = given.format or ("md" if given.kind == "agent" else "yaml")
    workspace = _workspace(console)
    result = create(workspace.configuration, workspace.resolver, given.kind, draft, form)
    console.answer(result, [f"created {result.path}"])


def _fork_create(console: Console) -> None:
    given = console.arguments
    workspace = _workspace(console)
    result = create_fork(
        workspace.configuration, workspace.resolver, given.type, given.source, given.name, _now()
    )
    console.answer(result, [f"created {result.path}"])


def _merge(console: Console) -> None:
    given, workspace = console.arguments, _workspace(console)
    forks, prefer = workspace.forks, None if given.side == "resolved" else given.side
    if given.dry_run:
        plan = plan_merge(forks, given.name, prefer)
    else:
        root = workspace.configuration.directories.project
        resolved = given.side == "resolved"
        plan = merge(forks, root, given.name, prefer, _now(), resolved=resolved)
    result = plan.shown(
        merged=plan.is_needed and not given.dry_run,
        warnings=workspace.configuration.noted(plan.warnings),
    )
    verb = "would merge" if given.dry_run else "merged"
    line = f"{verb} {plan.upstream.name} {result.to} into {result.path}"
    lines = [line, *(f"  {field}" for field in result.changes)]
    console.answer(result, lines if plan.is_needed else [f"{result.name} is up to date"])


def _registry_add(console: Console) -> None:
    given, workspace = console.arguments, _workspace(console)
    wanted = Registry(
        given.name or "", given.address, given.priority, given.type, token_env=given.token_env
    )
    with progress(lines=False) as told:
        told(0, None, f"reading {given.address}")
        result = add_registry(
            workspace.registries,
            workspace.configuration.directories,
            wanted,
            for_user=given.for_user,
            offline=given.offline,
        )
    console.answer(result, [*_found_lines(result), f"added {result.name} to {result.path}"])


def _found_lines(result: RegistryAddition) -> list[str]:
    if result.format is UNKNOWN:
        return []
    count = f"{result.plugins} plugin{'' if result.plugins == 1 else 's'}"
    left = "" if result.plugins == result.listed else f" of {result.listed} listed"
    at = "" if result.commit is UNKNOWN else f" at commit {result.commit[:12]}"
    return [f"found {FORMATS[result.format]} with {count}{left}{at}"]


def _registry_remove(console: Console) -> None:
    given = console.arguments
    result = remove_registry(_directories(console), given.name, for_user=given.for_user)
    console.answer(result, [f"removed {result.name} from {result.path}"])


def _install(console: Console) -> None:
    given, workspace = console.arguments, _workspace(console)
    place = workspace.plugins.place(
        given.scope or workspace.configuration.default_scope, given.program
    )
    installer = _installer(workspace)
    with progress(lines=False) as told:
        told(0, None, f"installing {given.plugin or 'what the lockfile says'}")
        if given.plugin:
            result = installer.install(given.plugin, place, force=given.force)
        else:
            result = installer.restore(place, force=given.force)
    lines = [f"installed {each.name} {each.version} ({each.scope})" for each in result.installed]
    if given.program == "claude" and result.installed:
        lines.append("Claude Code loads it in its next session, or after /reload-plugins")
    console.answer(result, lines or ["everything in the lockfile is installed"])


def _uninstall(console: Console) -> None:
    given, workspace = console.arguments, _workspace(console)
    place = None
    if given.scope or given.program != "fractary":
        scope = given.scope or workspace.configuration.default_scope
        place = workspace.plugins.place(scope, given.program)
    result = _installer(workspace).uninstall(given.plugin, place, force=given.force)
    console.answer(result, [f"removed {result.removed.name} ({result.removed.scope})"])


def _update(console: Console) -> None:
    given = console.arguments
    installer = _installer(_workspace(console))
    result = installer.update(given.plugin, breaking=given.major, dry_run=given.dry_run)
    verb = "would update" if given.dry_run else "updated"
    lines = [f"{verb} {each.name} {each.from_} → {each.to}" for each in result.updated]
    lines += [
        f"kept {each.name} at {each.from_}: {each.to} may break it (--major updates it anyway)"
        for each in result.skipped
    ]
    console.answer(result, lines or ["everything is up to date"])


def _lock(console: Console) -> int:
    given, workspace = console.arguments, _workspace(console)
    lockfile = Lockfile(workspace.configuration, workspace.resolver)
    if given.check:
        checked = lockfile.check()
        lines = [f"{each.type} {each.name}: {each.problem}" for each in checked.problems]
        console.answer(checked, lines or ["everything matches the lockfile"])
        return 0 if checked.valid else 1
    result = lockfile.write(_now(), force=given.force)
    line = f"locked {result.agents} agents and {result.tools} tools in {result.path}"
    console.answer(result, [line])
    return 0


def _login(console: Console) -> None:
    registry = console.arguments.registry
    token = _token(registry, from_pipe=console.arguments.token_stdin)
    workspace = _workspace(console)
    where = workspace.credentials.store(registry, token, _now())
    names = [each.name for each in workspace.configuration.registries]
    unused = f"No registry is called {registry}; the token is used once there is one"
    known = registry in (*names, "stockyard")
    warnings = workspace.configuration.noted([] if known else [unused])
    line = f"logged in to {registry}; the token is in the {where}"
    if where != "keyring":
        line = f"logged in to {registry}; the token is in {where}, readable by you alone"
    console.answer(Login(registry, where, warnings), [line])


def _token(registry: str, *, from_pipe: bool) -> Secret:
    """The token that a person types or pipes in. Raises `ForgeError` for an unusable one."""
    use_a_pipe = f"Use a pipe: fleet-agentpack forge login {registry} --token-stdin < FILE"
    if from_pipe:
        given = sys.stdin.read(LONGEST_TOKEN + 1)
    else:
        given = ask_secret(
            f"Token for {registry}: ", lambda reason: ForgeError.invalid(reason, use_a_pipe)
        )
    if len(given) > LONGEST_TOKEN:
        raise ForgeError.invalid(
            f"the token is longer than {LONGEST_TOKEN} characters; nothing was stored"
        )
    token = given.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ForgeError.invalid("the token is empty or not plain text; nothing was stored")
    return Secret(token)


def _logout(console: Console) -> None:
    registry = console.arguments.registry
    known = _workspace(console).credentials.forget(registry, _now())
    line = "logged out of" if known else "not logged in to"
    console.answer(Logout(registry, known), [f"{line} {registry}"])


def _directories(console: Console) -> Directories:
    return open_service(console.settings).directories


def _workspace(console: Console) -> Workspace:
    return open_service(console.settings).workspace(strict=True)


def _installer(workspace: Workspace) -> Installer:
    return Installer(workspace.configuration, workspace.plugins, workspace.registries)


def _now() -> datetime:
    return datetime.now(UTC)
