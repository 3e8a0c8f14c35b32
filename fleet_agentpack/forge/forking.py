"""Makes forks, and brings upstream's changes into them; nothing in dispute is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from fleet_agentpack.forge.configuration import Configuration
from fleet_agentpack.forge.definition import BODY_FIELD, Definition, ForkRecord, dotted, parse_text
from fleet_agentpack.forge.errors import ForgeError, Loaded, Warnings, run
from fleet_agentpack.forge.forks import DefinitionFiles, Fork, ForkBases, Forks, KeptFork, files_of
from fleet_agentpack.forge.names import KINDS, Kind, Reference, parse_reference, writing_below
from fleet_agentpack.forge.resolver import Resolver
from fleet_agentpack.forge.results import timestamp
from fleet_agentpack.forge.setup import Created, check_new_name, definition_text, refuse_taken
from fleet_agentpack.forge.three_way import (
    MISSING,
    Conflict,
    MergeConflict,
    Merged,
    Side,
    Sides,
    cut,
    merge_definition,
    merge_lines,
    renamed,
    with_line_ends,
)
from fleet_agentpack.forge.trees import FileContent, write_files
from fleet_agentpack.kit.mappings import UnparsableError
from fleet_agentpack.kit.results import UNKNOWN, Maybe, jsonable
from fleet_agentpack.kit.semver import is_newer
from fleet_agentpack.kit.swap import New


@dataclass(frozen=True)
class Merge:
    """What merging upstream into a fork changes; `merged` is whether it was written."""

    name: str
    type: Kind
    path: str
    from_: str
    to: str
    changes: tuple[str, ...]
    conflicts: tuple[MergeConflict, ...]
    merged: Maybe[bool] = UNKNOWN
    warnings: Warnings = UNKNOWN


STATE = ".state"  # beside the copies: what they were made from
MARKERS = (b"<<<<<<< ", b"=======\n", b">>>>>>> ")


@dataclass(frozen=True)
class MergePlan:
    """What a merge would change, and what both sides changed."""

    fork: Fork
    upstream: Definition
    base: DefinitionFiles  # what the fork is based on after the merge
    files: Mapping[str, FileContent | None] = field(default_factory=dict)  # None: removed
    changes: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    disputed: frozenset[str] = frozenset()  # the files with conflicts
    base_is_known: bool = True  # whether what was forked can still be read
    warnings: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether upstream has anything that the fork was not merged with yet."""
        return bool(self.changes or self.conflicts) or is_newer(
            self.upstream.version, self.fork.upstream.version
        )

    def shown(self, *, merged: Maybe[bool] = UNKNOWN, warnings: Warnings = UNKNOWN) -> Merge:
        """The plan for a reader."""
        return Merge(
            name=self.fork.name,
            type=self.fork.kind,
            path=self.fork.shown,
            from_=self.fork.upstream.version,
            to=self.upstream.version,
            changes=self.changes,
            conflicts=tuple(conflict.shown() for conflict in self.conflicts),
            merged=merged,
            warnings=warnings,
        )


def plan_merge(forks: Forks, name: str, prefer: Side | None = None) -> MergePlan:
    """What upstream changed since the fork was made. Raises `ForgeError`."""
    found = forks.find(name)
    fork = found.value
    upstream = forks.upstream_of(fork)
    theirs = files_of(upstream.value)
    ours = files_of(forks.definition_of(fork))
    base = _base_of(fork, forks)
    theirs = _in_layout_of(ours, theirs, upstream.value)
    before = base.value and _in_layout_of(ours, base.value, upstream.value)
    labels = Sides(fork.name, f"{fork.upstream.name} {upstream.value.version}", prefer)
    merged = _merged(before, ours, theirs, fork, labels)
    return MergePlan(
        fork=fork,
        upstream=upstream.value,
        base=theirs,
        files={name: content for name, (content, _) in merged.items()},
        changes=tuple(change for _, each in merged.values() for change in each.changes),
        conflicts=tuple(conflict for _, each in merged.values() for conflict in each.conflicts),
        disputed=frozenset(name for name, (_, each) in merged.items() if each.conflicts),
        base_is_known=base.value is not None,
        warnings=(*found.warnings, *upstream.warnings, *base.warnings),
    )


_Step = tuple[FileContent | None, Merged]  # a file after a merge, and how it came about


