"""Executes a command through the original's own command line, when so configured."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from fleet_agentpack.climpt import option_rules
from fleet_agentpack.climpt.errors import RenderError
from fleet_agentpack.climpt.project_files import NAME, NAME_HINT, ProjectFiles
from fleet_agentpack.climpt.prompt_request import PromptRequest
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


class DenoCli:
    """Runs Deno with the published package in the project's folder."""

    def __init__(
        self, files: ProjectFiles, environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._files = files
        self._environ = environ
        self._timeout_s = timeout_s

    async def __call__(self, request: PromptRequest) -> str:
        """What the command line printed. Raises `ClimptError`."""
        try:
            return await self._run(request)
        except RenderError as error:
            raise error.of(request.command) from error

    async def _run(self, request: PromptRequest) -> str:
        option_rules.check(request.options)
        argv = [self._program(), *arguments(request)]
        stdin = (request.options.stdin or "").encode("utf-8", "replace")
        try:
            done = await process.run_async(
                argv,
                cwd=self._files.roots()[0],
                env=self._environment(with_stdin=bool(stdin)),
                stdin=stdin,
                timeout_s=self._timeout_s,
            )
        except process.ProcessTimeoutError as error:
            raise RenderError(
                f"{PROGRAM} did not end within {self._timeout_s:g} s and was stopped"
            ) from error
        except (OSError, ValueError) as error:
            raise RenderError(f"{PROGRAM} could not be started") from error
        # A refused command is an empty success there.
        if done.status != 0 or not done.text.strip():
            silent = f"Command failed with exit code {done.status} and printed nothing"
            raise RenderError(done.complaint or silent)
        return done.text

    def _program(self) -> str:
        found = shutil.which(PROGRAM, path=self._environ.get("PATH"))
        if not found:
            raise RenderError(
                f"{PROGRAM} is not installed",
                'install Deno, or set [climpt] execute = "render" in the configuration file',
            )
        return found

    def _environment(self, *, with_stdin: bool) -> dict[str, str]:
        kept = {
            name: value
            for name, value in self._environ.items()
            if name.upper() in _KEPT or name.upper().startswith(_KEPT_PREFIXES)
        }
        return kept if with_stdin else {**kept, "BREAKDOWN_SKIP_STDIN": "true"}


def arguments(request: PromptRequest) -> list[str]:
    """What follows the program's name. Raises `RenderError` for names that look like options."""
    for name in (request.profile, request.c2, request.c3):
        if not NAME.fullmatch(name):
            raise RenderError(f"Invalid command name: {name!r}", NAME_HINT)
    names = [f"--config={request.profile}", request.c2, request.c3]
    return [*_RUN, "--no-config", PACKAGE, *names, *request.options.arguments()]
