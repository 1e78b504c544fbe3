"""Reads what pages know of all campaigns at once; says how a farm is read.

Of every cell it keeps what comparisons read; the whole records are read campaign by campaign, while the pages
of one are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from agent.wire.measurement import ProcessSamples
from orchestrator.results.records import CampaignRecord, CellRecord, ComparedCell, ManifestRecord
from orchestrator.results.regression import by_names
from orchestrator.results.speedups import Baselines
from runtime.model.facts import ModelFacts


class SiteSource(Protocol):
    """The read-only questions that the pages ask; `orchestrator.farm.reading.cells` answers them."""

    def campaigns(self) -> Sequence[CampaignRecord]:
        """Every campaign, in any order."""

    def cells(self, campaign_id: str) -> Sequence[CellRecord]:
        """Return the cells of a campaign, in the order of its manifest."""

    def compared(self, campaign_id: str) -> Sequence[ComparedCell]:
        """Return the same cells with the compared fields at least."""

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
    """Campaigns, newest first; the compared cells of each by campaign id; every cell by its own id; the
    names that models have, by the sha256 of their files.
    """

    campaigns: tuple[CampaignRecord, ...]
    cells: Mapping[str, tuple[ComparedCell, ...]]
    by_id: Mapping[str, ComparedCell]
    names: Mapping[str, frozenset[str]]
    named: Mapping[str, CampaignRecord]

    @classmethod
    def read(cls, source: SiteSource) -> Archive:
        """Read all campaigns and cells from `source`, without samples."""
        campaigns = tuple(sorted(source.campaigns(), key=_age, reverse=True))
        cells = {c.campaign_id: tuple(source.compared(c.campaign_id)) for c in campaigns}
        names: dict[str, set[str]] = {}
        for cell in (cell for members in cells.values() for cell in members):
            names.setdefault(cell.model_sha256, set()).add(cell.model)
        return cls(
            campaigns,
            cells,
            {cell.cell_id: cell for members in cells.values() for cell in members},
            {sha256: frozenset(found) for sha256, found in names.items() if sha256},
            {campaign.campaign_id: campaign for campaign in campaigns},
        )

    @property
    def newest_at(self) -> datetime | None:
        """When the newest result arrived; None without one."""
        return max((at for cell in self.by_id.values() if (at := utc(cell.finished_at))), default=None)

    def baselines(self, campaign: CampaignRecord) -> Baselines[ComparedCell]:
        """Return the baseline's cells of a campaign."""
        return Baselines.among(campaign.baseline, self.cells[campaign.campaign_id])

    def origin(self, cell: ComparedCell) -> ComparedCell | None:
        """Return the cell that a reused result was measured for; None if it is this cell's own, or not
        here.
        """
        found, seen = cell, {cell.cell_id}
        while (source := self.by_id.get(found.reused_from or "")) is not None and source.cell_id not in seen:
            found = source
            seen.add(found.cell_id)
        return None if found is cell else found

    def before(self, campaign: CampaignRecord) -> CampaignRecord | None:
        """Return the newest earlier campaign of the same name that has cells of the same names."""
        own = set(by_names(self.cells[campaign.campaign_id]))
        place = self.campaigns.index(campaign)
        return next(
            (
                one
                for one in self.campaigns[place + 1 :]
                if one.name == campaign.name and own & set(by_names(self.cells[one.campaign_id]))
            ),
            None,
        )


def utc(moment: datetime | None) -> datetime | None:
    """Return a moment with its time zone; a naive one is UTC."""
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def _age(campaign: CampaignRecord) -> tuple[datetime, str]:
    """Sorts by time of submission."""
    return utc(campaign.submitted_at) or datetime.min.replace(tzinfo=UTC), campaign.campaign_id
