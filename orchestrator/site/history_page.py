"""Builds a model's page over all campaigns, with a drawing of each series, and the page of all changes."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace as View
from typing import Any

from orchestrator.results import format as text
from orchestrator.results.speedups import counted_times
from orchestrator.site import links
from orchestrator.site.archive import Archive
from orchestrator.site.axes import log_scale, percent, px
from orchestrator.site.cell_view import brief_view, column_name
from orchestrator.site.figures import differences
from orchestrator.site.series import Point, Series, Shift, conditions_runs, p50_of

_HEIGHT = 120
"""Height of a series' drawing in px: a step of 2 % of a series that varies by 10 % is some pixels high."""

_LEAST = 1.05
"""The least factor over that height, so that what sessions differ by does not fill it."""

_LABELS = 7
"""Versions named below a drawing: more would run into each other on a small screen."""

_WIDTH = 1000
"""Units across a drawing, which is stretched to the page."""


def history_page(
    archive: Archive, model: str, own: Sequence[Series], shifts: Sequence[Shift]
) -> dict[str, Any]:
    """Gather the page of a model over all campaigns; `shifts`: those of its series."""
    files = {cell.model_sha256: cell.model_bytes for one in own for cell in (one.newest, one.last)}
    return {
        "model": model,
        "same": sorted({name for sha256 in files for name in archive.names.get(sha256, ())} - {model}),
        "files": [(sha256, text.byte_count(size)) for sha256, size in files.items() if sha256],
        "rows": [_row(archive, one, [shift for shift in shifts if shift.series is one]) for one in own],
        "shifts": shifts,
    }


def _row(archive: Archive, one: Series, shifts: Sequence[Shift]) -> View:
    campaign = archive.named[one.newest.campaign_id]
    return View(
        anchor=links.series_anchor(one.key),
        cell=brief_view(one.newest, archive.baseline(one.newest), archive.address(one.newest)),
        last=None if one.last is one.newest else brief_view(one.last, None, archive.address(one.last)),
        level=one.key[1],
        options=one.key[3],
        campaign=campaign,
        campaign_href=links.model_page(campaign.campaign_id, one.key[0])
        if campaign.campaign_id in archive.in_full
        else links.campaign_page(campaign.campaign_id),
        count=len(one.points),
        plot=_plot(one, shifts),
        shifts=shifts,
    )


def _plot(one: Series, shifts: Sequence[Shift]) -> View | None:
    """Draw the medians by version, with their intervals, cut where conditions changed; None below two."""
    runs = conditions_runs(one.points)
    points = [point for run in runs for point in run]
    if len(points) < 2:
        return None
    times = [counted_times(point.cell) for point in points]
    values = [v for found in times if found for v in (found.p50, *(found.ci95 or ())) if v]
    scale = log_scale(values, _HEIGHT - 2, 2, _LEAST)
    step = _WIDTH / len(points)
    # By identity: a point holds mappings, and so has no hash.
    x = {id(point): (place + 0.5) * step for place, point in enumerate(points)}
    starts = [run[0] for run in runs[1:]]
    return View(
        width=_WIDTH,
        height=_HEIGHT,
        ticks=scale.ticks(3),
        lines="".join(_line(run, x, scale) for run in runs),
        dots="".join(f"M{px(x[id(p)])} {px(scale(p50_of(p.cell)))}h0" for p in points),
        whiskers="".join(
            f"M{px(x[id(p)])} {px(scale(found.ci95[0]))}V{px(scale(found.ci95[1]))}"
            for p, found in zip(points, times, strict=True)
            if found and found.ci95 and found.ci95[0] > 0
        ),
        cuts=[
            View(at=percent(x[id(p)] - step / 2, _WIDTH), said=_differences(runs[i][-1], p))
            for i, p in enumerate(starts)
        ],
        shifts=[
            View(at=percent(x[id(shift.first)] - step / 2, _WIDTH), said=shift.said, slower=shift.is_slower)
            for shift in shifts
        ],
        labels=_labels(points, step),
    )


def _line(run: Sequence[Point], x: Mapping[int, float], scale: Any) -> str:
    return "M" + "L".join(f"{px(x[id(point)])} {px(scale(p50_of(point.cell)))}" for point in run)


def _labels(points: Sequence[Point], step: float) -> list[View]:
    """Name versions at even distances, the first of each one."""
    named = [i for i, p in enumerate(points) if i == 0 or p.version != points[i - 1].version]
    # Rounded up, so that no more than `_LABELS` remain.
    every = -(-len(named) // _LABELS)
    return [
        View(at=percent((i + 0.5) * step, _WIDTH), text=text.short_name(points[i].version, 12))
        for i in named[::every]
    ]


def _differences(before: Point, after: Point) -> str:
    """Say which conditions changed: `kernel 6.1 → 6.6`."""
    return ", ".join(map(" ".join, differences(before.cell.conditions, after.cell.conditions)))


def shift_view(shift: Shift) -> View:
    """Return a change as the pages over all models show it."""
    model, _, delegate, _, device = shift.series.key
    anchor = links.series_anchor(shift.series.key)
    return View(
        at=shift.first.at,
        version=shift.first.version,
        model=text.short_name(model),
        delegate=delegate,
        device=device,
        column=column_name(delegate, device),
        href=f"{links.history_page(model)}#{anchor}",
        said=shift.said,
        over=shift.over,
        state=shift.state,
        note=shift.note,
        is_slower=shift.is_slower,
        versions=changed_versions(shift),
        key=links.digest(anchor, shift.first.cell.cell_id),
    )


def dated_shifts(models: Iterable[View]) -> list[View]:
    """Return the changes of all models by their summaries, newest first."""
    found = (shift for model in models for shift in model.shifts)
    dated = (View(**vars(shift) | {"at": datetime.fromisoformat(shift.at)}) for shift in found)
    return sorted(dated, key=lambda shift: shift.at, reverse=True)


def trends_page(models: Iterable[View], shifts: Sequence[View]) -> dict[str, Any]:
    """Gather the page of changes, newest first, and of the series that are long enough to show one."""
    return {
        "shifts": shifts,
        "models": [
            View(
                name=text.short_name(model.name),
                href=links.history_page(model.name),
                results=model.points,
                series=model.series,
            )
            for model in models
        ],
    }


def changed_versions(shift: Shift) -> str:
    """Say which software and which model file changed at a shift; empty where nothing recorded did."""
    old, new = shift.before.cell, shift.first.cell
    said = [*map(" ".join, differences(old.versions, new.versions))]
    if old.model_sha256 != new.model_sha256:
        said.append(f"model file {old.model_sha256[:12]} → {new.model_sha256[:12]}")
    return ", ".join(said)
