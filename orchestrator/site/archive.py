"""Reads what pages know of all campaigns at once; says how a farm is read.

Of every cell it keeps what comparisons read; the whole records are read campaign by campaign, while the pages
of one are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from agent.wire.measurement import ProcessSamples
from orchestrator.results.records import CampaignRecord, CellRecord, ComparedCell, ManifestRecord
from orchestrator.results.regression import by_names
from orchestrator.results.speedups import Baselines
from orchestrator.site import links
from orchestrator.site.shards import shard_names
from runtime.model.facts import ModelFacts

IN_FULL = 2_000
"""Cells of the newest campaigns that are drawn in full. Chosen: as many take some seconds and 70 MB, and
nobody reads a matrix of more."""


class SiteSource(Protocol):
    """The read-only questions that the pages ask; `orchestrator.farm.reading.cells` answers them."""

    def campaigns(self) -> Sequence[CampaignRecord]:
        """Every campaign, in any order."""

    def cells(self, campaign_id: str) -> Sequence[CellRecord]:
        """Return the cells of a campaign, in the order of its manifest."""

    def compared(self, campaign_id: str) -> Sequence[ComparedCell]:
        """Return the same cells with the compared fields at least."""

    def measurements(self, campaign_id: str) -> Mapping[str, str]:
        """Return the measurement that each of them shows, by its id, as the JSON text that is stored."""

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

    `in_full`: the ids of the newest campaigns whose cells have pages of their own; `shards`: the shard that
    each cell is in.
    """

    campaigns: tuple[CampaignRecord, ...]
    cells: Mapping[str, tuple[ComparedCell, ...]]
    by_id: Mapping[str, ComparedCell]
    names: Mapping[str, frozenset[str]]
    named: Mapping[str, CampaignRecord]
    in_full: frozenset[str]
    shards: Mapping[str, str]
    _baselines: Mapping[str, Baselines[ComparedCell]]
    _before: Mapping[str, CampaignRecord]

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
            frozenset(_in_full(cells)),
            {one: name for id_, own in cells.items() for one, name in shard_names(id_, own)},
            {one.campaign_id: Baselines.among(one.baseline, cells[one.campaign_id]) for one in campaigns},
            _followed(campaigns, cells),
        )

    @property
    def newest_at(self) -> datetime | None:
        """When the newest result arrived; None without one."""
        return max((at for cell in self.by_id.values() if (at := utc(cell.finished_at))), default=None)

    def baseline(self, cell: ComparedCell) -> ComparedCell | None:
        """Return the cell of its campaign over which a cell's speed-up is taken."""
        return self._baselines[cell.campaign_id].of(cell)

    def address(self, cell_id: str) -> str:
        """Return the page of a cell: its own, or the one that draws it from its shard."""
        if self.by_id[cell_id].campaign_id in self.in_full:
            return links.cell_page(cell_id)
        return links.any_cell_page(self.shards[cell_id], cell_id)

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
        return self._before.get(campaign.campaign_id)


def _in_full(cells: Mapping[str, Sequence[ComparedCell]]) -> Iterator[str]:
    """Yield the ids of the newest campaigns, as long as one has room among `IN_FULL` cells."""
    room = IN_FULL
    for campaign_id, own in cells.items():
        if len(own) <= room:
            room -= len(own)
            yield campaign_id


def _followed(
    campaigns: Sequence[CampaignRecord], cells: Mapping[str, Sequence[ComparedCell]]
) -> dict[str, CampaignRecord]:
    """Return the newest earlier campaign of the same name with a cell of the same names, by campaign id."""
    found: dict[str, CampaignRecord] = {}
    older: dict[str, list[tuple[CampaignRecord, set[tuple[str, ...]]]]] = {}
    for campaign in reversed(campaigns):
        names = set(by_names(cells[campaign.campaign_id]))
        earlier = older.setdefault(campaign.name, [])
        before = next((one for one, others in reversed(earlier) if not names.isdisjoint(others)), None)
        if before is not None:
            found[campaign.campaign_id] = before
        earlier.append((campaign, names))
    return found


def utc(moment: datetime | None) -> datetime | None:
    """Return a moment with its time zone; a naive one is UTC."""
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def _age(campaign: CampaignRecord) -> tuple[datetime, str]:
    """Sorts by time of submission."""
    return utc(campaign.submitted_at) or datetime.min.replace(tzinfo=UTC), campaign.campaign_id
