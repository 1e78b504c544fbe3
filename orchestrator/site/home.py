"""Builds the home page: of every model the newest results over all campaigns, one line each."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace as View
from typing import Any

from orchestrator.results import format as text
from orchestrator.results.records import CampaignRecord, ComparedCell
from orchestrator.results.speedups import counted_times, speedup
from orchestrator.results.wording import first_line
from orchestrator.site import links
from orchestrator.site.archive import Archive
from orchestrator.site.axes import Scale, log_scale, px
from orchestrator.site.cell_view import brief_view, delegate_name, without_record
from orchestrator.site.choices import NEWEST, choices_of, figures, scripts_of
from orchestrator.site.failures_page import Cause
from orchestrator.site.matrix import BAR_MARGIN, BAR_WIDTH
from orchestrator.site.series import Point, Series, p50_of

_SPARK_DAYS = 30
"""Days before the newest result that a spark line covers."""

_SPARK = timedelta(days=_SPARK_DAYS)

_SPARK_WIDTH, _SPARK_HEIGHT = 90, 20
"""Its size in px: a day is three of them, and a line of text is as high."""

_SPARK_LEAST = 1.1
"""The least factor over its height, so that noise of a few per cent looks small."""

_FIRST_ROWS = 100
"""Lines that are shown at first where a script can show the others: `benchmarks/home_scale.py` times it."""

_MOST_NAMED = 5
"""Causes, changes and budgets that the page names, the gravest; their own pages have all of them."""


def index_page(
    archive: Archive,
    campaigns: Sequence[tuple[CampaignRecord, View]],
    models: Sequence[View],
    shifts: Sequence[View],
    causes: Sequence[Cause],
    newest: datetime | None,
) -> dict[str, Any]:
    """Gather the home page of the summaries of campaigns, newest first, and of models. `shifts`: newest
    first; `newest`: when the newest result arrived.
    """
    rows = [_at(row, newest) for model in models for row in model.rows]
    scripts = scripts_of(rows)
    return {
        "newest_at": newest,
        "rows": rows,
        "first_rows": _FIRST_ROWS,
        "scripts": scripts,
        "choices": {
            "figures": figures(),
            "baselines": sorted({name for row in rows for name in row.delegates}),
            "versions": [(version, links.choice_name(version)) for version in scripts if version != NEWEST],
        },
        "results": sum(model.results for model in models),
        "columns": sum(model.series for model in models),
        "spark_days": _SPARK_DAYS,
        "causes": causes[:_MOST_NAMED],
        "more_causes": max(0, len(causes) - _MOST_NAMED),
        "open": sum(row.open for row in rows),
        "waiting": sum(summary.waiting for _, summary in campaigns),
        "slower": [shift for shift in shifts if shift.is_slower and shift.state != "accepted"][:_MOST_NAMED],
        "budgets": _budgets([one for _, summary in campaigns for one in summary.budgets]),
        "campaigns": [
            View(
                record=one,
                counts=summary.counts,
                compared=links.comparison_page(one.campaign_id) if archive.before(one) else "",
            )
            for one, summary in campaigns
        ],
        "devices": sorted({(own.device, own.name) for _, summary in campaigns for own in summary.devices}),
    }


def model_rows(archive: Archive, own: Sequence[Series]) -> list[View]:
    """Return the lines of a model, one for each level, but for what the newest result of all decides."""
    return [
        _row(archive, level, [one for one in own if one.key[1] == level])
        for level in dict.fromkeys(one.key[1] for one in own)
    ]


def _row(archive: Archive, level: str, own: Sequence[Series]) -> View:
    """Return the line of a model at a level: the fastest of its newest results, the others as dots."""
    counted = [one for one in own if one.has_result]
    best = min(counted, key=lambda one: p50_of(one.newest), default=None)
    shown = own[0].newest if best is None else best.newest
    base = archive.baseline(shown)
    verdicts = [speedup(one.newest, archive.baseline(one.newest)) for one in counted]
    return View(
        model=shown.model,
        level=level,
        href=links.history_page(shown.model),
        size=text.byte_count(shown.model_bytes),
        best=without_record(brief_view(shown, base, archive.address(shown))),
        reason="" if best is not None or shown.reason is None else first_line(shown.reason.text, 100),
        strip=_strip([one.newest for one in counted], shown),
        columns=len(own),
        missing=len(own) - len(counted),
        wrong=sum(one.last.struck_out for one in own),
        open=sum(found is not None and found.verdict == "open" for found in verdicts),
        at=shown.finished_at,
        recent=[] if best is None else _recent(best.points),
        choices=choices_of(archive, own),
        delegates=sorted({delegate_name(one.newest.delegate) for one in counted}),
    )


def _recent(points: Sequence[Point]) -> list[tuple[datetime, float]]:
    """Return the medians of the days that a spark line can cover, whatever the newest result is."""
    first = max((point.at for point in points), default=datetime.max.replace(tzinfo=UTC)) - _SPARK
    return [(point.at, p50_of(point.cell)) for point in points if point.at >= first]


def _at(row: View, newest: datetime | None) -> View:
    """Return a line with its age and its spark line, as of the newest result."""
    # Not in the summary: each new result anywhere would make the summaries of all models stale.
    at = None if row.at is None else datetime.fromisoformat(row.at)
    recent = [(datetime.fromisoformat(moment), p50) for moment, p50 in row.recent]
    return View(
        **vars(row) | {
            "at": at,
            "age": "" if at is None or newest is None else _age(newest - at),
            "spark": None if newest is None else _spark(recent, newest),
        }
    )  # fmt: skip


def _age(passed: timedelta) -> str:
    """Write how much older than the newest result of the site: `3 d`; empty within a day."""
    return f"{passed.days} d" if passed.days else ""


def _strip(cells: Sequence[ComparedCell], best: ComparedCell) -> View | None:
    """Place every result of a model on one logarithmic scale, the best with its interval."""
    times = counted_times(best)
    if not cells or times is None or not times.p50:
        return None
    values = [p50_of(cell) for cell in cells] + list(times.ci95 or ())
    scale = log_scale(values, BAR_MARGIN, BAR_WIDTH - BAR_MARGIN)
    low, high = times.ci95 or (None, None)
    # Whole px: the dot is five wide, and the page has thousands of these.
    return View(
        p50=round(scale(times.p50)),
        low=round(scale(low)) if low else None,
        high=round(scale(high)) if high else None,
        others="".join(sorted({f"M{round(scale(p50_of(cell)))} 6h0" for cell in cells if cell is not best})),
        baseline=None,
    )


def _spark(points: Sequence[tuple[datetime, float]], newest: datetime) -> View | None:
    """Draw the medians of the last days; None where there are fewer than two."""
    first = newest - _SPARK
    recent = [(at, p50) for at, p50 in points if at >= first]
    if len(recent) < 2:
        return None
    across = Scale(first.timestamp(), newest.timestamp(), 2, _SPARK_WIDTH - 3)
    up = log_scale([p50 for _, p50 in recent], _SPARK_HEIGHT - 3, 3, _SPARK_LEAST)
    places = [f"{px(across(at.timestamp()))} {px(up(p50))}" for at, p50 in recent]
    change = math.log(recent[-1][1] / recent[0][1])
    return View(
        width=_SPARK_WIDTH,
        height=_SPARK_HEIGHT,
        path="M" + "L".join(places),
        end=places[-1].split(),
        said=f"{text.counted(len(recent), 'result')} in {_SPARK_DAYS} days, {text.change(change)} in all",
    )


def _budgets(judged: Sequence[View]) -> View:
    """Count the budgets that are met, and name those that are not."""
    missed = [one for one in judged if one.outcome != "met"]
    return View(
        met=len(judged) - len(missed), missed=missed[:_MOST_NAMED], more=max(0, len(missed) - _MOST_NAMED)
    )
