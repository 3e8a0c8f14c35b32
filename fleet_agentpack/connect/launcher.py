"""Which command starts this server from anywhere on this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from fleet_agentpack.kit.files import UnreadableError, read_text

PROGRAM = "fleet-agentpack"
# Where uvx and `pipx run` unpack programs for one run; such a path may be gone tomorrow.
_SHORT_LIVED = {"archive-v0", "environments-v2", "builds-v0"}


@dataclass(frozen=True)
class Running:
    """How this process was started."""

    argv0: str
    executable: str
    package: Path  # the directory that holds the package
    direct_url: str | None = None  # the installer's note of where the package came from
    uvx: str | None = None


def launch_words(running: Running) -> list[str]:
    """The words that start the server, offline too: its script, else uvx, else the interpreter."""
    script = _script(running)
    short_lived = script is not None and not _SHORT_LIVED.isdisjoint(script.parts)
    if script and not short_lived:
        return [str(script)]
    checkout = running.package if _is_checkout(running.package) else None
    if short_lived:
        checkout = checkout or _directory_of(running.direct_url)
    if running.uvx and checkout:
        return [running.uvx, "--from", str(checkout), PROGRAM]
    if running.uvx and short_lived:
        return [running.uvx, PROGRAM]
    if script:
        return [str(script)]
    # -P: the client's project does not get to stand in for any module of ours.
    return [running.executable, "-P", "-m", "fleet_agentpack"]


def fitting(counts: dict[str, int], limit: int | None) -> tuple[str, ...]:
    """The domains to serve when a client takes so many tools; empty means all of them."""
    chosen = dict(counts)
    while limit is not None and sum(chosen.values()) > limit:
        del chosen[max(chosen, key=lambda name: chosen[name])]
    return () if len(chosen) == len(counts) else tuple(chosen)


def _script(running: Running) -> Path | None:
    """The console script that was called, or the one that belongs to the interpreter."""
    called = Path(running.argv0)
    beside = Path(running.executable).parent
    names = [PROGRAM, f"{PROGRAM}.exe"]
    candidates = [called] if called.name in names else []
    candidates += [beside / name for name in names]
    return next((path.absolute() for path in candidates if path.is_file()), None)


def _is_checkout(directory: Path) -> bool:
    try:
        text = read_text(directory / "pyproject.toml")
    except (FileNotFoundError, UnreadableError):
        return False
    return f'name = "{PROGRAM}"' in text


def _directory_of(direct_url: str | None) -> Path | None:
    try:
        url = urlsplit(json.loads(direct_url or "{}").get("url", ""))
    except (ValueError, AttributeError):
        return None
    directory = Path(url2pathname(url.path))
    return directory if url.scheme == "file" and _is_checkout(directory) else None
