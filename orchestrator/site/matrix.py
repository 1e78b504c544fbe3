"""Builds the main table: models x (delegate on device)."""

from collections.abc import Sequence
from types import SimpleNamespace as View

from orchestrator.results import format as text
from orchestrator.results.answer.build import sentences
from orchestrator.results.answer.entries import Placed
from orchestrator.results.answer.headline import legend
from orchestrator.results.comparison import unequal_threads
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.results.speedups import Baselines, counted_latency, mean_speedup, speedup
from orchestrator.results.wording import factor_text, has_no_result
from orchestrator.site import links
from orchestrator.site.axes import Scale, log_scale, px
from orchestrator.site.cell_view import StatusView, cell_view, delegate_name, device_id

# This and the next number are those of `BAR` in templates/choices.js, too.
BAR_WIDTH = 132
"""Width of the drawing of an interval in px, chosen: a wider one pushes columns off a page of 1280 px, in a
narrower one intervals of a few per cent are dots."""

BAR_MARGIN = 5
"""Space at both ends of the drawing in px: the dot of 2.6 px and the end of a whisker stay inside."""

_ColumnKey = tuple[str, str]
_RowKey = tuple[str, str]


def build_matrix(campaign: CampaignRecord, cells: Sequence[CellRecord]) -> View:
    """Build the matrix of a campaign; rows and columns in the order of its cells, the baseline's columns
    first. The `cells` of a row follow the columns, None where no cell was requested.
    """
    baselines = Baselines.among(campaign.baseline, cells)
    column_keys = _column_keys(campaign, cells)
    by_row: dict[_RowKey, dict[_ColumnKey, CellRecord]] = {}
    for cell in cells:
        by_row.setdefault((cell.model, cell.level), {})[cell.delegate, cell.device] = cell
    placed = Placed.of(cells, campaign.baseline)
    said: set[tuple[_ColumnKey, str]] = set()
    rows = tuple(_row(campaign, key, by_row[key], column_keys, baselines, said) for key in by_row)
    return View(
        columns=tuple(_column(key, cells, baselines, len(rows)) for key in column_keys),
        rows=rows,
        baseline=campaign.baseline or "",
        without_number=_unmeasured(rows),
        sentences=tuple(f"{''.join(clauses)}." for clauses in sentences(placed)),
        legend=tuple(part.replace("`", "") for part in legend(cells, placed)),
    )


def _unmeasured(rows: Sequence[View]) -> list[View]:
    """Return the cells without a counted number, grouped by state and reason in order of first appearance."""
    groups: dict[tuple[StatusView, str], list[View]] = {}
    for row in rows:
        for view in row.cells:
            if view is not None and (view.p50 is None or view.struck_out or view.void):
                reason = view.void or view.status.reason or view.why_no_p50
                link = View(text=f"{row.model.text} on {view.column}", href=view.href)
                groups.setdefault((view.status, reason), []).append(link)
    return [View(status=status, reason=reason, cells=cells) for (status, reason), cells in groups.items()]


def _column_keys(campaign: CampaignRecord, cells: Sequence[CellRecord]) -> list[_ColumnKey]:
    """Distinct (delegate, device): baseline first, then as the manifest orders delegates; no device last."""
    order = {name: i for i, name in enumerate(campaign.delegates)}
    keys = dict.fromkeys((c.delegate, c.device) for c in cells)

    def rank(key: _ColumnKey) -> tuple[bool, bool, int]:
        delegate, device = key
        # False comes before True.
        return device == "-", delegate != campaign.baseline, order.get(delegate, len(order))

    return sorted(keys, key=rank)


def _column(
    key: _ColumnKey, cells: Sequence[CellRecord], baselines: Baselines[CellRecord], row_count: int
) -> View:
    delegate, device = key
    own = [c for c in cells if (c.delegate, c.device) == key]
    found = [one for c in own if (one := speedup(c, baselines.of(c))) is not None]
    mean = None if delegate == baselines.delegate else mean_speedup(found)
    unpaired = "" if mean is None or mean.paired else ", unpaired"
    return View(
        delegate=delegate_name(delegate),
        device=device_id(device),
        device_name=text.short_name(own[0].device_name),
        note=unequal_threads(own).strip(),
        is_baseline=delegate == baselines.delegate,
        geomean="" if mean is None else factor_text(mean.ratio).replace("x", text.TIMES, 1),
        geomean_over="" if mean is None else f"over {mean.count} of {row_count} models{unpaired}",
    )


def _row(
    campaign: CampaignRecord,
    key: _RowKey,
    cells: dict[_ColumnKey, CellRecord],
    column_keys: Sequence[_ColumnKey],
    baselines: Baselines[CellRecord],
    said: set[tuple[_ColumnKey, str]],
) -> View:
    model, level = key
    first = next(iter(cells.values()))
    scale = _row_scale(list(cells.values()))
    detail = text.byte_count(first.model_bytes)
    return View(
        model=View(text=text.short_name(model), href=links.model_page(campaign.campaign_id, model)),
        detail=detail if level == campaign.level else f"{detail} · level {level}",
        cells=tuple(_view(cells.get(column), baselines, scale, column, said) for column in column_keys),
    )


def _view(
    cell: CellRecord | None,
    baselines: Baselines[CellRecord],
    scale: Scale | None,
    column: _ColumnKey,
    said: set[tuple[_ColumnKey, str]],
) -> View | None:
    """Return the view of a cell. `said` has the reasons of the rows above, by column, and gets its own: one
    that `repeats` is not written out again.
    """
    if cell is None:
        return None
    baseline = baselines.of(cell)
    view = cell_view(cell, baseline, _bar(cell, baseline, scale))
    if has_no_result(cell) and view.status.reason:
        view.repeats = (column, view.status.reason) in said
        said.add((column, view.status.reason))
    return view


def _row_scale(cells: Sequence[CellRecord]) -> Scale | None:
    counted = [latency for cell in cells if (latency := counted_latency(cell)) is not None]
    # A 0 has no place on a logarithmic scale.
    values = [v for latency in counted for v in (latency.p50, *(latency.ci95 or ())) if v]
    return log_scale(values, BAR_MARGIN, BAR_WIDTH - BAR_MARGIN) if values else None


def _bar(cell: CellRecord, baseline: CellRecord | None, scale: Scale | None) -> View | None:
    """Place a p50 and its interval on the scale of its row, in px of `BAR_WIDTH`."""
    latency = counted_latency(cell)
    if latency is None or not latency.p50 or scale is None:
        return None
    low, high = latency.ci95 or (None, None)
    base = None if baseline is None else counted_latency(baseline)
    return View(
        p50=px(scale(latency.p50)),
        others="",
        low=px(scale(low)) if low else None,
        high=px(scale(high)) if high else None,
        baseline=px(scale(base.p50)) if base is not None and base.p50 else None,
    )
