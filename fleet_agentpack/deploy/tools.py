"""The agentpack domain: plan, diff, status, doctor, deploy_apply and rollback as MCP tools."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from fastmcp.dependencies import Depends
from pydantic import Field

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.approval import Approval, CurrentApproval, Unanswered
from fleet_agentpack.wire.call import Call, CurrentCall, in_thread
from fleet_agentpack.wire.provider import DESTROYS, EXTRA, READS, WRITES, DomainTools
from fleet_agentpack.wire.resources import bounded_text

if TYPE_CHECKING:
    from fleet_agentpack.deploy import results
    from fleet_agentpack.deploy.importing.results import ImportData
    from fleet_agentpack.deploy.keeping.results import KeepData
    from fleet_agentpack.deploy.service import DeployService

Target = Literal["all", "codex", "claude_code", "cursor", "vscode"]
ImportTarget = Literal["codex", "claude_code", "cursor", "vscode", "agents", "gemini"]
Repo = Annotated[
    str | None,
    Field(description="Path to the agentpack config repo (default: $AGENTPACK_HOME/repo)."),
]
Machine = Annotated[
    str | None, Field(description="Machine id for machine overlays. Omit to auto-detect.")
]
Only = Annotated[list[Literal["missing", "modified", "extra"]] | None, Field()]
Adopt = Annotated[
    bool, Field(description="Allow overwriting existing unmanaged files (adopt updates).")
]
ForcedDryRun = Annotated[
    bool,
    Field(
        description="Force dry-run behavior (do not apply even if this tool is the apply variant)."
    ),
]
Yes = Annotated[
    Literal[True], Field(description="Required explicit approval for mutating operations.")
]
SnapshotId = Annotated[str, Field(description="Snapshot id to rollback to.")]


def open_service(settings: Settings) -> "DeployService":
    """The deploy service for the server's environment."""
    from fleet_agentpack.deploy import service
    from fleet_agentpack.deploy.unchanged import Unchanged

    return service.open_service(settings, Unchanged())


mcp = DomainTools(
    "agentpack",
    server_name="agentpack",
    instructions="agentpack: deploy instructions, skills, prompts and commands to Codex,"
    " Claude Code, Cursor and VS Code. [Call {plan, diff, deploy_apply}.] [{status} finds drift.]"
    " [{rollback} goes back.]",
    error=DeployError,
    open_service=open_service,
    kept_apart={
        "plan": Action("plan", text="Call {} again."),
        "diff": Action("diff", text="Call {} again."),
        "status": Action("status", text="Call {} again."),
        "deploy_apply": Action.instruction("agentpack://snapshots has every apply."),
    },
)


@mcp.tool(annotations=READS)
def plan(
    *,
    deploy: "DeployService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    repo: Repo = None,
    profile: str = "default",
    target: Target = "all",
    machine: Machine = None,
    dry_run: bool = False,
) -> "results.Envelope[results.PlanData]":
    """List the files that deploying the pack of agent instructions would create, update or delete.

    Call it first[, then {diff or deploy_apply}].
    """
    return deploy.plan(
        Request(repo, profile, target, machine, dry_run=dry_run, session=call.session)
    )


@mcp.tool(annotations=READS)
def diff(
    *,
    deploy: "DeployService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    repo: Repo = None,
    profile: str = "default",
    target: Target = "all",
    machine: Machine = None,
    dry_run: bool = False,
) -> "results.Envelope[results.PlanData]":
    """Show the changes of the plan as text, as a unified diff. [Then call {deploy_apply}.]"""
    return deploy.diff(
        Request(repo, profile, target, machine, dry_run=dry_run, session=call.session)
    )


@mcp.tool(annotations=READS)
def status(
    *,
    deploy: "DeployService" = Depends(mcp.service),
    repo: Repo = None,
    profile: str = "default",
    target: Target = "all",
    machine: Machine = None,
    only: Only = None,
    dry_run: bool = False,
) -> "results.Envelope[results.StatusData]":
    """Report drift: deployed files that are missing, modified or extra.

    Then follow next_actions.
    """
    return deploy.status(
        Request(repo, profile, target, machine, dry_run=dry_run, only=tuple(only or ()))
    )


@mcp.tool(annotations=READS)
def doctor(
    *, deploy: "DeployService" = Depends(mcp.service), repo: Repo = None, target: Target = "all"
) -> "results.Envelope[results.DoctorData]":
    """Check the pack's directories, permissions, git hygiene and overlays.

    [Call it when {plan, deploy_apply or rollback} fails, and do what it suggests.]
    """
    return deploy.doctor(Request(repo, target=target))