def _merged(
    base: DefinitionFiles | None,
    ours: DefinitionFiles,
    theirs: DefinitionFiles,
    fork: Fork,
    sides: Sides,
) -> dict[str, _Step]:
    """Every file that changes or is in dispute: the definition first, then those beside it."""
    before = base.text if base else None
    whole = merge_definition(
        before, ours.text, theirs.text, ours.suffix, BODY_FIELD[fork.kind], sides
    )
    own = ours.files[ours.main]
    content = FileContent(whole.text.encode(), own.executable)
    results: dict[str, _Step] = {ours.main: (content, whole)}
    known = base.others if base else {}
    for name in sorted({*known, *ours.others, *theirs.others}):
        step = _merged_file(
            name, known.get(name), ours.files.get(name), theirs.files.get(name), sides
        )
        if step[1].changes or step[1].conflicts:
            results[name] = step
    return results


def _merged_file(
    name: str,
    base: FileContent | None,
    ours: FileContent | None,
    theirs: FileContent | None,
    sides: Sides,
) -> _Step:
    if ours == theirs or theirs == base:
        return ours, Merged("")
    if ours == base:
        return theirs, Merged("", (name,))
    texts = [_as_text(each) for each in (base, ours, theirs)]
    before, local, upstream = texts
    if local is not None and upstream is not None:
        merged = merge_lines(before, local, upstream, name, sides)
        executable = bool(ours and ours.executable)
        return FileContent(merged.text.encode(), executable), merged
    shown = [
        MISSING if each is None else text
        for each, text in zip((base, ours, theirs), texts, strict=True)
    ]
    conflict = Conflict((name,), *shown)
    kept = theirs if sides.prefer == "theirs" else ours
    return kept, Merged("", (name,) if sides.prefer == "theirs" else (), (conflict,))


def _as_text(content: FileContent | None) -> str | None:
    if content is None or b"\0" in content.data:
        return None
    try:
        return content.data.decode()
    except UnicodeDecodeError:
        return None


def _in_layout_of(
    ours: DefinitionFiles, other: DefinitionFiles, upstream: Definition
) -> DefinitionFiles:
    """Upstream's files as the fork would have them: the same main file, in the same form."""
    if other.suffix == ours.suffix:
        return other
    fields = parse_text(other.text, other.suffix, upstream.kind)
    text = definition_text(fields, upstream.kind, "md" if ours.suffix == ".md" else "yaml")
    return DefinitionFiles(ours.main, {**other.others, ours.main: FileContent(text.encode())})


def _base_of(fork: Fork, forks: Forks) -> Loaded[DefinitionFiles | None]:
    """What was forked: as it was kept, else that version of upstream, None if neither is there."""
    kept = forks.bases.find(fork.kind, fork.name)
    if kept and kept.record.version == fork.upstream.version and (base := forks.bases.base(kept)):
        return Loaded(base)
    if not fork.upstream.version:
        return Loaded(None)
    try:
        found = forks.upstream_of(fork, fork.upstream.version)
    except ForgeError as error:
        if error.code not in ("AGENT_NOT_FOUND", "TOOL_NOT_FOUND"):
            raise
        return Loaded(None)
    return Loaded(files_of(found.value), found.warnings)


def merge(
    forks: Forks,
    root: Path,
    name: str,
    prefer: Side | None,
    now: datetime,
    *,
    resolved: bool = False,
) -> MergePlan:
    """Merge upstream into a fork below a `.fractary` directory. Raises `ForgeError`.

    With `resolved` the copies that an earlier merge left are taken, once nothing is marked in them.
    """
    # Planned under the lock, so that nothing changes the fork between reading and writing.
    with writing_below(root):
        forks.bases.swap.recover()
        plan = plan_merge(forks, name, prefer)
        if resolved:
            plan = _with_copies(plan, forks.bases)
        elif plan.conflicts and prefer is None:
            raise _in_dispute(plan, forks)
        if plan.is_needed:
            _write(plan, forks.bases, now)
    return plan


def _write(plan: MergePlan, bases: ForkBases, now: datetime) -> None:
    fork, folder = plan.fork, plan.fork.path.parent
    moment = timestamp(now)
    record = replace(fork.upstream, version=plan.upstream.version, merged_at=moment)
    files = dict(plan.files)
    main = files[fork.path.name]
    text = _recorded(main.data.decode() if main else "", fork, record)
    files[fork.path.name] = FileContent(text.encode())
    kept = bases.find(fork.kind, fork.name)
    details = kept.details if kept else {}
    new = KeptFork(fork.kind, fork.name, fork.path, record, plan.base.main, details)
    writes: dict[Path, New] = {
        folder / name: each.data if each else None for name, each in files.items()
    }
    if bases.conflicts(fork.kind, fork.name).is_dir():
        writes[bases.conflicts(fork.kind, fork.name)] = None
    bases.swap.replace({**writes, **bases.changes(new, plan.base)})
    for name, each in files.items():
        if each and each.executable:
            (folder / name).chmod((folder / name).stat().st_mode | 0o111)


