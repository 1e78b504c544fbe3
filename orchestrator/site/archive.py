"""Reads what pages know of all campaigns; says how a farm is read.

Of what is unchanged since an older site only digests are read: the cells of a campaign, or of a model in it,
when a page is made of them, and then what comparisons read of each. Whole records are read campaign by
campaign, while the pages of one are written.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Protocol

from agent.wire.measurement import ProcessSamples
from orchestrator.results.records import CampaignRecord, CellGroup, CellRecord, ComparedCell, ManifestRecord
from orchestrator.results.speedups import Baselines
from orchestrator.site import links
from orchestrator.site.shards import CELLS
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

    def groups(self) -> Sequence[CellGroup]:
        """Return the cells of all campaigns by model, in the order in which a campaign names its models."""

    def compared(self, campaign_id: str, model: str | None = None) -> Sequence[ComparedCell]:
        """Return the same cells, or those of a model, with the compared fields at least."""

    def measurements(self, campaign_id: str) -> Mapping[str, str]:
        """Return the measurement that each of them shows, by its id, as the JSON text that is stored."""

    def samples(self, cell: CellRecord) -> Sequence[ProcessSamples]:
        """Raw samples of a cell's counted result, one entry per process; empty where none are stored.

        Raises `FarmError` where they are stored but cannot be read.
        """

    def manifest(self, campaign_id: str) -> ManifestRecord | None:
        """Return the campaign file of a campaign, with its models' origins; None if none was kept."""

    def model_facts(self, sha256: str) -> ModelFacts | None:
        """Return a model file's facts, by the bounded reader; None if it is not here, or no model."""


