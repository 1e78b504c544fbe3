"""Builds the home page and the campaign pages: head, matrix, devices and their environments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from orchestrator.policy.lifecycle import OPEN
from orchestrator.results import format as text
from orchestrator.results.answer.title import title_of
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.site import links
from orchestrator.site.archive import Archive
from orchestrator.site.cell_view import delegate_name, device_id
from orchestrator.site.matrix import build_matrix
from orchestrator.site.pages import (
    CampaignPage,
    CampaignView,
    DeviceView,
    EnvironmentView,
    Facts,
    IndexPage,
    Link,
)

_STRUCK_OUT = "struck out"
_ORDER = ("done", _STRUCK_OUT, "failed", "unsupported", "cancelled", "running", "dispatched", "queued")


def index_page(archive: Archive) -> IndexPage:
    """Build the home page: the newest campaign's matrix, all campaigns, and every environment of a result."""
    newest = archive.campaigns[0] if archive.campaigns else None
    everything = [c for campaign in archive.campaigns for c in archive.cells[campaign.campaign_id]]
    return IndexPage(
        newest=None if newest is None else campaign_view(newest, archive.cells[newest.campaign_id]),
        matrix=None if newest is None else build_matrix(newest, archive.cells[newest.campaign_id]),
        campaigns=tuple(campaign_view(c, archive.cells[c.campaign_id]) for c in archive.campaigns),
        devices=devices(everything),
    )


def campaign_page(campaign: CampaignRecord, cells: Sequence[CellRecord]) -> CampaignPage:
    """Build the page of a campaign."""
    return CampaignPage(campaign_view(campaign, cells), build_matrix(campaign, cells), devices(cells))


def campaign_view(campaign: CampaignRecord, cells: Sequence[CellRecord]) -> CampaignView:
    """Return the head of a campaign; counts are those of its cells."""
    # Each cell once: one that is struck out is `failed` as well.
    counts = Counter(_STRUCK_OUT if cell.struck_out else cell.status for cell in cells)
    states = (*_ORDER, *sorted(set(counts) - {*_ORDER}))
    words = [f"{counts[state]} {state}" for state in states if counts[state]]
    return CampaignView(
        link=Link(text.short_name(campaign.name), links.campaign_page(campaign.campaign_id)),
        campaign_id=campaign.campaign_id,
        created=text.moment(campaign.submitted_at),
        by=campaign.submitted_by,
        level=campaign.level,
        right=title_of(cells).right,
        counts=" · ".join(words) or "no cells",
        model_count=len(campaign.models),
        delegates=", ".join(delegate_name(d) for d in campaign.delegates),
        labels=tuple(sorted(campaign.labels.items())),
        manifest_sha256=campaign.manifest_sha256,
        json_href=links.campaign_data(campaign.campaign_id, "json"),
        csv_href=links.campaign_data(campaign.campaign_id, "csv"),
        unfinished=sum(counts[state] for state in OPEN),
    )


def devices(cells: Sequence[CellRecord]) -> tuple[DeviceView, ...]:
    """Each device that results were measured on, with its environments in order of first appearance."""
    groups: dict[str, dict[str, list[CellRecord]]] = {}
    for cell in cells:
        if cell.environment_id is not None:
            groups.setdefault(cell.device, {}).setdefault(cell.environment_id, []).append(cell)
    return tuple(_device(device, tuple(members.values())) for device, members in groups.items())


def _device(device: str, environments: Sequence[Sequence[CellRecord]]) -> DeviceView:
    before = [environments[0], *environments]
    return DeviceView(
        device=device_id(device),
        device_name=text.short_name(environments[0][0].device_name),
        environments=tuple(
            _environment(cells, previous[0].environment)
            for cells, previous in zip(environments, before, strict=False)
        ),
    )


def _environment(cells: Sequence[CellRecord], previous: Mapping[str, str]) -> EnvironmentView:
    """Facts are shown where all results of the environment agree; the rest is on the cells' pages."""
    first = cells[0]
    shared = {k: v for k, v in first.facts.items() if all(c.facts.get(k) == v for c in cells)}
    return EnvironmentView(
        anchor=links.environment_anchor(first.device, first.environment_id or ""),
        environment_id=first.environment_id or "",
        delegates=", ".join(dict.fromkeys(delegate_name(c.delegate) for c in cells)),
        cell_count=len(cells),
        changes=_changes(previous, first.environment),
        conditions=tuple(sorted(first.conditions.items())),
        versions=tuple(sorted(first.versions.items())),
        facts=tuple(sorted(shared.items())),
    )


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> Facts:
    """(field, `old → new`) of every field that differs."""
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return tuple((name, f"{old.get(name, 'absent')} → {new.get(name, 'absent')}") for name in names)