def _recorded(text: str, fork: Fork, record: ForkRecord) -> str:
    """The fork's text with its record as it reads after a merge. Raises `ForgeError`."""
    if not fork.in_file:
        return _checked(text, fork)
    parts = cut(text, fork.path.suffix)
    if parts is None:
        raise _not_editable(fork)
    known = parts.values.get("fork_of")
    origin = (
        dict(known)
        if isinstance(known, dict)
        else {"forked_at": record.created_at or record.merged_at}
    )
    origin = {
        "name": record.name,
        **origin,
        "version": record.version,
        "merged_at": record.merged_at,
    }
    return _checked(with_line_ends(str(parts.with_value("fork_of", origin)), text), fork)


def _checked(text: str, fork: Fork) -> str:
    try:
        parse_text(text, fork.path.suffix, fork.kind)
    except UnparsableError as error:
        raise _not_editable(fork) from error
    return text


def _not_editable(fork: Fork) -> ForgeError:
    return ForgeError.conflict(
        f"{fork.path.name} cannot be edited without changing other values; nothing was written",
        "Make the change by hand",
        path=fork.shown,
    )


def _in_dispute(plan: MergePlan, forks: Forks) -> ForgeError:
    """Write copies with markers, and say where they are; the fork itself stays as it is."""
    fork = plan.fork
    fields = ", ".join(dotted(conflict.path) for conflict in plan.conflicts)
    what = f"Both {fork.name} and its upstream changed {fields}"
    if not plan.base_is_known:
        source = f"{fork.upstream.name} {fork.upstream.version}".rstrip()
        what = f"{source} is no longer available, so every difference needs a decision: {fields}"
    folder = forks.bases.conflicts(fork.kind, fork.name)
    copies = {
        name: each
        for name, each in plan.files.items()
        if each is not None and name in plan.disputed
    }
    state = FileContent(_state_of(plan).encode())
    forks.bases.swap.replace({folder: partial(write_files, {**copies, STATE: state})})
    places = sorted(forks.shown(folder / name) for name in copies)
    return ForgeError.conflict(
        f"{what}; {fork.shown} is as it was, and both sides are marked in {', '.join(places)}",
        run("Settle them in the copy, then: {}", "merge", fork.name, "--resolved"),
        run("Or take upstream's: {}", "merge", fork.name, "--theirs"),
        run("Or keep the fork's: {}", "merge", fork.name, "--ours"),
        **jsonable(plan.shown()),
        copies=places,
    )


def _state_of(plan: MergePlan) -> str:
    """What tells whether either side has changed since copies were made."""
    digest = hashlib.sha256()
    for name, each in sorted(plan.files.items()):
        digest.update(name.encode() + b"\0" + (each.data if each else b""))
    return f"{plan.upstream.version} {digest.hexdigest()}\n"


def _with_copies(plan: MergePlan, bases: ForkBases) -> MergePlan:
    """The plan with what a person made of the copies. Raises `ForgeError`."""
    fork, folder = plan.fork, bases.conflicts(plan.fork.kind, plan.fork.name)
    again = run("Start again: {}", "merge", fork.name)
    try:
        state = (folder / STATE).read_text()
        copies = {name: (folder / name).read_bytes() for name in plan.disputed}
    except OSError as error:
        raise ForgeError.conflict(f"{fork.name} has no merge to finish", again) from error
    if state != _state_of(plan):
        raise ForgeError.conflict(
            f"{fork.name} or its upstream has changed since the copies were made", again
        )
    left = [name for name, data in copies.items() if any(marker in data for marker in MARKERS[::2])]
    if left:
        raise ForgeError.conflict(
            f"{', '.join(left)} still has markers; nothing was written",
            "Keep one side of each, and remove the lines with <<<<<<<, ======= and >>>>>>>",
        )
    files = {
        name: FileContent(copies[name], bool(each and each.executable)) if name in copies else each
        for name, each in plan.files.items()
    }
    changes = tuple(dict.fromkeys([*plan.changes, *(dotted(each.path) for each in plan.conflicts)]))
    return replace(plan, files=files, changes=changes, conflicts=())


