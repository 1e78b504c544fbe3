"""Joins the cells of all campaigns into series: of a model, delegate with options, device and level."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from orchestrator.policy.lifecycle import OPEN
from orchestrator.results import format as text
from orchestrator.results.change_points import LONGEST, Change, changes_of
from orchestrator.results.records import CampaignRecord, ComparedCell, void_reason
from orchestrator.results.speedups import counted_times, counts, stored_ratio
from orchestrator.site.archive import Archive
from orchestrator.site.notes import Notes
from runtime.common.verdict import DIFFERENT, GOOD

VERSION_LABELS: Final = ("release", "version", "commit")
"""The labels of a campaign that name the version which it measured; the first that it has is shown."""

_VERSION_OPTION: Final = "version"
"""The option of delegates that names the release or commit which runs: the axis of a series, no part of its
key."""

Key: TypeAlias = tuple[str, str, str, str, str]
"""Model, level, delegate, its kind with the other options, device."""


@dataclass(frozen=True, slots=True)
class Point:
    """A result of a series, with the campaign that measured it."""

    cell: ComparedCell
    campaign: CampaignRecord
    at: datetime

    @property
    def named_version(self) -> str:
        """The version that was measured, by the campaign's label, else the delegate's option, else empty."""
        labels = self.campaign.labels
        labelled = next((labels[name] for name in VERSION_LABELS if labels.get(name)), "")
        return labelled or str(self.cell.delegate_options.get(_VERSION_OPTION, ""))

    @property
    def version(self) -> str:
        """The same; the day where nothing names one."""
        return self.named_version or f"{self.at:%Y-%m-%d}"


@dataclass(slots=True)
class Series:
    """`points`: its results that may be compared, oldest first, each once. `newest`: the cell that shows the
    newest counted result, else the newest cell. `last`: the newest cell of all, `newest` itself if nothing
    went wrong since.
    """

    key: Key
    newest: ComparedCell
    last: ComparedCell
    points: list[Point] = field(default_factory=list)

    @property
    def has_result(self) -> bool:
        """Whether `newest` has a figure that may be compared."""
        return _may_be_compared(self.newest)


def series_of(archive: Archive, model: str) -> list[Series]:
    """Return the series of a model, in the order in which the newest campaigns name them."""
    found: dict[Key, Series] = {}
    options: dict[int, str] = {}
    for campaign in archive.campaigns:
        for cell in archive.of_model(campaign.campaign_id, model):
            # Cells with the same options share them; written for each, they would take half of this.
            # By identity, which is safe: the archive keeps every cell that it has read.
            given = options.get(id(cell.delegate_options))
            if given is None:
                own = {k: v for k, v in cell.delegate_options.items() if k != _VERSION_OPTION}
                given = json.dumps(own, sort_keys=True)
                options[id(cell.delegate_options)] = given
            key = cell.model, cell.level, cell.delegate, f"{cell.delegate_kind} {given}", cell.device
            one = found.setdefault(key, Series(key, cell, cell))
            if one.last.status in OPEN and cell.status not in OPEN:
                one.last = cell
            # Campaigns come newest first: the first counted result stays; an open cell is only its stand-in.
            if not one.has_result and (counts(cell) or one.newest.status in OPEN):
                one.newest = cell
            at = cell.finished_at
            if at is not None and archive.origin(cell) is None and _may_be_compared(cell):
                one.points.append(Point(cell, campaign, at))
    for one in found.values():
        one.points.sort(key=lambda point: (point.at, point.cell.cell_id))
    return list(found.values())


def _may_be_compared(cell: ComparedCell) -> bool:
    return p50_of(cell) > 0.0 and void_reason(cell) is None


def p50_of(cell: ComparedCell) -> float:
    """Return the median in ms of a cell that counts; 0 for every other one."""
    times = counted_times(cell)
    return 0.0 if times is None or times.p50 is None else times.p50


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of a series that is large enough to be told: its first point, and those that it is over.

    `state`: suspected while a single result shows it, confirmed by further ones, accepted by a `note`. `step`
    and `since_best` are factors of time: above 1 is slower.
    """

    series: Series
    first: Point
    before: Point
    best: Point
    step: float
    since_best: float
    state: str
    over: str
    note: str = ""

    @property
    def is_slower(self) -> bool:
        """Whether it is slower than before, or than its best."""
        return self.step > 1.0 or self.since_best > 1.0 + GOOD

    @property
    def said(self) -> str:
        """Write `+2.1 % at a1b2c3, +6.3 % since 9f8e7d`."""
        step = f"{text.change(math.log(self.step))} at {self.first.version}"
        if abs(math.log(self.since_best / self.step)) < DIFFERENT / 2:
            return step
        return f"{step}, {text.change(math.log(self.since_best))} since {self.best.version}"


def shifts_of(series: Series, notes: Notes) -> list[Shift]:
    """Return the changes of a series, oldest first: of its paired ratios where the newest result has one.

    A change of conditions begins another series. Of medians of several sessions, which differ by some per
    cent without any cause, smaller changes are left out.
    """
    found: list[Shift] = []
    for points in conditions_runs(series.points):
        paired = _paired(points)
        chosen, logs = paired if paired is not None else (points, [math.log(p50_of(p.cell)) for p in points])
        over = "paired ratio" if paired is not None else "p50"
        least = DIFFERENT if paired is not None else GOOD
        found += [
            _shift(series, chosen, change, over, notes)
            for change in changes_of(
                logs, {i for i, p in enumerate(chosen) if _note(series, p, notes) is not None}
            )
            if max(abs(change.step), change.since_best) >= math.log1p(least)
        ]
    return found


def conditions_runs(points: Sequence[Point]) -> list[list[Point]]:
    """Cut a series where the machine or its settings changed."""
    runs: list[list[Point]] = []
    for point in points[-LONGEST:]:
        if not runs or runs[-1][-1].cell.conditions != point.cell.conditions:
            runs.append([])
        runs[-1].append(point)
    return runs


def _paired(points: Sequence[Point]) -> tuple[list[Point], list[float]] | None:
    """Return the points with a ratio over the newest one's baseline, and the logarithms of time over it."""
    last = stored_ratio(points[-1].cell)
    if last is None:
        return None
    chosen, logs = [], []
    for point in points:
        ratio = stored_ratio(point.cell)
        if ratio is not None and ratio.baseline_id == last.baseline_id:
            chosen.append(point)
            logs.append(-math.log(ratio.median))
    return chosen, logs


def _note(series: Series, first: Point, notes: Notes) -> str | None:
    return notes.on(series.key[0], series.key[2], first.version)


def _shift(series: Series, points: Sequence[Point], change: Change, over: str, notes: Notes) -> Shift:
    note = _note(series, points[change.index], notes)
    measured = "confirmed" if change.after > 1 else "suspected"
    return Shift(
        series=series,
        first=points[change.index],
        before=points[change.index - 1],
        best=points[change.best],
        step=math.exp(change.step),
        since_best=math.exp(change.since_best),
        state=measured if note is None else "accepted",
        over=over,
        note=note or "",
    )
