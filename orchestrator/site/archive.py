"""Reads the data of all pages once: campaigns, newest first, and their cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.site.source import SiteSource


@dataclass(frozen=True, slots=True)
class Archive:
    """Campaigns, newest first; the cells of each by campaign id; every cell by its own id."""

    campaigns: tuple[CampaignRecord, ...]
    cells: Mapping[str, tuple[CellRecord, ...]]
    by_id: Mapping[str, CellRecord]

    @classmethod
    def read(cls, source: SiteSource) -> Archive:
        """Read all campaigns and cells from `source`, without samples."""
        campaigns = tuple(sorted(source.campaigns(), key=_age, reverse=True))
        cells = {c.campaign_id: tuple(source.cells(c.campaign_id)) for c in campaigns}
        return cls(campaigns, cells, {cell.cell_id: cell for members in cells.values() for cell in members})

    @property
    def cell_count(self) -> int:
        """Cells in all campaigns."""
        return len(self.by_id)

    def origin(self, cell: CellRecord) -> CellRecord | None:
        """The cell that a reused result was measured for; None where it is this cell's own, or not here."""
        found, seen = cell, {cell.cell_id}
        while (source := self.by_id.get(found.reused_from or "")) is not None and source.cell_id not in seen:
            found = source
            seen.add(found.cell_id)
        return None if found is cell else found

    def others(
        self, sha256: str, campaign_id: str, model: str
    ) -> tuple[tuple[CampaignRecord, CellRecord], ...]:
        """Every measurement of these model bytes that is not this campaign's under this name, newest campaign
        first; a reused result once, where it was measured. None for a model that could not be fetched."""
        return tuple(
            (campaign, cell)
            for campaign in self.campaigns
            for cell in self.cells[campaign.campaign_id]
            if sha256
            and cell.model_sha256 == sha256
            and (campaign.campaign_id, cell.model) != (campaign_id, model)
            and self.origin(cell) is None
        )


def _age(campaign: CampaignRecord) -> tuple[datetime, str]:
    """Sorts by time of submission; a naive time is UTC."""
    moment = campaign.submitted_at
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC), campaign.campaign_id
