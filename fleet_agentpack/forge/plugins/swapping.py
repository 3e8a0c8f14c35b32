"""Puts staged plugin folders in their places together: all of them, or none."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from fleet_agentpack.forge.plugins.folders import plugin_folders

_STAGING = ".staging"  # half-made; never more than rubbish
_READY = ".ready"  # whole and verified: what is in here is going to be installed
_REPLACED = ".replaced"  # what was there before, until everything is in its place


def new_stage(base: Path) -> Path:
    """A directory to make plugin folders in, beside the places where they go."""
    stage = base / _STAGING / secrets.token_hex(8)
    stage.mkdir(parents=True)
    return stage


def put_in_place(base: Path, stage: Path) -> None:
    """Move every plugin folder of a stage below `base`; when one cannot be, all stays as it was.

    What a killed process leaves is finished by the next `recover`.
    """
    names = [name for name, _ in plugin_folders(stage)]
    stage.rename(base / _READY)
    try:
        _forward(base, names)
    except BaseException:
        _back(base, names)
        raise
    _clear(base)


def recover(base: Path) -> None:
    """Finish an interrupted `put_in_place` and clear what it left behind."""
    _forward(base, [name for name, _ in plugin_folders(base / _READY)])
    _clear(base)


def clear_stages(base: Path) -> None:
    """Remove what was made and is not going to be installed."""
    shutil.rmtree(base / _STAGING, ignore_errors=True)


def is_interrupted(base: Path) -> bool:
    """Whether plugins are waiting for the next command that writes."""
    return bool(plugin_folders(base / _READY))


def _forward(base: Path, names: list[str]) -> None:
    for name in names:
        if (base / name).exists():
            _move(base / name, base / _REPLACED / name)
        _move(base / _READY / name, base / name)


def _back(base: Path, names: list[str]) -> None:
    """Every step leaves a state that `recover` can still finish."""
    for name in names:
        if not (base / _READY / name).exists():
            _move(base / name, base / _READY / name)
        if (base / _REPLACED / name).exists():
            _move(base / _REPLACED / name, base / name)
    (base / _READY).rename(new_stage(base) / "undone")
    _clear(base)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def _clear(base: Path) -> None:
    for leftover in (_READY, _REPLACED, _STAGING):
        shutil.rmtree(base / leftover, ignore_errors=True)
