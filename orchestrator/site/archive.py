"""Reads the data of all pages once: campaigns, newest first, and their cells; says how a farm is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from agent.wire.measurement import ProcessSamples
from orchestrator.results.records import CampaignRecord, CellRecord, ManifestRecord
from runtime.model.facts import ModelFacts


class SiteSource(Protocol):
    """The read-only questions that the pages ask; `orchestrator.farm.reading.cells` answers them."""

    def campaigns(self) -> Sequence[CampaignRecord]:
        """Every campaign, in any order."""

    def cells(self, campaign_id: str) -> Sequence[CellRecord]:
        """Return the cells of a campaign, in the order of its manifest."""

    def samples(self, cell: CellRecord) -> Sequence[ProcessSamples]:
        """Raw samples of a cell's counted result, one entry per process; empty where none are stored.

        Raises `FarmError` where they are stored but cannot be read.
        """

    def manifest(self, campaign_id: str) -> ManifestRecord | None:
        """Return the campaign file of a campaign, with its models' origins; None if none was kept."""

    def model_facts(self, sha256: str) -> ModelFacts | None:
        """Return the facts of a model file, by its bounded reader; None if the file is not here, or is no
        model.
        """


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
        """Return the cell that a reused result was measured for; None if it is this cell's own, or not
        here.
        """
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
