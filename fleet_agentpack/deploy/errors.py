"""DeployError: every failure of this domain, with its stable code, reason and next actions."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from fleet_agentpack.kit.actions import called
from fleet_agentpack.kit.approval import Refusal
from fleet_agentpack.kit.errors import AppError, Problem
from fleet_agentpack.kit.program import NAME
from fleet_agentpack.kit.results import jsonable

TARGET_CHOICES = ("all", "codex", "claude_code", "cursor", "vscode")

# The reason that a code stands for, where it is not the code itself: `E_BUSY` is `busy`.
_REASONS = {
    "E_LOCKFILE_INVALID": "lockfile_invalid_json",
    "E_TARGET_UNSUPPORTED": "target_not_compiled",
}

_CHECK_THEN_COMMAND = ("review_plan", "fix_config", "run_command_line")

# What to do next, by reason; anything else can only be tried again.
_NEXT_ACTIONS: dict[str, tuple[str, ...]] = {
    "adopt_confirm_required": ("retry_with_adopt",),
    "approval_closed": ("ask_user", "retry_command"),
    "approval_declined": ("ask_user",),
    "approval_plan_unstable": ("wait", "retry_command"),
    "approval_unanswered": ("ask_user", "retry_command"),
    "approval_unavailable": ("ask_user",),
    "busy": ("wait", "retry_command"),
    "config_invalid": ("fix_config", "retry_command"),
    "config_missing": ("import_config", "run_init", "retry_with_repo", "retry_command"),
    "config_unsupported_version": ("upgrade_agentpack", "fix_config_version", "retry_command"),
    "confirm_required": ("retry_with_yes",),
    "desired_state_conflict": ("resolve_desired_state_conflict", "retry_command"),
    "disk_full": ("free_disk_space", "retry_command"),
    "edited_by_hand": ("keep_edits", "review_diff", "retry_with_adopt"),
    "held_by_another_pack": ("resolve_desired_state_conflict", "uninstall_other_pack"),
    "git_not_found": ("install_git", "retry_command"),
    "git_ref_not_found": ("fix_config", "retry_command"),
    "invalid_arguments": ("fix_arguments", "retry_command"),
    "io_invalid_path": ("fix_path", "retry_command"),
    "io_path_too_long": ("shorten_path", "enable_long_paths", "retry_command"),
    "io_permission_denied": ("fix_permissions", "retry_command"),
    "journal_unreadable": ("move_journal_away", "retry_command"),
    "lockfile_invalid_json": ("regenerate_lockfile", "retry_command"),
    "lockfile_missing": ("run_lock", "run_update", "retry_command"),
    "lockfile_outdated": ("run_update", "retry_command"),
    "lockfile_unsupported_version": ("upgrade_agentpack", "regenerate_lockfile", "retry_command"),
    "most_files": _CHECK_THEN_COMMAND,
    "module_invalid": ("fix_module", "retry_command"),
    "module_not_fetched": ("run_update", "retry_command"),
    "module_source_unusable": ("fix_module", "retry_command"),
    "not_a_directory": ("move_file_away", "retry_command"),
    "not_a_file": ("move_directory_away", "retry_command"),
    "nothing_selected": _CHECK_THEN_COMMAND,
    "not_utf8": ("fix_config", "retry_command"),
    "overlay_patch_apply_failed": ("regenerate_patch", "switch_to_dir_overlay", "retry_command"),
    "ownership_unreadable": ("restore_record", "move_record_away", "retry_command"),
    "profile_not_found": ("retry_with_profile", "edit_manifest_profiles"),
    "recovery_pending": ("fix_cause", "retry_command"),
    "snapshot_incomplete": ("list_snapshots", "retry_with_snapshot"),
    "snapshot_is_rollback": ("list_snapshots", "retry_with_snapshot"),
    "snapshot_not_found": ("list_snapshots", "retry_with_snapshot"),
    "project_required": ("start_in_project", "name_project", "retry_command"),
    "store_content_mismatch": ("run_update", "retry_command"),
    "target_emptied": _CHECK_THEN_COMMAND,
    "target_filter_unsupported": ("inspect_help_json", "retry_with_supported_target"),
    "target_not_compiled": (
        "inspect_help_json",
        "edit_manifest_targets",
        "rebuild_with_target_feature",
        "retry_command",
    ),
    "undone_in_part": ("inspect_backups", "retry_command"),
}

_COMMAND_IDS = {"deploy_apply": "deploy --apply"}  # tools whose name is not their command

_IO_CODES = {
    errno.EACCES: "E_IO_PERMISSION_DENIED",
    errno.EPERM: "E_IO_PERMISSION_DENIED",
    errno.EROFS: "E_IO_PERMISSION_DENIED",
    errno.ENAMETOOLONG: "E_IO_PATH_TOO_LONG",
    errno.EINVAL: "E_IO_INVALID_PATH",
    errno.EILSEQ: "E_IO_INVALID_PATH",
    errno.ELOOP: "E_IO_INVALID_PATH",
}
_IO_REASONS = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.ENOTDIR: "not_a_directory",
    errno.EISDIR: "not_a_file",
}
_IO_HINTS = {
    "E_IO_PERMISSION_DENIED": "check who owns this path, and its permissions",
    "E_IO_PATH_TOO_LONG": "use shorter module ids, file names or directories",
    "E_IO_INVALID_PATH": "check this path for symbolic links and unusual characters",
}


_COMMAND = re.compile(rf"`{NAME} (?!--repo )")  # as messages name one, see `kit.program`


class DeployError(AppError):
    """An expected failure: a stable code, a sentence, and what to do next."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        next_actions: Sequence[str] = (),
        advice: Sequence[str] = (),
        **details: Any,
    ) -> None:
        hint = [str(details["hint"])] if "hint" in details else []
        super().__init__(message, actions=[*advice, *hint])
        reason = reason or _REASONS.get(code) or code.removeprefix("E_").lower()
        self.code = code
        self.message = message
        self.command_id = ""  # filled in by the command that failed
        self.details = {
            **details,
            "reason_code": reason,
            "next_actions": list(next_actions or _NEXT_ACTIONS.get(reason, ("retry_command",))),
        }

    def payload(self) -> dict[str, Any]:
        """The failure as an envelope."""
        # Every server knows this class, few ever need the results.
        from fleet_agentpack.deploy.results import Envelope, Failure

        failure = Failure(self.code, self.message, dict(sorted(self.details.items())))
        nothing: dict[str, object] = {}
        envelope = Envelope.of(self.command_id or "agentpack", nothing, errors=[failure])
        payload: dict[str, Any] = jsonable(envelope)
        return payload

    def during(self, command_id: str) -> Self:
        """This error as the failure of a command."""
        self.command_id = self.command_id or command_id
        return self

    def for_repo(self, repo: str | None) -> Self:
        """This error with its commands for a repo."""
        import shlex  # here, since every start of the server imports this module

        if repo is not None:
            command = f"`{NAME} --repo {shlex.quote(repo)} "

            def named(text: str) -> str:
                return _COMMAND.sub(lambda _: command, text)

            self.message = named(self.message)
            self.args = (self.message,)
            self.actions = tuple(
                replace(each, text=named(each.text), person=named(each.person))
                for each in self.actions
            )
            if "hint" in self.details:
                self.details["hint"] = named(self.details["hint"])
        return self

    @classmethod
    def invalid_arguments(cls, tool: str, problems: Sequence[Problem]) -> Self:
        """The error for a call whose arguments do not fit the tool's schema."""
        if any(problem.field == "target" for problem in problems):
            error = cls.target_filter(None)
        else:
            error = cls(
                "E_INVALID_ARGUMENTS",
                "; ".join(str(problem) for problem in problems) or "the arguments are not valid",
                problems=list(problems),
            )
        return error.during(_COMMAND_IDS.get(tool, tool))

    @classmethod
    def unexpected(cls, tool: str) -> Self:
        """The error for a bug in this package."""
        error = cls(
            "E_UNEXPECTED", f"{called(tool)} failed unexpectedly; see the server's log for details"
        )
        return error.during(_COMMAND_IDS.get(tool, tool))

    @classmethod
    def confirm_required(cls, tool: str) -> Self:
        """The refusal of a change that was not approved with `yes`."""
        command_id = _COMMAND_IDS.get(tool, tool)
        error = cls(
            "E_CONFIRM_REQUIRED",
            f"{command_id} changes files: approve it with `yes: true` (on the command line: --yes)",
            command=command_id,
        )
        return error.during(command_id)

    @classmethod
    def not_approved(cls, tool: str, refusal: Refusal) -> Self:
        """The refusal of a change that a person was to agree to and has not."""
        command_id = _COMMAND_IDS.get(tool, tool)
        error = cls(
            "E_CONFIRM_REQUIRED",
            f"{command_id}: {refusal.told}. Nothing was written.",
            reason=f"approval_{refusal.value}",
            command=command_id,
        )
        return error.during(command_id)

    @classmethod
    def target_filter(cls, target: str | None, allowed: Sequence[str] = TARGET_CHOICES) -> Self:
        """The refusal of a `target` argument that is not a target."""
        named = "this target" if target is None else f"target {target!r}"
        details: dict[str, Any] = {} if target is None else {"target": target}
        return cls(
            "E_TARGET_UNSUPPORTED",
            f"{named} is not supported; choose one of {', '.join(allowed)}",
            reason="target_filter_unsupported",
            allowed=list(allowed),
            **details,
        )

    @classmethod
    def because(cls, reason: str, message: str, **details: Any) -> Self:
        """A failure that has a reason but no code of its own."""
        return cls("E_UNEXPECTED", message, reason=reason, **details)

    @classmethod
    def config_invalid(cls, message: str, **details: Any) -> Self:
        """A manifest, module or overlay that breaks a rule."""
        return cls("E_CONFIG_INVALID", message, **details)

    @classmethod
    def io(cls, path: str | os.PathLike[str], error: OSError, doing: str = "use") -> Self:
        """A file that the operating system refused to let us use."""
        number = error.errno or 0
        code = _IO_CODES.get(number, "E_UNEXPECTED")
        hint = {"hint": _IO_HINTS[code]} if code in _IO_HINTS else {}
        return cls(
            code,
            f"cannot {doing} {path}: {error.strerror or type(error).__name__}",
            reason="" if hint else _IO_REASONS.get(number, "io_error"),
            io_kind=errno.errorcode.get(number, "unknown"),
            raw_os_error=number,
            **both_ways(path=path),
            **hint,
        )


@contextmanager
def io_errors(path: str | os.PathLike[str], doing: str) -> Iterator[None]:
    """The operating system's errors about a path as errors of ours."""
    try:
        yield
    except OSError as error:
        raise DeployError.io(path, error, doing) from error


@contextmanager
def naming(command_id: str) -> Iterator[None]:
    """Name the command in errors."""
    try:
        yield
    except DeployError as error:
        raise error.during(command_id) from error.__cause__


@contextmanager
def for_repo(repo: str | None) -> Iterator[None]:
    """The commands that errors name are for the repo that was asked for."""
    try:
        yield
    except DeployError as error:
        raise error.for_repo(repo) from error.__cause__


def both_ways(**paths: str | os.PathLike[str]) -> dict[str, str]:
    """Paths as details of an error: each as it is, and with forward slashes as `…_posix`."""
    texts = {name: os.fspath(path) for name, path in paths.items()}
    return texts | {f"{name}_posix": text.replace(os.sep, "/") for name, text in texts.items()}