@mcp.tool(annotations=DESTROYS)
async def deploy_apply(
    *,
    deploy: "DeployService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    approval: Approval = CurrentApproval(),
    repo: Repo = None,
    profile: str = "default",
    target: Target = "all",
    machine: Machine = None,
    adopt: Adopt = False,
    dry_run: ForcedDryRun = False,
    yes: Yes,  # noqa: ARG001 - the middleware has looked at it
) -> "results.Envelope[results.PlanData] | Unanswered":
    """Write the files of the plan for Codex, Claude Code, Cursor and VS Code, all or nothing.

    [Call {plan} first[; {rollback} to its undo_snapshot_id undoes it].]
    """
    asked = Request(repo, profile, target, machine, dry_run=dry_run, adopt=adopt)
    request = replace(asked, session=call.session)
    apply = in_thread(lambda approved: deploy.deploy_approved(request, call.report, approved))
    if dry_run:
        return await apply(None)
    return await approval.carry_out(in_thread(lambda: deploy.question(request)), apply)


@mcp.tool(annotations=DESTROYS)
async def rollback(
    *,
    deploy: "DeployService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    approval: Approval = CurrentApproval(),
    repo: Repo = None,  # noqa: ARG001 - the contract has it; snapshots are in the home
    to: SnapshotId,
    yes: Yes,  # noqa: ARG001 - the middleware has looked at it
) -> "results.Envelope[results.RollbackData] | Unanswered":
    """Go back to the state after a snapshot, or with an undo_snapshot_id to before an apply.

    The ids are in agentpack://snapshots[ and in the answers of {deploy_apply}].
    """
    return await approval.carry_out(
        in_thread(lambda: deploy.back.question(to)),
        in_thread(lambda approved: deploy.rollback(to, call.report, approved)),
    )


@mcp.tool(annotations=WRITES, tags={EXTRA})
def import_config(
    *,
    deploy: "DeployService" = Depends(mcp.service),
    repo: Repo = None,
    targets: list[ImportTarget] | None = None,
    scope: Literal["user", "project", "all"] = "all",
    dry_run: bool = False,
    yes: bool = False,
) -> "results.Envelope[ImportData]":
    """Bring instructions, skills, prompts and commands that the tools already have into the pack.

    Call it with dry_run first[; after it {plan} is empty].
    """
    from fleet_agentpack.deploy.importing.importer import ImportRequest

    if not (dry_run or yes):
        raise DeployError.confirm_required("import_config")
    return deploy.importer.run(ImportRequest(repo, tuple(targets or ()), scope, dry_run))


@mcp.tool(annotations=WRITES, tags={EXTRA})
def keep_edits(
    *,
    deploy: "DeployService" = Depends(mcp.service),
    repo: Repo = None,
    paths: list[str] | None = None,
    to: Literal["module", "overlay", "machine", "project"] | None = None,
    dry_run: bool = False,
    yes: bool = False,
) -> "results.Envelope[KeepData]":
    """Take hand edits of deployed files back into the pack, all of them or the paths given.

    [Call it when {status} names edited files.]
    """
    from fleet_agentpack.deploy.keeping.keeper import KeepRequest

    if not (dry_run or yes):
        raise DeployError.confirm_required("keep_edits")
    return deploy.keeper.run(KeepRequest(Request(repo), tuple(paths or ()), to, dry_run))


@mcp.tool(name="snapshots", annotations=READS, tags={EXTRA})
def list_snapshots(
    *,
    deploy: "DeployService" = Depends(mcp.service),
    repo: Repo = None,  # noqa: ARG001 - as for rollback: snapshots are in the home
    limit: Annotated[int, Field(ge=1, le=1000)] = 20,
) -> "results.Envelope[results.SnapshotsData]":
    """List the snapshots, newest first: when, what kind, how large, and what undoes each.

    [Pass an id or an undo_snapshot_id to {rollback}.]
    """
    return deploy.snapshots(limit)


@mcp.collection("agentpack://snapshots")
def snapshots(deploy: "DeployService", _session: str | None) -> object:
    """The snapshots[ that {rollback} can return to], newest first."""
    return deploy.snapshots()


@mcp.resource("agentpack://snapshots/{id}", mime_type="application/json")
def snapshot(id: str, deploy: "DeployService" = Depends(mcp.service)) -> str:
    """One snapshot: its files and changes."""
    try:
        answer: object = deploy.snapshot(id)
    except DeployError as error:
        answer = error.payload()
    return bounded_text(answer, mcp.place_of("snapshot"))


@mcp.completes("agentpack://snapshots/{id}", "id")
def snapshot_ids(deploy: "DeployService", _given: Mapping[str, str]) -> list[str]:
    """The snapshots' ids, newest first."""
    return [row.id for row in deploy.snapshots().data.snapshots]