class Archive:
    """Campaigns, newest first, and their cells, each campaign's model by model.

    `groups`: the cells of each campaign by model, as digests; `names`: those that models have, by the sha256
    of their files; `in_full`: the ids of the newest campaigns whose cells have pages of their own.
    """

    def __init__(self, source: SiteSource) -> None:
        """Read all campaigns from `source`, and the digests of their cells."""
        self._source = source
        self.campaigns = tuple(sorted(source.campaigns(), key=_age, reverse=True))
        self.named = {campaign.campaign_id: campaign for campaign in self.campaigns}
        self.groups: dict[str, dict[str, CellGroup]] = {name: {} for name in self.named}
        for group in source.groups() if self.campaigns else ():
            # A campaign that was stored since the others were read waits for the next build.
            if group.campaign_id in self.groups:
                self.groups[group.campaign_id][group.model] = group
        names: dict[str, set[str]] = {}
        for group in (one for own in self.groups.values() for one in own.values() if one.model_sha256):
            names.setdefault(group.model_sha256, set()).add(group.model)
        self.names: Mapping[str, frozenset[str]] = {sha256: frozenset(own) for sha256, own in names.items()}
        self.in_full = frozenset(_in_full(self.groups))
        self._before = _followed(self.campaigns, self.groups)
        self._cells: dict[tuple[str, str], tuple[ComparedCell, ...]] = {}
        self._by_id: dict[str, ComparedCell] = {}
        self._places: dict[str, int] = {}
        self._offsets: dict[str, Mapping[str, int]] = {}
        self._baselines: dict[tuple[str, str], Baselines[ComparedCell]] = {}

    def cells(self, campaign_id: str) -> list[ComparedCell]:
        """Return the cells of a campaign."""
        models = self.groups[campaign_id]
        if any((campaign_id, model) not in self._cells for model in models):
            by_model: dict[str, list[ComparedCell]] = {model: [] for model in models}
            for cell in self._source.compared(campaign_id):
                by_model.setdefault(cell.model, []).append(cell)
            for model in models:
                if (campaign_id, model) not in self._cells:
                    self._keep(campaign_id, model, by_model[model])
        return [cell for model in models for cell in self._cells[campaign_id, model]]

    def of_model(self, campaign_id: str, model: str) -> tuple[ComparedCell, ...]:
        """Return the cells of a model in a campaign; none where it has none.

        The second model asked of a campaign reads it whole: each question may cost as much (over HTTP).
        """
        if model not in self.groups[campaign_id]:
            return ()
        if (campaign_id, model) not in self._cells:
            if any((campaign_id, other) in self._cells for other in self.groups[campaign_id]):
                self.cells(campaign_id)
            else:
                self._keep(campaign_id, model, self._source.compared(campaign_id, model))
        return self._cells[campaign_id, model]

    def _keep(self, campaign_id: str, model: str, cells: Sequence[ComparedCell]) -> None:
        self._cells[campaign_id, model] = tuple(cells)
        for place, cell in enumerate(cells, self.place(campaign_id, model)):
            self._by_id[cell.cell_id] = cell
            self._places[cell.cell_id] = place

    def place(self, campaign_id: str, model: str) -> int:
        """Return the number of a campaign's cells in front of those of a model."""
        if campaign_id not in self._offsets:
            counts = [group.count for group in self.groups[campaign_id].values()]
            self._offsets[campaign_id] = dict(
                # With an initial value `accumulate` yields one more than there are models: the total.
                zip(self.groups[campaign_id], accumulate(counts, initial=0), strict=False)
            )
        return self._offsets[campaign_id][model]

    def baseline(self, cell: ComparedCell) -> ComparedCell | None:
        """Return the cell of its campaign over which a cell's speed-up is taken."""
        key = cell.campaign_id, cell.model
        if key not in self._baselines:
            self._baselines[key] = Baselines.among(self.named[key[0]].baseline, self.of_model(*key))
        return self._baselines[key].of(cell)

    def shard(self, cell: ComparedCell) -> str:
        """Return the name of the shard that a cell is in."""
        self.of_model(cell.campaign_id, cell.model)
        return links.shard_name(cell.campaign_id, self._places[cell.cell_id] // CELLS)

    def address(self, cell: ComparedCell) -> str:
        """Return the page of a cell: its own, or the one that draws it from its shard."""
        if cell.campaign_id in self.in_full:
            return links.cell_page(cell.cell_id)
        return links.any_cell_page(self.shard(cell), cell.cell_id)

    def origin(self, cell: ComparedCell) -> ComparedCell | None:
        """Return the cell that a reused result was measured for; None if it is its own, or not here."""
        if not cell.reused_from:
            return None
        for campaign_id, model in self.origins(cell.campaign_id, cell.model):
            self.of_model(campaign_id, model)
        # A reused result may itself be reused: the chain is followed to its end, never round a ring.
        found, seen = cell, {cell.cell_id}
        while (source := self._by_id.get(found.reused_from or "")) is not None and source.cell_id not in seen:
            found = source
            seen.add(found.cell_id)
        return None if found is cell else found

    def origins(self, campaign_id: str, model: str) -> list[tuple[str, str]]:
        """Return campaign and model of all cells whose results those of a model in a campaign may show."""
        found: dict[tuple[str, str], None] = {}
        left = [(campaign_id, model)]
        while left:
            name, of = left.pop()
            group = self.groups.get(name, {}).get(of)
            new = [] if group is None else [one for one in group.origins if one not in found]
            new = [one for one in new if one[1] in self.groups.get(one[0], ())]
            # Only what is new is followed: a ring of reused results ends here.
            found |= dict.fromkeys(new)
            left += new
        return sorted(found)

    def before(self, campaign: CampaignRecord) -> CampaignRecord | None:
        """Return the newest earlier campaign of the same name that has cells of the same names."""
        return self._before.get(campaign.campaign_id)


def _in_full(groups: Mapping[str, Mapping[str, CellGroup]]) -> Iterator[str]:
    """Yield the ids of the newest campaigns, as long as one has room among `IN_FULL` cells."""
    room = IN_FULL
    for campaign_id, own in groups.items():
        count = sum(group.count for group in own.values())
        if count <= room:
            room -= count
            yield campaign_id


def _followed(
    campaigns: Sequence[CampaignRecord], groups: Mapping[str, Mapping[str, CellGroup]]
) -> dict[str, CampaignRecord]:
    """Return the newest earlier campaign of the same name with a cell of the same names, by campaign id."""
    found: dict[str, CampaignRecord] = {}
    older: dict[str, list[CampaignRecord]] = {}
    # Oldest first: `earlier` holds only what was submitted before.
    for campaign in reversed(campaigns):
        own = groups[campaign.campaign_id]
        earlier = older.setdefault(campaign.name, [])
        before = next((one for one in reversed(earlier) if _meet(own, groups[one.campaign_id])), None)
        if before is not None:
            found[campaign.campaign_id] = before
        earlier.append(campaign)
    return found


def _meet(first: Mapping[str, CellGroup], second: Mapping[str, CellGroup]) -> bool:
    """Whether cells of both have one model, delegate, device and level."""
    return any(
        not set(first[model].columns).isdisjoint(second[model].columns) for model in first if model in second
    )


def _age(campaign: CampaignRecord) -> tuple[datetime, str]:
    """Sorts by time of submission."""
    return campaign.submitted_at, campaign.campaign_id
