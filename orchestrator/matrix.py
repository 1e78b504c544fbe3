"""A campaign spread out: models x delegates x devices -> cells. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Protocol

from agent.messages import Device, InputSpec, MeasurePlan, MissingDelegate, Reason, ReasonCode
from orchestrator.errors import UsageError
from orchestrator.fingerprint import Ingredients, digest
from orchestrator.manifest.campaign import Campaign, DelegateEntry, DeviceSelector, ExcludeRule, ModelEntry

MAX_CELLS = 10_000
NO_DEVICE = "-"


class ModelFile(Protocol):
    """A model that lies in the store."""

    @property
    def id(self) -> str:
        """The id it has in the campaign."""

    @property
    def sha256(self) -> str:
        """64 hex digits."""

    @property
    def size_bytes(self) -> int:
        """Size of the file."""


@dataclass(frozen=True, slots=True)
class CellSpec:
    """One model x delegate x target x level, before it is known whether it must run.

    `target`: a device id, or "-" where no device can take it. `obstacle`: why it cannot run (`no_device`)
    or is not wanted (`excluded`), else None. `position`: its place in the matrix, model by model.
    """

    position: int
    model: str
    model_sha256: str
    model_bytes: int
    delegate: str
    delegate_kind: str
    delegate_options: Mapping[str, Any]
    target: str
    level: str
    plan: MeasurePlan
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    soft_limit_s: float = 900.0
    obstacle: Reason | None = None

    @property
    def ingredients(self) -> Ingredients:
        """What a measurement of this cell depends on."""
        return Ingredients(
            self.model_sha256, self.delegate_kind, self.delegate_options, self.target, self.plan, self.inputs
        )

    @property
    def key(self) -> str:
        """Digest that names the cell within its campaign: the names and everything they stand for."""
        return digest({"model": self.model, "delegate": self.delegate, "series": self.ingredients.series})


def expand(
    campaign: Campaign,
    models: Iterable[ModelFile],
    devices: Sequence[Device],
    missing: Sequence[MissingDelegate] = (),
) -> tuple[CellSpec, ...]:
    """Every model on every delegate on every device that hosts the delegate and matches the selectors.

    A delegate that no device can host gives one cell per model with target "-". Raises `UsageError` for
    a device name that nobody has, and for more than `MAX_CELLS` cells.
    """
    files = {model.id: model for model in models}
    chosen = [device for device in devices if _selected(device, campaign.devices)]
    _check_names(campaign.devices, devices)
    hosts = {d.name: [dev for dev in chosen if d.kind in dev.delegates] for d in campaign.delegates}
    count = len(campaign.models) * sum(max(1, len(found)) for found in hosts.values())
    if count > MAX_CELLS:
        raise UsageError(f"{count} cells; a campaign has at most {MAX_CELLS}: split it into several files")
    cells: list[CellSpec] = []
    for model in campaign.models:
        for delegate in campaign.delegates:
            for target, obstacle in _targets(model, delegate, hosts[delegate.name], campaign.exclude):
                why = obstacle
                if why is None and target == NO_DEVICE:
                    why = _no_host(delegate.kind, campaign.devices, chosen, devices, missing)
                cells.append(_cell(len(cells), model, files[model.id], delegate, target, why))
    return tuple(cells)


def _targets(
    model: ModelEntry, delegate: DelegateEntry, hosts: Sequence[Device], rules: Sequence[ExcludeRule]
) -> Iterator[tuple[str, Reason | None]]:
    for target in [device.device_id for device in hosts] or [NO_DEVICE]:
        rule = next((r for r in rules if _excludes(r, model.id, delegate.name, target)), None)
        yield target, None if rule is None else _excluded(rule)


def _cell(
    position: int,
    model: ModelEntry,
    file: ModelFile,
    delegate: DelegateEntry,
    target: str,
    obstacle: Reason | None,
) -> CellSpec:
    return CellSpec(
        position=position,
        model=model.id,
        model_sha256=file.sha256,
        model_bytes=file.size_bytes,
        delegate=delegate.name,
        delegate_kind=delegate.kind,
        delegate_options=dict(delegate.options),
        target=target,
        level=model.plan.level,
        plan=model.plan,
        inputs=dict(model.inputs),
        soft_limit_s=model.soft_limit_s,
        obstacle=obstacle,
    )


def _selected(device: Device, selectors: Sequence[DeviceSelector]) -> bool:
    return not selectors or any(_matches(device, selector) for selector in selectors)


def _matches(device: Device, selector: DeviceSelector) -> bool:
    return (
        selector.kind in (None, device.kind)
        and (selector.vendor is None or fnmatchcase(device.vendor.lower(), selector.vendor.lower()))
        and (selector.name is None or _named(device, selector.name))
        and all(device.labels.get(name) == value for name, value in selector.labels.items())
    )


def _named(device: Device, pattern: str) -> bool:
    return fnmatchcase(device.device_id, pattern) or fnmatchcase(device.name, pattern)


def _check_names(selectors: Sequence[DeviceSelector], devices: Sequence[Device]) -> None:
    ids = sorted(device.device_id for device in devices)
    for selector in selectors:
        if selector.name is not None and not any(_named(device, selector.name) for device in devices):
            close = get_close_matches(selector.name, ids, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"devices: {', '.join(ids) or 'none'}"
            raise UsageError(f"no device is called {selector.name!r}; {hint}")


def _excludes(rule: ExcludeRule, model: str, delegate: str, target: str) -> bool:
    return (
        fnmatchcase(model, rule.model)
        and fnmatchcase(delegate, rule.delegate)
        and fnmatchcase(target, rule.device)
    )


def _excluded(rule: ExcludeRule) -> Reason:
    parts = {"model": rule.model, "delegate": rule.delegate, "device": rule.device}
    narrow = {name: pattern for name, pattern in parts.items() if pattern != "*"}
    return Reason(code=ReasonCode.EXCLUDED, text=f"by the rule {_as_yaml(narrow or {'model': '*'})}")


def _no_host(
    kind: str,
    selectors: Sequence[DeviceSelector],
    chosen: Sequence[Device],
    devices: Sequence[Device],
    missing: Sequence[MissingDelegate],
) -> Reason:
    hosting = sorted(device.device_id for device in devices if kind in device.delegates)
    wanted = ", ".join(_as_yaml(_fields(selector)) for selector in selectors)
    if hosting and not chosen:
        known = ", ".join(sorted(device.device_id for device in devices))
        text = f"no device matches the campaign's `devices: [{wanted}]`; there are: {known}"
    elif hosting:
        others = ", ".join(hosting)
        text = (
            f"no device of the campaign's `devices: [{wanted}]` hosts delegate kind {kind!r}; "
            f"these do: {others}"
        )
    else:
        told = next((entry.reason for entry in missing if entry.kind == kind), None)
        text = told or f"no device of this farm hosts delegate kind {kind!r}"
    return Reason(code=ReasonCode.NO_DEVICE, text=text)


def _fields(selector: DeviceSelector) -> dict[str, Any]:
    given = {"kind": selector.kind, "vendor": selector.vendor, "name": selector.name}
    labels = {"labels": _as_yaml(selector.labels)} if selector.labels else {}
    return {name: value for name, value in given.items() if value is not None} | labels


def _as_yaml(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in values.items()) + "}"
