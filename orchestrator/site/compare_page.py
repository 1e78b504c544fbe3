"""Builds the pages that set campaigns against each other: what changed, and by how much."""

import math
from types import SimpleNamespace as View
from typing import Any

from orchestrator.results import format as text
from orchestrator.results.records import CampaignRecord, ComparedCell
from orchestrator.results.regression import Change, Verdict, by_names, compare_runs
from orchestrator.results.speedups import counted_times
from orchestrator.site.archive import Archive
from orchestrator.site.axes import Scale, log_scale, percent
from orchestrator.site.cell_view import column_name
from orchestrator.site.shards import CELLS

_WIDTH = 1000
"""Units across the forest plot."""

# templates/compare.js has this number and the next one, too.
_LEAST = 1.1
"""The least factor across it, so that differences of a per cent look small."""

_MOST_ROWS = 500
"""Cells on the page, the gravest: `farm compare` prints all of them."""

_ORDER: tuple[Verdict, ...] = (
    "slower", "broken", "faster", "repaired", "void", "open", "same", "added", "removed", "missing",
)  # fmt: skip
_SIGNS: dict[Verdict, str] = {
    "slower": "▼", "broken": "✗", "faster": "▲", "repaired": "✓", "void": "!", "open": "·", "same": "=",
    "added": "+", "removed": "-", "missing": "-",
}  # fmt: skip
_TONES: dict[Verdict, str] = {"slower": "slower", "broken": "bad", "faster": "faster", "repaired": "faster"}


def compare_page(archive: Archive, before: CampaignRecord, after: CampaignRecord) -> dict[str, Any]:
    """Gather the comparison of two campaigns: every cell of either, what changed for the worse first."""
    first, second = (by_names(archive.cells(one.campaign_id)) for one in (before, after))
    report = compare_runs(first, second)
    changes = sorted(report.changes, key=lambda change: (_ORDER.index(change.verdict), change.key))
    ends = [
        end
        for change in changes
        if change.estimate is not None
        # 1.0: the line of no difference is always on the axis.
        for end in (change.estimate.ratio, *(change.estimate.ci95 or ()), 1.0)
        if end > 0.0
    ]
    scale = log_scale(ends, 0, _WIDTH, _LEAST) if ends else None
    mean = report.mean
    return {
        "before": before,
        "after": after,
        "counts": [(verdict, report.counts[verdict]) for verdict in _ORDER if report.counts.get(verdict)],
        "mean": None
        if mean is None
        else f"{text.ratio(mean.ratio)} over {text.counted(report.mean_count, 'cell')}"
        + ("" if report.mean_paired else ", unpaired"),
        "differences": report.differences,
        "range": None if scale is None else (text.ratio(scale.low), text.ratio(scale.high)),
        "one": None if scale is None else percent(scale(1.0), _WIDTH),
        "rows": [_row(archive, change, scale) for change in changes[:_MOST_ROWS]],
        "more": max(0, len(changes) - _MOST_ROWS),
    }


def any_comparison_page(archive: Archive) -> list[View]:
    """Gather the page that compares any two campaigns: all of them, newest first, each with the one before
    it and the number of shards that have its cells.
    """
    return [
        View(
            record=one,
            before=archive.before(one),
            shards=math.ceil(sum(group.count for group in archive.groups[one.campaign_id].values()) / CELLS),
        )
        for one in archive.campaigns
    ]


def _row(archive: Archive, change: Change, scale: Scale | None) -> View:
    found = change.estimate
    shown = change.second or change.first
    # A change has a cell on one side at least.
    assert shown is not None
    low, high = (None, None) if found is None or found.ci95 is None else found.ci95
    drawn = scale is not None and found is not None

    def at(value: float | None) -> str | None:
        return percent(scale(value), _WIDTH) if scale is not None and value else None

    return View(
        model=text.short_name(shown.model),
        column=column_name(shown.delegate, shown.device),
        delegate=shown.delegate,
        device=shown.device,
        level=shown.level,
        before=_side(archive, change.first),
        after=_side(archive, change.second),
        verdict=change.verdict,
        sign=_SIGNS[change.verdict],
        tone=_TONES.get(change.verdict, "similar"),
        why=change.why,
        change="" if found is None else text.change(-math.log(found.ratio)),
        ratio="" if found is None else text.ratio(found.ratio),
        interval="" if low is None or high is None else text.ratio_interval((low, high)),
        centre=at(found.ratio) if drawn and found is not None else None,
        low=at(low),
        high=at(high),
    )


def _side(archive: Archive, cell: ComparedCell | None) -> View:
    if cell is None:
        return View(href="", text="not in it")
    times = counted_times(cell)
    wrong = "wrong output" if cell.struck_out else cell.status
    said = wrong if times is None or times.p50 is None else f"{text.milliseconds(times.p50)} ms"
    return View(href=archive.address(cell), text=said)
