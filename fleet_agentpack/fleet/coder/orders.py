"""What is asked of Coder for a new agent: a template, a preset, parameters; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet_agentpack.config import TemplateTable
from fleet_agentpack.fleet.coder import models
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.models import NewAgent
from fleet_agentpack.fleet.results import Role
from fleet_agentpack.fleet.roles import STANDARD_ROLES

SPEC_PARAMETERS = ("agent_spec", "spec", "AI Prompt")


@dataclass(frozen=True)
class CoderNames:
    """The names that this Coder deployment uses."""

    role_parameter: str = "agent_role"
    spec_parameter: str | None = None  # None: the first usual one that the template has
    app_slug: str | None = None
    projects: Mapping[str, str] = field(default_factory=dict)  # project → template
    templates: Mapping[str, TemplateTable] = field(default_factory=dict)
    start_stopped: bool = False

    @property
    def spec_names(self) -> tuple[str, ...]:
        """The parameters that may hold the spec, best first."""
        return (self.spec_parameter,) if self.spec_parameter else SPEC_PARAMETERS

    def table_of(self, template: str) -> TemplateTable | None:
        """What is configured for a template."""
        tables = {name.lower(): table for name, table in self.templates.items()}
        return tables.get(template.lower())


@dataclass(frozen=True)
class TemplateOffer:
    """A template with everything that decides how an agent is made from it."""

    template: models.Template
    names: CoderNames
    asked: Mapping[str, models.Parameter]
    presets: Sequence[models.Preset] = ()

    @property
    def table(self) -> TemplateTable | None:
        """What is configured for the template; None if nothing is."""
        return self.names.table_of(self.template.name)

    @property
    def is_usable(self) -> bool:
        """Whether agents can be made from it: it knows roles, or is configured."""
        return self.names.role_parameter in self.asked or self.table is not None

    @property
    def role_parameter(self) -> models.Parameter | None:
        """The parameter that takes the role."""
        configured = self.table.role_parameter if self.table else None
        return self.asked.get(configured or self.names.role_parameter)

    @property
    def spec_parameter(self) -> str | None:
        """The parameter that takes the spec."""
        configured = self.table.spec_parameter if self.table else None
        names = (configured,) if configured else self.names.spec_names
        return next((name for name in names if name in self.asked), None)

    def roles(self) -> list[Role]:
        """Its roles: the options of its parameter, else its presets, else the standard ones."""
        table = self.table
        if self.role_parameter:
            return _options(self.role_parameter)
        if table is None:
            return []
        if table.presets:
            return [Role(role, name, "") for role, name in table.presets.items()]
        if self.presets and not table.preset:
            return [Role(one.name, one.name, one.description) for one in self.presets]
        return [role.public for role in STANDARD_ROLES]


@dataclass(frozen=True)
class WorkspaceOrder:
    """A workspace to be made."""

    template: models.Template
    values: Mapping[str, str]
    preset_id: str | None = None
    is_marked: bool = True  # its build tells that it is an agent; otherwise the ledger does
    untold: str = ""  # what no parameter can tell the agent


def order_for(new: NewAgent, offer: TemplateOffer) -> WorkspaceOrder:
    """What to ask of Coder for a new agent.

    Raises 400 for a role that the project does not have, and where the template needs more.
    """
    _check_usable(new, offer)
    known = [role.name for role in offer.roles()]
    if new.role not in known:
        raise FleetError.bad_request(
            f"Project '{new.project}' has no role '{new.role[:80]}'; choose from"
            f" {', '.join(known)}.",
            field="role",
            roles=known,
        )
    table = offer.table or TemplateTable()
    role, spec = offer.role_parameter, offer.spec_parameter
    values = dict(table.parameters)
    if role:
        values[role.name] = new.role
    if spec:
        values[spec] = new.spec
    preset = _preset(new.role, offer, values)
    fixed = preset.values if preset else {}
    _check_fixed(new, offer, fixed)
    _check_complete(offer, {**values, **fixed})
    return WorkspaceOrder(
        offer.template,
        {name: value for name, value in values.items() if name not in fixed},
        preset_id=preset.id if preset else None,
        is_marked=offer.names.role_parameter in {**values, **fixed},
        untold=_untold(
            new,
            role_is_told=role is not None or preset is not None,
            spec_is_told=spec is not None and spec not in fixed,
        ),
    )


def _options(parameter: models.Parameter) -> list[Role]:
    """A role parameter's options; without options, the standard roles."""
    if not parameter.options:
        return [role.public for role in STANDARD_ROLES]
    return [
        Role(option.value, option.name or option.value, option.description)
        for option in parameter.options
    ]


def _check_usable(new: NewAgent, offer: TemplateOffer) -> None:
    if offer.table is not None or (offer.role_parameter and offer.spec_parameter):
        return
    names, template = offer.names, offer.template.name
    missing = " or ".join(names.spec_names) if offer.role_parameter else names.role_parameter
    raise FleetError.bad_request(
        f"Project '{new.project}' cannot be used for agents: its template '{template}' has no"
        f" parameter {missing}. A table [fleet.coder.templates.{template}] in the configuration"
        " file can say how to use it.",
        project=new.project,
        template=template,
    )


def _preset(role: str, offer: TemplateOffer, values: Mapping[str, str]) -> models.Preset | None:
    """The configured preset, the one with the role's name, or one that sets just these values."""
    table = offer.table
    if table is None:
        return None
    wanted = table.presets.get(role) or table.preset
    if wanted is None and offer.role_parameter is None and not table.presets:
        wanted = role if offer.presets else None
    if wanted is None:
        matching = (one for one in offer.presets if one.values.items() <= values.items())
        return next(matching, None)
    for one in offer.presets:
        if one.name.lower() == wanted.lower():
            return one
    known = ", ".join(one.name for one in offer.presets) or "none"
    raise FleetError.bad_request(
        f"Template '{offer.template.name}' has no preset '{wanted}'; it has {known}.",
        template=offer.template.name,
    )


def _check_fixed(new: NewAgent, offer: TemplateOffer, fixed: Mapping[str, str]) -> None:
    """A preset's values win over ours, so it must not set another role."""
    role = offer.role_parameter
    if role and fixed.get(role.name, new.role) != new.role:
        raise FleetError.bad_request(
            f"The preset for role '{new.role}' sets {role.name} to '{fixed[role.name]}'.",
            field="role",
        )


def _check_complete(offer: TemplateOffer, values: Mapping[str, str]) -> None:
    """Coder drops parameters that it does not know, and fails late where one is missing."""
    setting = f"[fleet.coder.templates.{offer.template.name}] parameters"
    unknown = [name for name in values if name not in offer.asked]
    if unknown:
        raise FleetError.bad_request(
            f"Template '{offer.template.name}' has no parameter {', '.join(unknown)}; correct"
            f" {setting}.",
            template=offer.template.name,
            parameters=unknown,
        )
    missing = [one.name for one in offer.asked.values() if one.required and one.name not in values]
    if missing:
        raise FleetError.bad_request(
            f"Template '{offer.template.name}' also asks for {', '.join(missing)}; give values in"
            f" {setting}.",
            template=offer.template.name,
            parameters=missing,
        )


def _untold(new: NewAgent, *, role_is_told: bool, spec_is_told: bool) -> str:
    """What the first task has to tell the agent, because no parameter does."""
    prompts = {role.name: role.prompt for role in STANDARD_ROLES}
    role = "" if role_is_told else prompts.get(new.role, "")
    spec = "" if spec_is_told else f"Your specification:\n{new.spec}"
    return "\n\n".join(part for part in (role, spec) if part)
