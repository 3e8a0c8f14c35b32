"""Brings Coder up with PostgreSQL, a plain member called `fleet`, templates, and agents.

Everything listens on 127.0.0.1, lives in one temporary directory, and ends with `down`.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.fleet.lab.processes import end, free_port
from tests.fleet.lab.supervisor import Started, Supervisor
from tests.fleet.lab.templates import CATALOGUE, archive

PASSWORD = "SomeSecurePassword!"
SERVER_FLAGS = (
    "--provisioner-types=echo",
    "--provisioner-daemons=3",
    "--telemetry=false",
    "--update-check=false",
    "--derp-server-stun-addresses=disable",
    "--oauth2-github-default-provider-enable=false",
    "--external-auth-github-default-provider-enable=false",
)


class Missing(RuntimeError):
    """A program that the lab needs is not here."""


def find_programs(environ: Mapping[str, str]) -> dict[str, str]:
    """Where coder, agentapi and PostgreSQL's programs are. Raises `Missing` with the reason."""
    found = {}
    for name in ("coder", "agentapi"):
        variable = f"{name.upper()}_BIN"
        path = environ.get(variable) or shutil.which(name)
        if not path or not os.access(path, os.X_OK):
            raise Missing(f"needs {name}: put it on the PATH or name it in {variable}")
        found[name] = path
    folders = [*sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True), None]
    for name in ("initdb", "postgres", "psql", "pg_isready", "createdb"):
        path = next((p for folder in folders if (p := shutil.which(name, path=folder))), None)
        if not path:
            raise Missing(f"needs PostgreSQL ({name}); Debian has it as `postgresql`")
        found[name] = path
    return found


