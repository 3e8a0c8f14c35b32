"""Lets a profile's patterns allow a new name, by editing the one text in its file."""

from __future__ import annotations

import re

from fleet_agentpack.climpt.errors import RenderError
from fleet_agentpack.climpt.profile import C2_PATTERN, C3_PATTERN, Profile
from fleet_agentpack.climpt.project_files import CONFIG_FOLDER, read
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.files import write_atomic

# `^(a|b)$`, as nearly every profile has it.
_LIST = re.compile(r"(\^?\((?:\?:)?)([\w|-]*)(\)\$?)")


def missing(profile: Profile, c2: str, c3: str) -> list[tuple[tuple[str, ...], str]]:
    """The patterns that do not allow a name, each with that name."""
    found: list[tuple[tuple[str, ...], str]] = []
    for keys, name in ((C2_PATTERN, c2), (C3_PATTERN, c3)):
        try:
            profile.check_name(keys, name)
        except RenderError:
            found.append((keys, name))
    return found


def allow(profile: Profile, keys: tuple[str, ...], name: str) -> str | None:
    """Add a name to a pattern that is a list; the file that was changed, None where it is not."""
    pattern = profile.pattern(keys)
    parts = _LIST.fullmatch(pattern or "")
    if pattern is None or parts is None:
        return None
    names = [*filter(None, parts[2].split("|")), name]
    longer = f"{parts[1]}{'|'.join(names)}{parts[3]}"
    for by in ("user", "app"):
        file = f"{CONFIG_FOLDER}/{profile.name}-{by}.yml"
        text = read(profile.root, file)
        changed = _replaced(text, keys, pattern, longer) if text else None
        if changed:
            write_atomic(profile.root / file, changed)
            return file
    return None


def _replaced(text: str, keys: tuple[str, ...], pattern: str, longer: str) -> str | None:
    """The text with one pattern replaced, the rest as it is; None where that cannot be done."""
    for start in (match.start() for match in re.finditer(re.escape(pattern), text)):
        changed = text[:start] + longer + text[start + len(pattern) :]
        if _value(text, keys) == pattern and _value(changed, keys) == longer:
            return changed
    return None


def _value(text: str, keys: tuple[str, ...]) -> object:
    try:
        found: object = yaml12.load(text)
    except yaml12.YamlError:
        return None
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found
