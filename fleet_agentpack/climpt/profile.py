"""The configuration files that say where a command's prompts are and which names it may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.climpt import patterns, project_files
from fleet_agentpack.climpt.errors import RenderError
from fleet_agentpack.kit import yaml12

C2_PATTERN = ("params", "two", "directiveType", "pattern")
C3_PATTERN = ("params", "two", "layerType", "pattern")
_KINDS: dict[tuple[str, ...], str] = {C2_PATTERN: "directive", C3_PATTERN: "layer"}


@dataclass(frozen=True)
class Profile:
    """`<name>-app.yml` with `<name>-user.yml` laid over it, found below one root."""

    name: str
    source: str  # the file to name when a value is wrong
    root: Path
    values: Mapping[str, object]

    @classmethod
    def load(cls, files: project_files.ProjectFiles, name: str) -> Profile:
        """The profile of that name. Raises `RenderError`."""
        if not project_files.NAME.fullmatch(name):
            raise RenderError(f"Invalid profile name: {name!r}", project_files.NAME_HINT)
        app, user = (f"{project_files.CONFIG_FOLDER}/{name}-{by}.yml" for by in ("app", "user"))
        for root in files.roots():
            values = _load(root, app)
            if values is not None:
                return cls(name, app, root, _over(values, _load(root, user) or {}))
        raise RenderError(
            f"Configuration not found: {app}",
            "create it with working_dir and app_prompt.base_dir, "
            "or run `fleet-agentpack climpt init` in an empty project",
        )

    @property
    def working_dir(self) -> Path:
        """The folder that the other paths are relative to."""
        return self._folder(self.root, "working_dir")

    @property
    def prompt_dir(self) -> Path:
        """The folder of the prompts."""
        return self._folder(self.working_dir, "app_prompt", "base_dir")

    @property
    def schema_dir(self) -> Path | None:
        """The folder of the schemas, where one is named."""
        if self._text("app_schema", "base_dir") is None:
            return None
        return self._folder(self.working_dir, "app_schema", "base_dir")

    @property
    def schema_name(self) -> str:
        """The folder of the schemas as the configuration writes it."""
        return self._text("app_schema", "base_dir") or ""

    @property
    def destination_prefix(self) -> str:
        """What is put before a destination, as it stands."""
        return self._text("options", "destination", "prefix") or ""

    def check_names(self, c2: str, c3: str) -> None:
        """Refuse names that the profile's patterns do not allow, each on its own."""
        self.check_name(C2_PATTERN, c2)
        self.check_name(C3_PATTERN, c3)

    def pattern(self, keys: tuple[str, ...]) -> str | None:
        """The pattern of the actions (c2) or of the targets (c3)."""
        return self._text(*keys)

    def check_name(self, keys: tuple[str, ...], name: str) -> None:
        """Refuse a name that one of the patterns does not allow. Raises `RenderError`."""
        pattern = self.pattern(keys)
        if pattern is None:
            return
        try:
            allowed = patterns.matches(pattern, name)
        except patterns.PatternError as error:
            raise RenderError(f"{self._place(keys)} {error}") from error
        if not allowed:
            raise RenderError(
                f"Invalid {_KINDS[keys]} type. Must match pattern: {pattern}",
                f"add {name} to {self._place(keys)}",
            )

    def _folder(self, root: Path, *keys: str) -> Path:
        text = self._text(*keys)
        if text is None:
            raise RenderError(f"{self._place(keys)} is missing")
        if keys != ("working_dir",) and Path(text).is_absolute():
            raise RenderError(f"{self._place(keys)} must be a relative path")
        with refused_as(f"{self._place(keys)}:"):
            return project_files.below(root, text)

    def _text(self, *keys: str) -> str | None:
        found: object = self.values
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        if not isinstance(found, str | None):
            raise RenderError(f"{self._place(keys)} must be text")
        return found or None

    def _place(self, keys: tuple[str, ...]) -> str:
        return f"{'.'.join(keys)} in {self.source.removesuffix('-app.yml')}-app.yml or -user.yml"


@contextmanager
def refused_as(name: str) -> Iterator[None]:
    """Say what a file or a path is for when it cannot be used."""
    try:
        yield
    except (project_files.UnusableFileError, yaml12.YamlError) as error:
        raise RenderError(f"{name} {error}") from error


def _load(root: Path, path: str) -> Mapping[str, object] | None:
    with refused_as(f"{path}:"):
        text = project_files.read(root, path)
        values = None if text is None else yaml12.load(text)
    if text is not None and values is None:
        return {}
    if not isinstance(values, Mapping | None):
        raise RenderError(f"{path}: must be a mapping")
    return values


def _over(low: Mapping[str, object], high: Mapping[str, object]) -> dict[str, object]:
    """`low` with the values of `high` over it, key by key at every depth."""
    merged = {**low, **high}
    for key, value in low.items():
        other = high.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            merged[key] = _over(value, other)
    return merged
