"""What an import changes in `agentpack.yaml` besides the modules: targets and profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet_agentpack.deploy.importing.items import Item
from fleet_agentpack.deploy.importing.modules import NewModule
from fleet_agentpack.deploy.importing.places import target_called
from fleet_agentpack.deploy.manifest import BASE_TAG, Manifest, Profile, TargetConfig
from fleet_agentpack.deploy.manifest_edit import ManifestEdit, Place, ProfileEntry
from fleet_agentpack.deploy.project import Project
from fleet_agentpack.deploy.selection import DEFAULT, choose
from fleet_agentpack.deploy.starter import starter_targets
from fleet_agentpack.kit.results import UNKNOWN


@dataclass(frozen=True)
class Blocked:
    """An item whose place cannot be switched on without deploying something else there, too."""

    item: Item
    module_id: str

    @property
    def reason(self) -> str:
        """Why it is not imported, and what to do."""
        option = f"targets.{self.item.target}.options.{self.item.place.area.option}"
        return f"{self.module_id} would be deployed there, too; set {option} to true first"


class Pack:
    """A config repo that may not exist yet, or have no modules."""

    def __init__(self, manifest: Manifest | None, project: Project | None, machine: str) -> None:
        self._manifest = manifest
        self._project = project
        self._machine = machine

    @property
    def configured(self) -> dict[str, TargetConfig]:
        """The targets that it names."""
        return dict(self._manifest.targets) if self._manifest else {}

    @property
    def module_ids(self) -> frozenset[str]:
        """The modules that it has."""
        modules = self._manifest.modules if self._manifest else ()
        return frozenset(module.id for module in modules)

    @property
    def base_tag(self) -> str | None:
        """The tag that makes a module one of the user's own, if a tag can."""
        if self._manifest is None:
            return BASE_TAG
        tags = self._manifest.profile(self._profiles[0]).include_tags
        return BASE_TAG if BASE_TAG in tags else next(iter(tags), None)

    def admit(self, items: Sequence[Item]) -> tuple[list[Item], list[Blocked]]:
        """The items whose places are switched on, or can be without any other effect."""
        taken, blocked = [], []
        for item in items:
            in_the_way = self._in_the_way(item)
            if in_the_way:
                blocked.append(Blocked(item, in_the_way))
            else:
                taken.append(item)
        return taken, blocked

    def edit(self, modules: Sequence[NewModule]) -> ManifestEdit:
        """The edit that adds modules and what they need."""
        added = [module.entry for module in modules]
        values = {**self._targets(modules), **self._profile_values(modules)}
        return ManifestEdit(values, added)

    @property
    def _profiles(self) -> tuple[str, str]:
        """The profile that selects the user's files, and the one that selects the project's."""
        if self._manifest is None:
            return DEFAULT, DEFAULT
        found = choose(self._manifest, DEFAULT, self._project, self._machine)
        return found.user, found.project

    def _in_the_way(self, item: Item) -> str:
        """A module that would come along if the place of an item were switched on."""
        if self._manifest is None:
            return ""
        target = target_called(item.target)
        before = self.configured.get(item.target)
        active = target.switched_on(before) if before else []
        if item.place.area in active:
            return ""
        after = target.switched_on(_with(before, [item]))
        for area in after:
            for module in self._manifest.modules if area not in active else ():
                if module.type == area.takes and module.goes_to(item.target, area.scope):
                    return module.id
        return ""

    def _targets(self, modules: Sequence[NewModule]) -> dict[Place, object]:
        values: dict[Place, object] = {}
        items = [item for module in modules for item in module.items]
        configured = self.configured if self._manifest else starter_targets()
        for name in sorted({item.target for item in items}):
            mine = [item for item in items if item.target == name]
            before = configured.get(name)
            after = _with(before, mine)
            if before is None:
                whole = {"mode": after.mode, "scope": after.scope, "options": dict(after.options)}
                values["targets", name] = whole
                continue
            if after.scope != before.scope:
                values["targets", name, "scope"] = after.scope
            for option, value in after.options.items():
                if before.options.get(option) != value:
                    values["targets", name, "options", option] = value
        return values

    def _profile_values(self, modules: Sequence[NewModule]) -> dict[Place, object]:
        values: dict[Place, object] = {}
        of_user = [each.id for each in modules if each.item.scope == "user"]
        of_project = [each.id for each in modules if each.item.scope == "project"]
        user, project = self._profiles
        profile = self._profile(user)
        if of_user and self.base_tag is None:
            values["profiles", user, "include_modules"] = [*profile.include_modules, *of_user]
        if not of_project or self._project is None:
            return values
        if project != user:
            chosen = self._profile(project)
            values["profiles", project, "include_modules"] = [*chosen.include_modules, *of_project]
            return values
        own = f"project-{self._project.id}"
        return values | {("profiles", own): _bound(profile, own, self._project.id)}

    def _profile(self, name: str) -> Profile:
        return self._manifest.profile(name) if self._manifest else Profile((BASE_TAG,))


def _with(config: TargetConfig | None, items: Iterable[Item]) -> TargetConfig:
    """A target's configuration with the places of some items switched on, and no others."""
    places = [item.place for item in items]
    target = target_called(places[0].target)
    if config is None:
        off = {area.option: False for area in target.areas}
        config = TargetConfig("files", places[0].scope, off)
    scopes = {*config.scopes, *(place.scope for place in places)}
    scope = "both" if len(scopes) == 2 else next(iter(scopes))
    on: Mapping[str, object] = {
        place.area.option: True
        for place in places
        if place.area not in target.switched_on(replace(config, scope="both"))
    }
    return replace(config, scope=scope, options={**config.options, **on})


def _bound(profile: Profile, tag: str, project_id: str) -> ProfileEntry:
    """A profile for one project: what the user's own selects, and what has the project's tag."""
    return ProfileEntry(
        (*profile.include_tags, tag),
        profile.include_modules or UNKNOWN,
        profile.exclude_modules or UNKNOWN,
        project_id,
    )
