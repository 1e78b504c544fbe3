"""Digests what the parts of a site are made of: campaigns, and models over all campaigns."""

from collections.abc import Collection, Iterable, Mapping

from orchestrator.results.records import CampaignRecord, CellGroup, ComparedCell
from orchestrator.site.archive import Archive
from orchestrator.site.notes import Notes
from orchestrator.site.parts import digest_of


def campaign_digest(archive: Archive, campaign: CampaignRecord, *, is_newest: bool) -> str:
    """Digest everything that the pages of a campaign are made of; `is_newest`: of its name."""
    before = archive.before(campaign)
    return digest_of(
        (
            is_newest,
            [_whole(archive, one) for one in (campaign, before) if one is not None],
            [_shown(archive, campaign.campaign_id, model) for model in archive.groups[campaign.campaign_id]],
        )
    )


def model_digest(archive: Archive, model: str, notes: Notes, published: Collection[str]) -> str:
    """Digest everything that the page of a model over all campaigns is made of; `published`: the SHA-256 of
    the files of the published table.
    """
    own = [one for one in archive.campaigns if model in archive.groups[one.campaign_id]]
    groups = [archive.groups[one.campaign_id][model] for one in own]
    measured = [
        # How many wait in front of it, and who sees to it, is not on this page.
        (one.campaign_id, one.name, one.submitted_at, one.baseline, one.labels, group.content)
        for one, group in zip(own, groups, strict=True)
    ]
    return digest_of(
        (
            measured,
            # A cell's shard, and with it its address, follows from the number of cells in front of it.
            [archive.place(one.campaign_id, model) for one in own],
            _full(archive, (one.campaign_id for one in own)),
            [_shown(archive, one.campaign_id, model) for one in own],
            [sorted(archive.names.get(group.model_sha256, ())) for group in groups],
            [group.model_sha256 in published for group in groups],
            notes,
        )
    )


def _whole(archive: Archive, campaign: CampaignRecord) -> object:
    name = campaign.campaign_id
    return campaign, name in archive.in_full, [(m, g.content) for m, g in archive.groups[name].items()]


def _shown(archive: Archive, campaign_id: str, model: str) -> object:
    """Return the results of others that a model's cells show: what they are, and where their pages are."""
    origins = archive.origins(campaign_id, model)
    places = [(archive.groups[name][of].content, archive.place(name, of)) for name, of in origins]
    return origins, places, _full(archive, (name for name, _ in origins))


def _full(archive: Archive, names: Iterable[str]) -> list[str]:
    return sorted(archive.in_full.intersection(names))


def groups_of(cells: Iterable[ComparedCell], tries: Mapping[str, int] | None = None) -> list[CellGroup]:
    """Return the cells of all campaigns by model, from the cells themselves; `tries`: how many attempts there
    are at those that have not ended.
    """
    grouped: dict[tuple[str, str], list[ComparedCell]] = {}
    places: dict[str, tuple[str, str]] = {}
    for cell in cells:
        places[cell.cell_id] = cell.campaign_id, cell.model
        grouped.setdefault(places[cell.cell_id], []).append(cell)
    return [
        CellGroup(
            campaign_id=campaign_id,
            model=model,
            model_sha256=max(cell.model_sha256 for cell in own),
            count=len(own),
            content=digest_of([(*_stamp(cell), (tries or {}).get(cell.cell_id)) for cell in own]),
            columns=tuple(dict.fromkeys((cell.delegate, cell.device, cell.level) for cell in own)),
            origins=tuple(sorted({places[c.reused_from] for c in own if c.reused_from in places})),
        )
        for (campaign_id, model), own in grouped.items()
    ]


def _stamp(cell: ComparedCell) -> tuple[object, ...]:
    """Return what tells a cell from itself at another time: a result is never changed, but another one is
    shown, which was received at another time.
    """
    m = cell.measurement
    return (
        cell.cell_id, cell.delegate, cell.device, cell.level, cell.model_sha256, cell.status, cell.again,
        cell.finished_at, cell.reused_from, cell.device_name, None if m is None else m.latency_ms.p50,
        cell.reason, cell.noise,
    )  # fmt: skip
