"""Plans a submission cell by cell: run it, reuse a result, or state why neither. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from agent.wire.messages import MeasurePlan, ReasonCode
from orchestrator.errors import UsageError
from orchestrator.policy.fingerprint import ChangedField, Ingredients, changed_fields, fingerprint
from orchestrator.policy.lifecycle import CURABLE
from orchestrator.policy.matrix import CellSpec

Action: TypeAlias = Literal["run", "reuse", "no_device", "excluded"]

SAME_FINGERPRINT = "same-fingerprint"
NEVER = "never"
_MAX_AGE = "max-age:"

REUSABLE_FAILURES = frozenset({ReasonCode.WRONG_OUTPUT})
"""Failures that measuring again would only repeat; any other failed cell runs again."""

_PROCESS_OVERHEAD_S: Final = 2.0
"""Seconds that a measuring process takes beside measuring: starting Python, opening the model. A guess, used
only for cells that were never measured; a campaign's own pace corrects the time left
(`read.campaign_progress`).
"""

_CELL_OVERHEAD_S: Final = 3.0
"""Seconds that a cell takes beside its measuring processes: starting the runner, judging, the result's way
back. A guess, as above.
"""


@dataclass(frozen=True, slots=True)
class KnownResult:
    """A counted result of an earlier cell. `duration_s`: how long its attempt took."""

    attempt_id: str
    cell_id: str
    status: str
    reason_code: ReasonCode
    received_at: datetime
    duration_s: float
    ingredients: Ingredients
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PastResults:
    """The newest counted result by fingerprint, by series, and by (model id, delegate name, device)."""

    by_fingerprint: Mapping[str, KnownResult]
    by_series: Mapping[str, KnownResult]
    by_names: Mapping[tuple[str, str, str], KnownResult]


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell of a submission. `why` is for people; `changed` names what differs from the newest
    result of the same names; `eta_s` is 0 for a cell that does not run.
    """

    spec: CellSpec
    action: Action
    why: str
    changed: tuple[ChangedField, ...] = ()
    eta_s: float = 0.0
    reused: KnownResult | None = None

    @property
    def model(self) -> str:
        """The model's id."""
        return self.spec.model

    @property
    def delegate(self) -> str:
        """The delegate's name."""
        return self.spec.delegate

    @property
    def device(self) -> str:
        """A device id, the text of a device class, or "-"."""
        return self.spec.target

    @property
    def level(self) -> str:
        """The level."""
        return self.spec.level

    @property
    def reused_from(self) -> str | None:
        """Id of the cell whose result is reused."""
        return None if self.reused is None else self.reused.cell_id


def plan_cells(
    specs: Iterable[CellSpec],
    environments: Mapping[str, Mapping[str, str]],
    environment_ids: Mapping[str, str],
    past: PastResults,
    reuse: str,
    now: datetime,
) -> tuple[PlannedCell, ...]:
    """Decide every cell. `environments` and `environment_ids` are by device id.

    `reuse`: `same-fingerprint`, `never` or `max-age:SECONDS`; anything else raises `UsageError`.
    """
    limit = reuse_limit(reuse, now)
    planned = []
    used: dict[str, set[str]] = defaultdict(set)
    seen: dict[str, Sequence[_Seen]] = {}
    for spec in specs:
        if spec.obstacle is not None:
            action: Action = "excluded" if spec.obstacle.code is ReasonCode.EXCLUDED else "no_device"
            planned.append(PlannedCell(spec, action, spec.obstacle.text))
            continue
        group = spec.siblings or spec.key
        if group not in seen:
            seen[group] = [_seen(spec, name, environment_ids[name], past) for name in spec.devices]
        taken = used[group]
        free = [device for device in seen[group] if device.device_id not in taken]
        cell = _planned(spec, free, environments, past, limit)
        if cell.reused is not None:
            taken.add(cell.reused.ingredients.device_id)
        planned.append(cell)
    return tuple(planned)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Earlier results of a cell on one device: in its present environment, and in any environment."""

    device_id: str
    same: KnownResult | None
    ever: KnownResult | None


def _seen(spec: CellSpec, device_id: str, environment_id: str, past: PastResults) -> _Seen:
    series = spec.on(device_id).series
    same = past.by_fingerprint.get(fingerprint(series, environment_id))
    return _Seen(device_id, same, past.by_series.get(series))


def _planned(
    spec: CellSpec,
    free: Sequence[_Seen],
    environments: Mapping[str, Mapping[str, str]],
    past: PastResults,
    limit: datetime | None,
) -> PlannedCell:
    """Decide a cell that may run on any of the free devices: the first reusable result is taken."""
    known = [device.same for device in free if device.same is not None]
    for result in known:
        if limit is not None and reusable(result, limit):
            why = f"measured {result.received_at:%Y-%m-%d %H:%M} UTC in cell {result.cell_id}"
            return PlannedCell(spec, "reuse", why, reused=result)
    last = next((device.ever for device in free if device.ever is not None), None)
    eta_s = expected_s(spec.plan, last)
    if known:
        return PlannedCell(spec, "run", _why_again(known[0], limit), eta_s=eta_s)
    if spec.siblings is not None:
        return PlannedCell(spec, "run", f"any of {', '.join(spec.devices)}", eta_s=eta_s)
    return _new_cell(spec, environments[spec.target], past, eta_s)


def reuse_limit(reuse: str, now: datetime) -> datetime | None:
    """Return the moment before which results are too old; None: reuse none. Raises `UsageError`."""
    if reuse == NEVER:
        return None
    if reuse == SAME_FINGERPRINT:
        return datetime.min.replace(tzinfo=UTC)
    if reuse.startswith(_MAX_AGE):
        return now - timedelta(seconds=float(reuse.removeprefix(_MAX_AGE)))
    raise UsageError(f"unknown reuse rule {reuse!r}; known: {SAME_FINGERPRINT}, {NEVER}, max-age:SECONDS")


def reusable(known: KnownResult, limit: datetime) -> bool:
    """Whether a result with the right fingerprint may replace a new measurement."""
    settled = known.status in ("done", "unsupported") or known.reason_code in REUSABLE_FAILURES
    settled = settled and known.reason_code not in CURABLE
    return settled and known.received_at >= limit


def expected_s(plan: MeasurePlan, last: KnownResult | None) -> float:
    """How long a cell will take, in seconds: as long as last time, else what its plan asks for."""
    if last is not None and last.status == "done":
        return last.duration_s
    steady_s = min(plan.max_seconds, max(plan.min_seconds, 0.1))
    timed_s = plan.processes * (steady_s + plan.warmup_seconds + _PROCESS_OVERHEAD_S)
    return timed_s + _PROCESS_OVERHEAD_S + _CELL_OVERHEAD_S


def _new_cell(spec: CellSpec, environment: Mapping[str, str], past: PastResults, eta_s: float) -> PlannedCell:
    names = (spec.model, spec.delegate, spec.target)
    last = past.by_series.get(spec.ingredients.series) or past.by_names.get(names)
    if last is None:
        return PlannedCell(spec, "run", "not measured yet", eta_s=eta_s)
    changed = changed_fields(last.ingredients, last.environment, spec.ingredients, environment)
    return PlannedCell(spec, "run", ", ".join(map(str, changed)), changed, eta_s)


def _why_again(known: KnownResult, limit: datetime | None) -> str:
    if limit is None:
        return "measured before; reuse is off"
    if known.received_at < limit:
        return f"the last result is of {known.received_at:%Y-%m-%d %H:%M} UTC, older than allowed"
    return f"last time it ended {known.status}: {known.reason_code}"
