"""Expands a campaign into its cells: models x delegates x devices. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final, Protocol

from agent.wire.messages import Device, MissingDelegate, Reason, ReasonCode
from agent.wire.plan import InputSpec, MeasurePlan
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import (
    DEFAULT_SOFT_LIMIT_S,
    Campaign,
    CellRule,
    DelegateEntry,
    DeviceSelector,
    ModelEntry,
    RetryEntry,
)
from orchestrator.policy.fingerprint import Ingredients, digest
from orchestrator.policy.selectors import DeviceClass, class_target, is_class, matches, named
from orchestrator.policy.sharing import left_out

MAX_CELLS: Final = 10_000
"""The most cells of one campaign. Chosen: all cells of a submission are stored in one transaction, which on
SQLite keeps every other writer waiting. `benchmarks/farm_scale.py` measures campaigns of this size."""

NO_DEVICE: Final = "-"
"""The target of a cell that no device can take."""


class ModelFile(Protocol):
    """A model of a campaign as a file."""

    @property
    def id(self) -> str:
        """The id it has in the campaign."""

    @property
    def sha256(self) -> str:
        """64 hex digits; empty where the file could not be fetched."""

    @property
    def size_bytes(self) -> int:
        """Size of the file."""

    @property
    def unreachable(self) -> str | None:
        """Why the file or its labelled data could not be fetched; None where it is in the store."""


@dataclass(frozen=True)
class CellSpec:
    """One model x delegate x target x level, before it is known whether it must run.

    `target`: a device id, `any:SELECTOR#N` for any device of a class, or "-" where no device can take it.
    `devices`: those it may run on, as far as they are known now; `line`: the queue in which it waits for one;
    `obstacle`: why it cannot run (`no_device`; `artifact`: its model could not be fetched) or is not wanted
    (`excluded`), else None. `position`: its place in the matrix, model by model. `queue_limit_s`, `reuse` and
    `retry`: as in `ModelEntry`.
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
    soft_limit_s: float = DEFAULT_SOFT_LIMIT_S
    obstacle: Reason | None = None
    devices: tuple[str, ...] = ()
    line: str = NO_DEVICE
    queue_limit_s: float | None = None
    reuse: str | None = None
    retry: RetryEntry | None = None

    # Cached: a submission asks several times for the digests of each of up to `MAX_CELLS` cells.
    @cached_property
    def ingredients(self) -> Ingredients:
        """Everything that a measurement of this cell depends on, whichever device it gets."""
        return self._on(self.target)

    def on(self, device_id: str) -> Ingredients:
        """Return everything that a measurement of this cell on this device depends on."""
        return self.ingredients if device_id == self.target else self._on(device_id)

    def _on(self, device_id: str) -> Ingredients:
        return Ingredients(
            self.model_sha256, self.delegate_kind, self.delegate_options, device_id, self.plan, self.inputs
        )

    @cached_property
    def siblings(self) -> str | None:
        """Digest that cells have in common which want other devices of one class; None without one."""
        if not is_class(self.target):
            return None
        # By the line, which has no number: the target tells the cells of one class apart.
        return digest({"model": self.model, "delegate": self.delegate, "series": self.on(self.line).series})

    @cached_property
    def key(self) -> str:
        """Digest that names the cell within its campaign: the names and everything they mean."""
        return digest({"model": self.model, "delegate": self.delegate, "series": self.ingredients.series})


def expand(
    campaign: Campaign,
    models: Iterable[ModelFile],
    devices: Sequence[Device],
    missing: Sequence[MissingDelegate] = (),
    homes: Mapping[str, str] | None = None,
) -> tuple[CellSpec, ...]:
    """Return every model on every delegate on every device that hosts the delegate and matches the
    selectors, or on as many devices of a class as a selector counts.

    Of a campaign that equal machines share, each model is on one of them (`homes`: as `sharing.left_out`).
    A delegate that no device can host gives one cell per model with target "-". Raises `UsageError` for
    a device name that nobody has, and for more than `MAX_CELLS` cells.
    """
    files = {model.id: model for model in models}
    _check_names(campaign.devices, devices)
    targets = {d.name: list(_targets(d, campaign, devices, missing)) for d in campaign.delegates}
    elsewhere = _elsewhere(campaign, files, devices, homes or {})
    # Counted before the first cell is made: the product of long lists could exhaust memory.
    named = Counter(target.name for own in targets.values() for target in own)
    count = sum(named.total() - sum(named[one] for one in absent) for absent in elsewhere)
    if count > MAX_CELLS:
        raise UsageError(f"{count} cells; a campaign has at most {MAX_CELLS}: split it into several files")
    cells: list[CellSpec] = []
    for model, absent in zip(campaign.models, elsewhere, strict=True):
        for delegate in campaign.delegates:
            for target in targets[delegate.name]:
                if target.name in absent:
                    continue
                why = _left_out(campaign, model.id, delegate.name, target)
                why = why or target.obstacle or _not_fetched(files[model.id])
                cells.append(_cell(len(cells), model, files[model.id], delegate, target, why))
    return tuple(cells)