# Where a program finds its own definitions in a project, by their format.
PLACES = {
    "claude-agent": ".claude/agents",
    "claude-command": ".claude/commands",
    "agent-skill": ".claude/skills",
    "codex-agent": ".codex/agents",
    "copilot-agent": ".github/agents",
}


def create_fork(
    configuration: Configuration,
    resolver: Resolver,
    kind: Kind | None,
    source: str,
    name: str,
    now: datetime,
) -> Created:
    """Copy a definition under a new name, with all of its directory. Raises `ForgeError`."""
    found = _source(resolver, kind, parse_reference(source))
    upstream, directories = found.value, configuration.directories
    check_new_name(upstream.kind, name)
    original = files_of(upstream)
    record = ForkRecord(upstream.identity.qualified, upstream.version, timestamp(now))
    path = _place(configuration, upstream, original, name)
    fork = _copied(upstream, original, path.name, record, name, resolver)
    bases = ForkBases(directories.project)
    kept = KeptFork(upstream.kind, name, path, record, original.main, _details(upstream))
    with writing_below(directories.project):
        whole = upstream.identity.directory is not None or upstream.format == "fractary"
        folder = path.parent if whole else path
        refuse_taken(directories, resolver.find_local(upstream.kind, name), path, folder)
        swap = bases.swap
        swap.recover()
        new: New = partial(write_files, fork.files) if whole else fork.files[fork.main].data
        swap.replace({folder: new, **bases.changes(kept, original)})
    return Created(directories.shown(path), configuration.noted(found.warnings))


def _source(resolver: Resolver, kind: Kind | None, reference: Reference) -> Loaded[Definition]:
    """The definition to fork, an agent before a tool. Raises `ForgeError`."""
    kinds: tuple[Kind, ...] = (kind,) if kind else KINDS
    for each in kinds:
        found = resolver.find(each, reference)
        if found.definition:
            return Loaded(found.definition, found.warnings)
    named = Reference(reference.name)
    there = [each for each in kinds if resolver.nearest_file(each, named)]
    return resolver.resolve((*there, *kinds)[0], reference)  # says why it is not found


def _place(
    configuration: Configuration, upstream: Definition, original: DefinitionFiles, name: str
) -> Path:
    """The file of the fork, where the program that reads its format looks for it."""
    kind, main = upstream.kind, original.main
    top = PLACES.get(upstream.format)
    if top is None:
        return configuration.local_root(kind) / name / f"{kind}{original.suffix}"
    if upstream.file and ".agents" in upstream.file.parts:
        top = top.replace(".claude", ".agents")
    root = configuration.directories.project.parent / top
    if upstream.identity.directory is not None:
        return root / name / main
    _, dot, endings = main.partition(".")
    return root / f"{name}{dot}{endings}"


def _copied(
    upstream: Definition,
    original: DefinitionFiles,
    main: str,
    record: ForkRecord,
    name: str,
    resolver: Resolver,
) -> DefinitionFiles:
    """The files of the fork; only its name and, in Fractary's format, the record are new."""
    text = renamed(original.text, original.suffix, name)
    parts = cut(text, original.suffix) if upstream.format == "fractary" else None
    if parts is not None:
        if base := _own_base(upstream, resolver):
            parts = parts.with_value("extends", base)
        origin = {"name": record.name, "version": record.version, "forked_at": record.created_at}
        parts = parts.without("fork").with_value("fork_of", origin)
        text = with_line_ends(str(parts), text)
    content = replace(original.files[original.main], data=text.encode())
    return DefinitionFiles(main, {**original.others, main: FileContent(content.data)})


def _own_base(upstream: Definition, resolver: Resolver) -> str | None:
    """What a fork has to extend where upstream means a base of its own plugin by a bare name."""
    text = upstream.data.get("extends")
    if not isinstance(text, str) or upstream.owner is None:
        return None
    reference = parse_reference(text)
    base = resolver.find(upstream.kind, reference, upstream).definition
    if base is None or base.owner != upstream.owner:
        return None
    return str(Reference(base.identity.qualified, reference.wanted))


def _details(upstream: Definition) -> dict[str, str]:
    owner = {"owner": upstream.owner} if upstream.owner else {}
    return {**owner, "source": upstream.source, "path": upstream.path, "format": upstream.format}
