"""Executes a command through the original's own command line, when so configured."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from fleet_agentpack.climpt import option_rules
from fleet_agentpack.climpt.errors import RenderError
from fleet_agentpack.climpt.options import PromptRequest
from fleet_agentpack.climpt.project_files import ProjectFiles
from fleet_agentpack.climpt.render import Rendered
from fleet_agentpack.kit import process

PROGRAM = "deno"
PACKAGE = "jsr:@aidevtool/climpt"
_RUN = ("run", "--allow-read", "--allow-write", "--allow-env", "--allow-run", "--allow-net")
# The first run downloads the package.
TIMEOUT_S = 120.0
# The program may use the network, so it sees no token; LOG_LEVEL would mix its log into the prompt.
_KEPT = {
    *("PATH", "HOME", "USER", "LANG", "TMPDIR", "SYSTEMROOT", "USERPROFILE", "APPDATA"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "LOCALAPPDATA", "TEMP"),
}
_KEPT_PREFIXES = ("DENO_", "XDG_", "LC_")


async def run_deno(
    files: ProjectFiles,
    environ: Mapping[str, str],
    request: PromptRequest,
    timeout_s: float = TIMEOUT_S,
) -> Rendered:
    """What the published package printed, run in the project's folder. Raises `RenderError`."""
    option_rules.check(request.options)
    program = shutil.which(PROGRAM, path=environ.get("PATH"))
    if not program:
        raise RenderError(
            f"{PROGRAM} is not installed",
            'install Deno, or set [climpt] execute = "render" in the configuration file',
        )
    stdin = (request.options.stdin or "").encode("utf-8", "replace")
    try:
        done = await process.run_async(
            [program, *_arguments(request)],
            cwd=files.roots()[0],
            env=_passed_on(environ) | ({} if stdin else {"BREAKDOWN_SKIP_STDIN": "true"}),
            stdin=stdin,
            timeout_s=timeout_s,
        )
    except process.ProcessTimeoutError as error:
        told = f"{PROGRAM} did not finish within {timeout_s:g} s and was stopped"
        raise RenderError(told) from error
    except (OSError, ValueError) as error:
        raise RenderError(f"{PROGRAM} could not be started") from error
    # A refused command is an empty success there.
    if done.status != 0 or not done.text.strip():
        silent = f"Command failed with exit code {done.status} and printed nothing"
        raise RenderError(done.complaint or silent)
    return Rendered(done.text)


def _passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name.upper() in _KEPT or name.upper().startswith(_KEPT_PREFIXES)
    }


def _arguments(request: PromptRequest) -> list[str]:
    """What follows the program's name; names that look like options are refused."""
    option_rules.check_names(request.profile, request.c2, request.c3)
    names = [f"--config={request.profile}", request.c2, request.c3]
    return [*_RUN, "--no-config", PACKAGE, *names, *request.options.arguments()]
