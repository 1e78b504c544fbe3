"""Builds a model's page: every delegate on every device side by side."""

from collections.abc import Sequence
from typing import Any

from agent.wire.measurement import Latency
from orchestrator.results.metrics import P50, in_section
from orchestrator.results.profiles import advice_lines
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.results.speedups import Baselines, counted_latency
from orchestrator.results.wording import Footnotes
from orchestrator.site.cell_view import cell_view, column_name
from orchestrator.site.figures import Facts, figure, with_interval
from orchestrator.site.plots import range_plot
from orchestrator.site.variants import front_plot, variant_rows

_LATENCIES = tuple(
    metric for metric in in_section("latency") if not metric.interval_of and metric.key != P50.key
)
"""Columns after p50 and the speed-up: an interval stands below its figure."""


def model_page(
    campaign: CampaignRecord,
    own: Sequence[CellRecord],
    cells: Sequence[CellRecord],
    baselines: Baselines[CellRecord],
    facts: Facts = (),
) -> dict[str, Any]:
    """Gather what the page of one model of a campaign shows; `own`: its cells, among all `cells`.

    `facts` say what the file is, empty where the farm does not have it.
    """
    notes = Footnotes()
    variants = variant_rows(own, cells)
    return {
        "campaign": campaign,
        "model": own[0].model,
        "first": own[0],
        "facts": facts,
        "latency_heads": _LATENCIES,
        "resource_heads": in_section("resources"),
        "rows": [_row(cell, baselines, notes) for cell in own],
        "footnotes": notes.listed(),
        "plot": range_plot(_drawn(own)),
        "variants": variants,
        "front": front_plot(variants),
    }


def _row(cell: CellRecord, baselines: Baselines[CellRecord], notes: Footnotes) -> dict[str, Any]:
    """Return a cell with its p50, its figures in the order of the headings, and its advice."""
    advice = None if cell.measurement is None else cell.measurement.advice
    return {
        "advice": [] if advice is None else list(advice_lines(advice)),
        "cell": cell_view(cell, baselines.of(cell)),
        "lead": with_interval(P50, cell, notes),
        "latencies": [with_interval(metric, cell, notes) for metric in _LATENCIES],
        "resources": [figure(metric, cell, notes) for metric in in_section("resources")],
    }


def _drawn(cells: Sequence[CellRecord]) -> list[tuple[str, Latency]]:
    pairs = [(column_name(cell.delegate, cell.device), counted_latency(cell)) for cell in cells]
    return [(label, latency) for label, latency in pairs if latency is not None]