def _elsewhere(
    campaign: Campaign, files: Mapping[str, ModelFile], devices: Sequence[Device], homes: Mapping[str, str]
) -> list[frozenset[str]]:
    """Return for each model the devices that leave it to an equal machine."""
    if not campaign.shared:
        return [frozenset()] * len(campaign.models)
    taken = [d for d in devices if not campaign.devices or any(matches(d, one) for one in campaign.devices)]
    return left_out([files[model.id].sha256 for model in campaign.models], taken, homes)


@dataclass(frozen=True, slots=True)
class _Target:
    """A target of a delegate's cells: one device, any device of a class, or none."""

    name: str
    line: str
    devices: tuple[str, ...] = ()
    obstacle: Reason | None = None


def _targets(
    delegate: DelegateEntry, campaign: Campaign, devices: Sequence[Device], missing: Sequence[MissingDelegate]
) -> Iterator[_Target]:
    """Yield the devices that selectors name, then the classes, or the one target "-" without either."""
    each = [selector for selector in campaign.devices if selector.count is None]
    classes = [selector for selector in campaign.devices if selector.count is not None]
    # Where all selectors count, `each` is empty, and no device is chosen by itself.
    chosen = [d for d in devices if not campaign.devices or any(matches(d, selector) for selector in each)]
    hosts = [device for device in chosen if delegate.kind in device.delegates]
    for device in hosts:
        name, lacking = device.device_id, device.lacks(delegate.kind, delegate.options)
        obstacle = None if lacking is None else Reason(code=ReasonCode.NO_DEVICE, text=lacking)
        yield _Target(name, name, (name,), obstacle)
    found = bool(hosts)
    for selector in classes:
        # Of all devices: a class does not exclude those that another selector names.
        class_ = DeviceClass(selector, delegate.kind)
        reached = [d for d in devices if d.lacks(delegate.kind, delegate.options) is None]
        members = [d.device_id for d in reached if class_.takes(d)]
        if members:
            found = True
            yield from _class_targets(selector, delegate.kind, tuple(members))
    if not found:
        selected = [d for d in devices if any(matches(d, selector) for selector in campaign.devices)]
        why = _no_host(delegate.kind, campaign.devices, selected if campaign.devices else devices, devices,
                       missing)  # fmt: skip
        yield _Target(NO_DEVICE, NO_DEVICE, obstacle=why)


def _class_targets(selector: DeviceSelector, kind: str, members: tuple[str, ...]) -> Iterator[_Target]:
    line = DeviceClass(selector, kind).line
    for number in range(selector.count or 0):
        obstacle = None
        # A cell of its own for each missing device: the table then shows how many are lacking.
        if number >= len(members):
            text = (
                f"`{_as_yaml(_fields(selector))}` counts {selector.count} devices that host {kind!r}; "
                f"there are {len(members)}: {', '.join(members)}"
            )
            obstacle = Reason(code=ReasonCode.NO_DEVICE, text=text)
        yield _Target(class_target(selector, number), line, members, obstacle)


def _cell(
    position: int,
    model: ModelEntry,
    file: ModelFile,
    delegate: DelegateEntry,
    target: _Target,
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
        target=target.name,
        level=model.plan.level,
        plan=model.plan,
        inputs=dict(model.inputs),
        soft_limit_s=model.soft_limit_s,
        obstacle=obstacle,
        devices=target.devices,
        line=target.line,
        queue_limit_s=model.queue_limit_s,
        reuse=model.reuse,
        retry=model.retry,
    )


def _check_names(selectors: Sequence[DeviceSelector], devices: Sequence[Device]) -> None:
    # Names alone: what another selector does not find gives cells with the reason (`_no_host`).
    ids = sorted(device.device_id for device in devices)
    for selector in selectors:
        if selector.name is not None and not any(named(device, selector.name) for device in devices):
            close = get_close_matches(selector.name, ids, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"devices: {', '.join(ids) or 'none'}"
            raise UsageError(f"no device is called {selector.name!r}; {hint}")


def _left_out(campaign: Campaign, model: str, delegate: str, target: _Target) -> Reason | None:
    """Return why the campaign's rules leave a cell out; None where they do not."""
    if campaign.include and not any(_chooses(r, model, delegate, target) for r in campaign.include):
        return Reason(code=ReasonCode.EXCLUDED, text="no rule of `include` chooses it")
    rule = next((r for r in campaign.exclude if _chooses(r, model, delegate, target)), None)
    return None if rule is None else _excluded(rule)


def _chooses(rule: CellRule, model: str, delegate: str, target: _Target) -> bool:
    return (
        fnmatchcase(model, rule.model)
        and fnmatchcase(delegate, rule.delegate)
        and fnmatchcase(target.name, rule.device)
    )


def _excluded(rule: CellRule) -> Reason:
    parts = {"model": rule.model, "delegate": rule.delegate, "device": rule.device}
    narrow = {name: pattern for name, pattern in parts.items() if pattern != "*"}
    return Reason(code=ReasonCode.EXCLUDED, text=f"by the rule {_as_yaml(narrow or {'model': '*'})}")


def _not_fetched(model: ModelFile) -> Reason | None:
    if model.unreachable is None:
        return None
    text = f"{model.unreachable}; once it can be reached, submit the campaign again"
    return Reason(code=ReasonCode.ARTIFACT, text=text)


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
    count = {} if selector.count is None else {"count": selector.count}
    return {name: value for name, value in given.items() if value is not None} | labels | count


def _as_yaml(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in values.items()) + "}"