class Lab:
    """One running Coder."""

    def __init__(self, programs: Mapping[str, str], *, rate_limits: bool = False) -> None:
        self.programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="fleet-lab-"))
        self.folder.chmod(0o755)  # PostgreSQL may have to run as another user
        self.workspaces = self.folder / "workspaces"
        self.workspaces.mkdir()
        self.url = f"http://127.0.0.1:{free_port()}"
        self.database_port, self.agentapi_port = free_port(), free_port()
        self.token = self.owner_token = ""
        self._rate_limits = rate_limits
        self._children: list[subprocess.Popen[bytes]] = []
        self._supervisor: Supervisor | None = None

    def up(self) -> None:
        """Start everything; takes about ten seconds."""
        try:
            self._start_database()
            self._start_coder()
            self._bootstrap()
            self._supervisor = Supervisor(self)
            self._supervisor.start()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Stop everything and remove its files."""
        if self._supervisor:
            self._supervisor.stop()
        for child in reversed(self._children):
            end(child)
        shutil.rmtree(self.folder, ignore_errors=True)

    def started(self, name: str) -> Started:
        """What runs for a workspace."""
        if self._supervisor is None:
            raise RuntimeError("the lab is not up")
        return self._supervisor.find(name)

    def spawn(
        self, command: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path
    ) -> subprocess.Popen[bytes]:
        """A child with its output in a file, in a group of its own."""
        with log.open("ab") as out:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )

    def query(self, sql: str) -> list[list[str]]:
        """Rows of Coder's database."""
        place = ["-h", "127.0.0.1", "-p", str(self.database_port), "-U", "coder", "-d", "coder"]
        command = [self.programs["psql"], *place, "-AtF", "\t", "-c", sql]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def request(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """A request to Coder that has to succeed."""
        headers = {"Coder-Session-Token": token} if token else {}
        if isinstance(body, bytes):
            content = {"content": body}
            headers["Content-Type"] = "application/x-tar"
        else:
            content = {"json": body}
        answer = httpx.request(method, self.url + path, headers=headers, timeout=30, **content)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def _start_database(self) -> None:
        data = self.folder / "database"
        data.mkdir()
        as_user: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(data, "postgres")
            as_user = ["runuser", "-u", "postgres", "--"]
        make = ["-D", str(data), "-U", "coder", "--auth=trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(
            [*as_user, self.programs["initdb"], *make],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )
        options = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        flags = [part for option in options for part in ("-c", option)]
        command = [self.programs["postgres"], "-D", str(data), "-p", str(self.database_port)]
        log = self.folder / "database.log"
        self._children.append(self.spawn([*as_user, *command, *flags], log, os.environ, Path("/")))
        place = ["-h", "127.0.0.1", "-p", str(self.database_port)]
        until("PostgreSQL", lambda: _succeeds([self.programs["pg_isready"], "-q", *place]))
        subprocess.run(
            [self.programs["createdb"], *place, "-U", "coder", "coder"], check=True, cwd="/"
        )

    def _start_coder(self) -> None:
        database = f"postgres://coder@127.0.0.1:{self.database_port}/coder?sslmode=disable"
        places = {
            "--global-config": self.folder / "coder-config",
            "--cache-dir": self.folder / "coder-cache",
            "--http-address": self.url.removeprefix("http://"),
            "--access-url": self.url,
        }
        flags = [str(part) for pair in places.items() for part in pair]
        if not self._rate_limits:
            flags.append("--dangerous-disable-rate-limits")
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "CODER_PG_CONNECTION_URL": database,
        }
        command = [self.programs["coder"], "server", *flags, *SERVER_FLAGS]
        log = self.folder / "coder.log"
        self._children.append(self.spawn(command, log, env, self.folder))
        until("Coder", lambda: httpx.get(f"{self.url}/healthz", timeout=2).text == "OK", 120)

    def _bootstrap(self) -> None:
        """The first user, a plain member with a token, and the templates."""
        admin = {"email": "admin@example.test", "username": "admin", "password": PASSWORD}
        self.request("POST", "/api/v2/users/first", {**admin, "name": "Admin", "trial": False})
        self.owner_token = self._login(admin["email"])
        organization = self.request("GET", "/api/v2/organizations/default", token=self.owner_token)[
            "id"
        ]
        member = {
            "email": "fleet@example.test",
            "username": "fleet",
            "name": "Fleet",
            "password": PASSWORD,
            "login_type": "password",
            "organization_ids": [organization],
            "user_status": "active",
        }
        self.request("POST", "/api/v2/users", member, self.owner_token)
        session = self._login("fleet@example.test")
        lifetime_ns = 24 * 3600 * 10**9
        self.token = self.request(
            "POST",
            "/api/v2/users/me/keys/tokens",
            {"token_name": "fleet", "lifetime": lifetime_ns},
            session,
        )["key"]
        for template in CATALOGUE:
            self._add_template(template)

    def _login(self, email: str) -> str:
        body = {"email": email, "password": PASSWORD}
        return str(self.request("POST", "/api/v2/users/login", body)["session_token"])

    def _add_template(self, template: Any) -> None:
        owner, base = self.owner_token, "/api/v2/organizations/default"
        tar = archive(template, self.workspaces, self.agentapi_port)
        file_id = self.request("POST", "/api/v2/files", tar, owner)["hash"]
        version = {
            "storage_method": "file",
            "file_id": file_id,
            "provisioner": "echo",
            "tags": {},
            "name": "v1",
        }
        version_id = self.request("POST", f"{base}/templateversions", version, owner)["id"]

        def imported() -> bool:
            found = self.request("GET", f"/api/v2/templateversions/{version_id}", token=owner)
            return found["job"]["status"] not in ("pending", "running")

        until(f"template {template.name}", imported)
        about = {
            "name": template.name,
            "display_name": template.display_name,
            "description": template.description,
            "template_version_id": version_id,
            "allow_user_cancel_workspace_jobs": True,
        }
        self.request("POST", f"{base}/templates", about, owner)


def until(what: str, check: Callable[[], bool], wait_s: float = 60) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        try:
            if check():
                return
        except (OSError, httpx.HTTPError):
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{what} did not come up within {wait_s:g} s")


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, check=False).returncode == 0
