"""Builds a model's page: every delegate on every device side by side."""

from __future__ import annotations

from collections.abc import Sequence

from agent.wire.measurement import Latency
from orchestrator.results import format as text
from orchestrator.results.metrics import P50, in_section
from orchestrator.results.reasons import Footnotes
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.results.speedups import Baselines, counted_latency
from orchestrator.site import links
from orchestrator.site.archive import Archive
from orchestrator.site.cell_view import cell_view, column_name
from orchestrator.site.figures import figures, head, heads, with_interval
from orchestrator.site.pages import Facts, Link, ModelPage, ModelRow, OtherMeasurement
from orchestrator.site.plots import range_plot

_MOST_OTHERS = 50
"""Other measurements of a file that its page lists, the newest: about a screen. A campaign of every
night would make a table of thousands of rows; the campaigns' own pages have them."""

_LATENCIES = tuple(
    metric for metric in in_section("latency") if not metric.interval_of and metric.key != P50.key
)
"""Columns after p50 and the speed-up: an interval stands below its figure."""


def model_page(archive: Archive, campaign: CampaignRecord, model: str, facts: Facts = ()) -> ModelPage:
    """Build the page of one model of a campaign; its cells keep the campaign's order."""
    cells = archive.cells[campaign.campaign_id]
    own = [cell for cell in cells if cell.model == model]
    baselines = Baselines.among(campaign.baseline, cells)
    notes = Footnotes()
    first = own[0]
    others = archive.others(first.model_sha256, campaign.campaign_id, model)
    return ModelPage(
        campaign=Link(text.short_name(campaign.name), links.campaign_page(campaign.campaign_id)),
        name=text.short_name(model),
        full_name=model,
        sha256=first.model_sha256,
        size=text.byte_count(first.model_bytes),
        level=campaign.level,
        facts=facts,
        lead=head(P50),
        latency_heads=heads(_LATENCIES),
        resource_heads=heads(in_section("resources")),
        rows=tuple(_row(cell, baselines, notes) for cell in own),
        footnotes=notes.listed(),
        plot=range_plot(_drawn(own)),
        others=tuple(_other(campaign, cell) for campaign, cell in others[:_MOST_OTHERS]),
        other_count=len(others),
    )


def _row(cell: CellRecord, baselines: Baselines, notes: Footnotes) -> ModelRow:
    return ModelRow(
        cell=cell_view(cell, baselines.of(cell)),
        lead=with_interval(P50, cell, notes),
        latencies=tuple(with_interval(metric, cell, notes) for metric in _LATENCIES),
        resources=figures(in_section("resources"), cell, notes),
    )


def _other(campaign: CampaignRecord, cell: CellRecord) -> OtherMeasurement:
    return OtherMeasurement(
        campaign=Link(text.short_name(campaign.name), links.model_page(campaign.campaign_id, cell.model)),
        name=text.short_name(cell.model),
        cell=cell_view(cell, None),
        level=cell.level,
        finished=text.moment(cell.finished_at),
    )


def _drawn(cells: Sequence[CellRecord]) -> list[tuple[str, Latency]]:
    pairs = [(column_name(cell.delegate, cell.device), counted_latency(cell)) for cell in cells]
    return [(label, latency) for label, latency in pairs if latency is not None]
