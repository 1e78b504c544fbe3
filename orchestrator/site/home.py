"""Builds the home page: of every model the newest results over all campaigns, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace as View
from typing import Any

from orchestrator.policy.lifecycle import OPEN
from orchestrator.results import format as text
from orchestrator.results.budgets import Judged
from orchestrator.results.records import ComparedCell
from orchestrator.results.speedups import counted_times, speedup
from orchestrator.results.wording import first_line
from orchestrator.site import links
from orchestrator.site.archive import Archive, utc
from orchestrator.site.axes import Scale, log_scale, px
from orchestrator.site.campaign_page import cell_counts
from orchestrator.site.cell_view import brief_view
from orchestrator.site.failures_page import Cause
from orchestrator.site.matrix import BAR_MARGIN, BAR_WIDTH
from orchestrator.site.series import Point, Series, Shift, log_time

_SPARK_DAYS = 30
"""Days before the newest result that a spark line covers."""

_SPARK_WIDTH, _SPARK_HEIGHT = 90, 20
"""Its size in px: a day is three of them, and a line of text is as high."""

_SPARK_LEAST = 1.1
"""The least factor over its height, so that noise of a few per cent looks small."""

_MOST_NAMED = 5
"""Causes, changes and budgets that the page names, the gravest; their own pages have all of them."""


def index_page(
    archive: Archive,
    history: Mapping[str, Sequence[Series]],
    shifts: Sequence[Shift],
    causes: Sequence[Cause],
    judged: Sequence[Judged],
) -> dict[str, Any]:
    """Gather the home page. `shifts`: newest first; `judged`: of the newest campaign of each name."""
    newest = archive.newest_at
    rows = [
        _row(model, level, [one for one in many if one.key[1] == level], archive, newest)
        for model, many in history.items()
        for level in dict.fromkeys(one.key[1] for one in many)
    ]
    return {
        "rows": rows,
        "results": sum(one.has_result for many in history.values() for one in many),
        "columns": sum(map(len, history.values())),
        "spark_days": _SPARK_DAYS,
        "causes": causes[:_MOST_NAMED],
        "more_causes": max(0, len(causes) - _MOST_NAMED),
        "open": sum(row.open for row in rows),
        "waiting": sum((cell.again or cell.status) in OPEN for cell in archive.by_id.values()),
        "slower": [shift for shift in shifts if shift.is_slower and shift.state != "accepted"][:_MOST_NAMED],
        "budgets": _budgets(archive, judged),
        "campaigns": [
            View(
                record=one,
                counts=cell_counts(archive.cells[one.campaign_id])[0],
                compared=links.comparison_page(one.campaign_id) if archive.before(one) else "",
            )
            for one in archive.campaigns
        ],
        "devices": sorted(
            {(c.device, c.device_name) for c in archive.by_id.values() if c.environment}, key=lambda d: d[0]
        ),
    }


def _row(
    model: str,
    level: str,
    own: Sequence[Series],
    archive: Archive,
    newest: datetime | None,
) -> View:
    """Return the line of a model at a level: the fastest of its newest results, the others as dots."""
    counted = [one for one in own if one.has_result]
    best = min(counted, key=lambda one: _p50(one.newest), default=None)
    shown = own[0].newest if best is None else best.newest
    base = archive.baseline(shown)
    verdicts = [speedup(one.newest, archive.baseline(one.newest)) for one in counted]
    at = utc(shown.finished_at)
    return View(
        model=model,
        level=level,
        href=links.history_page(model),
        size=text.byte_count(shown.model_bytes),
        best=brief_view(shown, base, archive.address(shown.cell_id)),
        reason=_reason(shown) if best is None else "",
        strip=_strip([one.newest for one in counted], shown),
        columns=len(own),
        missing=len(own) - len(counted),
        wrong=sum(one.last.struck_out for one in own),
        open=sum(found is not None and found.verdict == "open" for found in verdicts),
        age="" if at is None or newest is None else _age(newest - at),
        at=at,
        spark=None if best is None or newest is None else _spark(best.points, newest),
    )


def _reason(cell: ComparedCell) -> str:
    return "" if cell.reason is None else first_line(cell.reason.text, 100)


def _p50(cell: ComparedCell) -> float:
    times = counted_times(cell)
    return 0.0 if times is None or times.p50 is None else times.p50


def _age(passed: timedelta) -> str:
    """Write how much older than the newest result of the site: `3 d`; empty within a day."""
    return f"{passed.days} d" if passed.days else ""


def _strip(cells: Sequence[ComparedCell], best: ComparedCell) -> View | None:
    """Place every result of a model on one logarithmic scale, the best with its interval."""
    times = counted_times(best)
    if not cells or times is None or not times.p50:
        return None
    values = [_p50(cell) for cell in cells] + list(times.ci95 or ())
    scale = log_scale(values, BAR_MARGIN, BAR_WIDTH - BAR_MARGIN)
    low, high = times.ci95 or (None, None)
    return View(
        p50=px(scale(times.p50)),
        low=px(scale(low)) if low else None,
        high=px(scale(high)) if high else None,
        others="".join(sorted({f"M{px(scale(_p50(cell)))} 6h0" for cell in cells if cell is not best})),
        baseline=None,
    )


def _spark(points: Sequence[Point], newest: datetime) -> View | None:
    """Draw the medians of the last days; None where there are fewer than two."""
    first = newest - timedelta(days=_SPARK_DAYS)
    recent = [point for point in points if point.at >= first]
    if len(recent) < 2:
        return None
    across = Scale(first.timestamp(), newest.timestamp(), 2, _SPARK_WIDTH - 3)
    times = [_p50(point.cell) for point in recent]
    up = log_scale(times, _SPARK_HEIGHT - 3, 3, _SPARK_LEAST)
    places = [
        f"{px(across(point.at.timestamp()))} {px(up(value))}"
        for point, value in zip(recent, times, strict=True)
    ]
    change = log_time(recent[-1]) - log_time(recent[0])
    return View(
        width=_SPARK_WIDTH,
        height=_SPARK_HEIGHT,
        path="M" + "L".join(places),
        end=places[-1].split(),
        said=f"{text.counted(len(recent), 'result')} in {_SPARK_DAYS} days, {text.change(change)} in all",
    )


def _budgets(archive: Archive, judged: Sequence[Judged]) -> View:
    """Count the budgets that are met, and name those that are not."""
    missed = [one for one in judged if one.outcome != "met"]
    return View(
        met=len(judged) - len(missed),
        missed=[
            View(
                href=archive.address(one.cell.cell_id),
                cell=f"{text.short_name(one.cell.model)} on {one.cell.delegate}",
                budget=one.budget.text,
                outcome=one.outcome.replace("_", " "),
                said=first_line(one.said, 140),
            )
            for one in missed[:_MOST_NAMED]
        ],
        more=max(0, len(missed) - _MOST_NAMED),
    )
