"""Builds a model's page: every delegate on every device side by side."""

from __future__ import annotations

from collections.abc import Sequence

from agent.wire.messages import Latency
from orchestrator.results import format as text
from orchestrator.results.metrics import P50, in_section
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.results.speedups import Baselines, counted_latency
from orchestrator.site import links
from orchestrator.site.archive import Archive
from orchestrator.site.cell_view import cell_view, column_name
from orchestrator.site.figures import Footnotes, figures, head, heads
from orchestrator.site.pages import Link, ModelPage, ModelRow
from orchestrator.site.plots import range_plot


def model_page(archive: Archive, campaign: CampaignRecord, model: str) -> ModelPage:
    """Build the page of one model of a campaign; its cells keep the campaign's order."""
    cells = archive.cells[campaign.campaign_id]
    own = [cell for cell in cells if cell.model == model]
    baselines = Baselines.among(campaign.baseline, cells)
    notes = Footnotes()
    first = own[0]
    return ModelPage(
        campaign=Link(text.short_name(campaign.name), links.campaign_page(campaign.campaign_id)),
        name=text.short_name(model),
        full_name=model,
        sha256=first.model_sha256,
        size=text.byte_count(first.model_bytes),
        level=campaign.level,
        lead=head(P50),
        latency_heads=heads(in_section("latency")),
        resource_heads=heads(in_section("resources")),
        rows=tuple(_row(cell, baselines, notes) for cell in own),
        footnotes=notes.listed(),
        plot=range_plot(_drawn(own)),
        elsewhere=_elsewhere(archive, campaign, first.model_sha256),
    )


def _row(cell: CellRecord, baselines: Baselines, notes: Footnotes) -> ModelRow:
    return ModelRow(
        cell=cell_view(cell, baselines.of(cell)),
        latencies=figures(in_section("latency"), cell, notes),
        resources=figures(in_section("resources"), cell, notes),
    )


def _drawn(cells: Sequence[CellRecord]) -> list[tuple[str, Latency]]:
    pairs = [(column_name(cell.delegate, cell.device), counted_latency(cell)) for cell in cells]
    return [(label, latency) for label, latency in pairs if latency is not None]


def _elsewhere(archive: Archive, campaign: CampaignRecord, sha256: str) -> tuple[Link, ...]:
    """The same bytes in other campaigns."""
    return tuple(
        Link(
            f"{text.short_name(other.name)}, {text.moment(other.submitted_at)}",
            links.model_page(other.campaign_id, name),
        )
        for other, name in archive.campaigns_with_model(sha256)
        if other.campaign_id != campaign.campaign_id
    )
