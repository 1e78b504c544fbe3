"""Plans a submission cell by cell: run it, reuse a result, or state why neither. Pure."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Final, Literal, TypeAlias

from agent.wire.measurement import Refinement
from agent.wire.messages import ReasonCode
from agent.wire.plan import MeasurePlan
from orchestrator.errors import UsageError
from orchestrator.policy.fingerprint import (
    ChangedField,
    Environments,
    Ingredients,
    changed_fields,
    fingerprint,
)
from orchestrator.policy.lifecycle import CURABLE
from orchestrator.policy.matrix import CellSpec

Action: TypeAlias = Literal["run", "reuse", "no_device", "no_model", "excluded"]

_HINDERED: Final[Mapping[ReasonCode, Action]] = {
    ReasonCode.EXCLUDED: "excluded",
    ReasonCode.NO_DEVICE: "no_device",
    ReasonCode.ARTIFACT: "no_model",
}

SAME_FINGERPRINT = "same-fingerprint"
NEVER = "never"
_MAX_AGE = "max-age:"
REUSABLE_FAILURES = frozenset({ReasonCode.WRONG_OUTPUT})
"""Failures that measuring again would only repeat; any other failed cell runs again."""

_PROCESS_OVERHEAD_S: Final = 1.0
"""Seconds that a measuring process takes beside measuring: half of it to start Python, as much to open the
model. A guess, used only for cells that were never measured; a campaign's own pace corrects the time left
(`read.campaign_progress`).
"""

_UNTIMED_SHARE: Final = 0.1
"""Runs in front of a slice that are not timed, as a share of those that are. A guess, as above."""

_CELL_OVERHEAD_S: Final = 3.0
"""Seconds that a cell takes beside its measuring processes: starting the runner, judging, the result's way
back. A guess, as above.
"""


_SIMILAR_CELLS: Final = 5
"""Cells whose durations estimate that of a new one: an odd number, so that the median is one of them. Chosen:
with fewer one slow model decides, with more the sizes differ too much.
"""


@dataclass(frozen=True, slots=True)
class KnownResult:
    """A counted result of an earlier cell. `duration_s`: how long its attempt took. `unfinished`: where it
    ended early, what another attempt goes on from.
    """

    attempt_id: str
    cell_id: str
    status: str
    reason_code: ReasonCode
    received_at: datetime
    duration_s: float
    ingredients: Ingredients
    environment: Mapping[str, str]
    grade: str | None = None
    unfinished: Refinement | None = None


@dataclass(frozen=True, slots=True)
class Duration:
    """A past cell's plan, size of model and duration, from which the durations of others are estimated."""

    plan: MeasurePlan
    model_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PastResults:
    """The newest counted result by fingerprint, by series, and by (model id, delegate name, device).

    `durations`: those of recent cells, by delegate kind.
    """

    by_fingerprint: Mapping[str, KnownResult]
    by_series: Mapping[str, KnownResult]
    by_names: Mapping[tuple[str, str, str], KnownResult]
    durations: Mapping[str, Sequence[Duration]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellPreview:
    """The part of a planned cell that is shown to people; see `PlannedCell`.

    `device`: its id, the text of a device class, or "-". `reused_from`: the cell whose result is reused.
    """

    model: str
    delegate: str
    device: str
    level: str
    action: Action
    why: str
    changed: tuple[ChangedField, ...]
    eta_s: float
    reused_from: str | None


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell of a submission. `why` is for people; `changed` names what differs from the newest
    result of the same names; `eta_s` is 0 for a cell that does not run. `standing`: a result with the same
    fingerprint, which the cell shows until it is measured again. `continues`: that result, where it ended
    early and this cell goes on from it.
    """

    spec: CellSpec
    action: Action
    why: str
    changed: tuple[ChangedField, ...] = ()
    eta_s: float = 0.0
    reused: KnownResult | None = None
    standing: KnownResult | None = None
    continues: Refinement | None = None

    @property
    def preview(self) -> CellPreview:
        """The cell without what only the farm needs."""
        return CellPreview(
            self.spec.model, self.spec.delegate, self.spec.target, self.spec.level, self.action, self.why,
            self.changed, self.eta_s, None if self.reused is None else self.reused.cell_id,
        )  # fmt: skip


def plan_cells(
    specs: Sequence[CellSpec], environments: Environments, past: PastResults, reuse: str, now: datetime
) -> tuple[PlannedCell, ...]:
    """Decide every cell.

    `reuse`: `same-fingerprint`, `never` or `max-age:SECONDS`; anything else raises `UsageError`. A cell with
    a rule of its own goes by that.
    """
    words = {reuse} | {spec.reuse for spec in specs if spec.reuse is not None}
    rules = {word: reuse_rule(word, now) for word in words}
    planned = []
    used: dict[str, set[str]] = defaultdict(set)
    seen: dict[str, Sequence[_Seen]] = {}
    for spec in specs:
        if spec.obstacle is not None:
            planned.append(PlannedCell(spec, _HINDERED[spec.obstacle.code], spec.obstacle.text))
            continue
        group = spec.siblings or spec.key
        if group not in seen:
            seen[group] = [_seen(spec, name, environments, past) for name in spec.devices]
        taken = used[group]
        free = [device for device in seen[group] if device.device_id not in taken]
        cell = _planned(spec, free, environments, past, rules[spec.reuse or reuse])
        # The cells of a class want different units: the result of one serves a single cell.
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


def _seen(spec: CellSpec, device_id: str, environments: Environments, past: PastResults) -> _Seen:
    series = spec.on(device_id).series
    expected = environments.id_of(device_id, spec.delegate_kind, spec.delegate_options)
    same = past.by_fingerprint.get(fingerprint(series, expected))
    return _Seen(device_id, same, past.by_series.get(series))


def _planned(
    spec: CellSpec,
    free: Sequence[_Seen],
    environments: Environments,
    past: PastResults,
    since: datetime | None,
) -> PlannedCell:
    """Decide a cell that may run on any of the free devices: the first reusable result is taken."""
    known = [device.same for device in free if device.same is not None]
    for result in known:
        if since is not None and reusable(result, since):
            why = f"measured {result.received_at:%Y-%m-%d %H:%M} UTC in cell {result.cell_id}"
            return PlannedCell(spec, "reuse", why, reused=result)
    last = next((device.ever for device in free if device.ever is not None), None)
    eta_s = expected_s(spec.plan, last, spec.model_bytes, past.durations.get(spec.delegate_kind, ()))
    if known:
        # Of a class, the unit that this result is of may be a sibling's by the time it is measured.
        stands = known[0] if known[0].status == "done" and spec.siblings is None else None
        recent = stands is not None and since is not None and stands.received_at >= since
        continues = stands.unfinished if stands is not None and recent else None
        why = _why_again(known[0], since)
        return PlannedCell(spec, "run", why, eta_s=eta_s, standing=stands, continues=continues)
    if spec.siblings is not None:
        return PlannedCell(spec, "run", f"any of {', '.join(spec.devices)}", eta_s=eta_s)
    expected = environments.of(spec.target, spec.delegate_kind, spec.delegate_options)
    return _new_cell(spec, expected, past, eta_s)


def reuse_rule(reuse: str, now: datetime) -> datetime | None:
    """Return since when results may be reused; None: nothing may. Raises `UsageError`."""
    if reuse == NEVER:
        return None
    if reuse == SAME_FINGERPRINT:
        # Results of any age: there is none before this.
        return datetime.min.replace(tzinfo=UTC)
    if reuse.startswith(_MAX_AGE):
        return now - timedelta(seconds=float(reuse.removeprefix(_MAX_AGE)))
    raise UsageError(f"unknown reuse rule {reuse!r}; known: {SAME_FINGERPRINT}, {NEVER}, max-age:SECONDS")


def reusable(known: KnownResult, since: datetime) -> bool:
    """Return whether a result with the right fingerprint may be reused: none that is void or ended early."""
    settled = known.status in ("done", "unsupported") or known.reason_code in REUSABLE_FAILURES
    settled = settled and known.reason_code not in CURABLE
    whole = known.grade != "void" and known.unfinished is None
    return settled and whole and known.received_at >= since


def expected_s(
    plan: MeasurePlan, last: KnownResult | None, model_bytes: int = 0, history: Sequence[Duration] = ()
) -> float:
    """Estimate the duration of a cell, in seconds.

    As long as last time; else what its plan asks for, times the factor by which cells of the same delegate
    with models of about this size took longer than theirs: the median over the nearest sizes.
    """
    # Any other end came before all that was to be measured.
    if last is not None and last.status == "done":
        return last.duration_s
    planned_s = _planned_s(plan)
    if not history:
        return planned_s
    # Logarithms: twice the size is as near as half of it. An unknown size is 0.
    size = math.log(max(1, model_bytes))
    near = sorted(history, key=lambda one: abs(math.log(max(1, one.model_bytes)) - size))[:_SIMILAR_CELLS]
    return planned_s * median(one.seconds / _planned_s(one.plan) for one in near)


def _planned_s(plan: MeasurePlan) -> float:
    """Seconds that a plan asks for, of a model that starts at once and fills its slices with fast runs.

    A cell ends between its least blocks and its most: the geometric mean, as many end early and few late.
    """
    blocks = round(math.sqrt(plan.min_blocks * plan.max_blocks))
    timed_s = plan.rounds * plan.slice_seconds * (1 + _UNTIMED_SHARE)
    blocks_s = blocks * (_PROCESS_OVERHEAD_S + plan.warmup_seconds + timed_s)
    later_s = sum(seconds + _PROCESS_OVERHEAD_S for seconds in plan.passes_s)
    return blocks_s + plan.tunings * _PROCESS_OVERHEAD_S + _CELL_OVERHEAD_S + later_s


def _new_cell(spec: CellSpec, environment: Mapping[str, str], past: PastResults, eta_s: float) -> PlannedCell:
    names = (spec.model, spec.delegate, spec.target)
    last = past.by_series.get(spec.ingredients.series) or past.by_names.get(names)
    if last is None:
        return PlannedCell(spec, "run", "not measured yet", eta_s=eta_s)
    changed = changed_fields(last.ingredients, last.environment, spec.ingredients, environment)
    return PlannedCell(spec, "run", ", ".join(map(str, changed)), changed, eta_s)


def _why_again(known: KnownResult, since: datetime | None) -> str:
    if since is None:
        return "measured before; reuse is off"
    if known.grade == "void":
        return "the last result is void"
    if known.received_at < since:
        return f"the last result is of {known.received_at:%Y-%m-%d %H:%M} UTC, older than allowed"
    if known.unfinished is not None:
        return f"goes on from {len(known.unfinished.blocks)} blocks: the last attempt was ended early"
    return f"last time it ended {known.status}: {known.reason_code}"
