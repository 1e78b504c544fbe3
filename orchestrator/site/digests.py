"""Digests what the parts of a site are made of: campaigns, and models over all campaigns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.results.records import CampaignRecord, ComparedCell
from orchestrator.site.archive import Archive
from orchestrator.site.notes import Notes
from orchestrator.site.parts import digest_of
from orchestrator.site.series import Series


class Digests:
    """Digests of the cells of each campaign, model by model, of which those of parts are made."""

    def __init__(self, archive: Archive, notes: Notes) -> None:
        """Read every cell once: both the parts of its campaign and of its model change with it."""
        self._archive = archive
        self._notes = notes
        self._cells: dict[str, Mapping[str, str]] = {}
        self._campaigns: dict[str, str] = {}
        for name, campaign in archive.named.items():
            by_model: dict[str, list[ComparedCell]] = {}
            for cell in archive.cells[name]:
                by_model.setdefault(cell.model, []).append(cell)
            self._cells[name] = {model: digest_of([*map(_stamp, own)]) for model, own in by_model.items()}
            self._campaigns[name] = digest_of((campaign, name in archive.in_full, self._cells[name]))

    def campaign(self, campaign: CampaignRecord) -> str:
        """Digest everything that the pages of a campaign are made of."""
        archive, before = self._archive, self._archive.before(campaign)
        origins = map(archive.origin, archive.cells[campaign.campaign_id])
        own = [self._campaigns[one.campaign_id] for one in (campaign, before) if one is not None]
        return digest_of((own, [origin and archive.address(origin.cell_id) for origin in origins]))

    def model(self, model: str, own: Sequence[Series]) -> str:
        """Digest everything that the page of a model over all campaigns is made of."""
        archive = self._archive
        measured = [name for name, found in self._cells.items() if model in found]
        cells = [
            (name, (one := archive.named[name]).name, one.labels, self._cells[name][model])
            for name in measured
        ]
        addresses = [archive.address(cell.cell_id) for one in own for cell in (one.newest, one.last)]
        same = [sorted(archive.names.get(one.newest.model_sha256, ())) for one in own]
        return digest_of(
            (cells, sorted(archive.in_full.intersection(measured)), addresses, same, self._notes)
        )


def _stamp(cell: ComparedCell) -> tuple[object, ...]:
    """Return what tells a cell from itself at another time: a result is never changed, but another one is
    shown, which was received at another time.
    """
    m = cell.measurement
    return (
        cell.cell_id, cell.model, cell.delegate, cell.device, cell.level, cell.model_sha256, cell.status,
        cell.again,
        cell.finished_at, cell.reused_from, cell.device_name, None if m is None else m.latency_ms.p50,
        cell.reason, cell.noise,
    )  # fmt: skip
