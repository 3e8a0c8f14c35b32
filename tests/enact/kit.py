"""Builds services, tool directories and bundles for the tests of the tool registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.enact.settings import ContainerSettings, EnactSettings
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.paths import PathArguments

CASSETTES = Path(__file__).resolve().parents[2] / "cassettes" / "enact"
needs_bwrap = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


T = TypeVar("T")
OPENED: list[Any] = []


def no_keyring(_service: str, _account: str) -> str | None:
    return None


def make_service(
    home: Path,
    *,
    environ: Mapping[str, str] | None = None,
    session_scope: bool = False,
    keyring: Any = no_keyring,
    container: ContainerSettings | None = None,
) -> EnactService:
    """A service in a home of its own, working in `home/work`."""
    (home / "work").mkdir(parents=True, exist_ok=True)
    return closed_later(
        EnactService(
            EnactSettings(
                home=home,
                project=home / "work",
                paths=PathArguments(home / "work", home, environ or {}),
                cache=home / ".cache" / "agentpack",
                state=home / ".local" / "agentpack",
                config=home / ".config" / "agentpack",
                environ={"PATH": os.environ["PATH"], **(environ or {})},
                container=container or ContainerSettings(),
                session_scope=session_scope,
                keyring=keyring,
            )
        )
    )


def closed_later(made: T) -> T:
    """Something that the end of the test closes."""
    OPENED.append(made)
    return made


def configure(home: Path, **sections: Any) -> Path:
    """Write `~/.enact/config.yaml`."""
    path = home / ".enact" / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml12.dump(sections), encoding="utf-8")
    return path


def manifest(name: str, version: str = "1.0.0", **fields: Any) -> str:
    """The text of an `enact.yaml`."""
    data = {"name": name, "version": version, "description": f"The tool {name}", **fields}
    return yaml12.dump({key: value for key, value in data.items() if value is not None})


def add_tool(
    registry: Path,
    name: str,
    version: str = "1.0.0",
    *,
    files: Mapping[str, str] | None = None,
    **fields: Any,
) -> Path:
    """A tool in a directory registry."""
    folder = registry / name / version
    folder.mkdir(parents=True)
    given = fields or {"scripts": {"run": "cat hello.txt"}}
    (folder / "enact.yaml").write_text(manifest(name, version, **given), encoding="utf-8")
    for path, text in {"hello.txt": f"hello from {name}\n", **(files or {})}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def use_directory(home: Path, registry: Path, policy: str = "allow", **sections: Any) -> None:
    """Configure a directory registry whose tools are let in."""
    registry.mkdir(parents=True, exist_ok=True)
    configure(home, trust={"policy": policy}, registry={"url": str(registry)}, **sections)


def tar_bytes(
    files: Mapping[str, str | bytes | tarfile.TarInfo], *, compress: bool = True
) -> bytes:
    """A bundle of these members; a `TarInfo` goes in as it is, without content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    raw = buffer.getvalue()
    return gzip.compress(raw, mtime=0) if compress else raw


def tool_bundle(name: str, version: str = "1.0.0", **fields: Any) -> bytes:
    """A whole bundle of a small tool."""
    given = fields or {"scripts": {"run": "cat hello.txt"}}
    return tar_bytes(
        {"enact.yaml": manifest(name, version, **given), "hello.txt": f"hello from {name}\n"}
    )


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def refused(code: str) -> Any:
    """Expect an `EnactError` with this code."""
    return _Refused(code)


class _Refused:
    error: EnactError

    def __init__(self, code: str) -> None:
        self._code = code

    def __enter__(self) -> _Refused:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _trace: object) -> bool:
        assert isinstance(error, EnactError), f"expected {self._code}, got {error!r}"
        assert error.code == self._code, f"expected {self._code}, got {error.code}: {error}"
        payload = error.payload()
        assert payload["success"] is False
        assert set(payload["error"]) == {"code", "message", "details", "next_actions"}
        json.dumps(payload)
        self.error = error
        return True


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file below a directory, but locks."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
