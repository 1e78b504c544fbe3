"""Builds the campaign pages: head, matrix, devices and their environments."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from orchestrator.policy.lifecycle import OPEN
from orchestrator.results.answer.headline import title_of
from orchestrator.results.records import CampaignRecord, CellRecord, ComparedCell
from orchestrator.site import links
from orchestrator.site.archive import Archive
from orchestrator.site.cell_view import brief_view
from orchestrator.site.figures import differences
from orchestrator.site.matrix import build_matrix
from orchestrator.site.shards import CELLS

_STRUCK_OUT = "struck out"
_ORDER = ("done", _STRUCK_OUT, "failed", "unsupported", "cancelled", "running", "dispatched", "queued")


def campaign_page(
    campaign: CampaignRecord, cells: Sequence[CellRecord], before: CampaignRecord | None
) -> dict[str, Any]:
    """Gather the page of a campaign; `before`: the one that it is compared with."""
    return {
        "before": before,
        "campaign": campaign_head(campaign, cells),
        "matrix": build_matrix(campaign, cells),
        "devices": devices(cells),
    }


def brief_page(archive: Archive, campaign: CampaignRecord, before: CampaignRecord | None) -> dict[str, Any]:
    """Gather the page of an older campaign: its first cells, and the shards that have all of them."""
    cells = archive.cells(campaign.campaign_id)
    counts, unfinished = cell_counts(cells)
    names = dict.fromkeys(archive.shard(cell) for cell in cells)
    return {
        "before": before,
        "campaign": {"record": campaign, "right": "", "counts": counts, "unfinished": unfinished},
        "matrix": None,
        "rows": [brief_view(one, archive.baseline(one), archive.address(one)) for one in cells[:CELLS]],
        "count": len(cells),
        "shards": [
            (f"{place * CELLS + 1} to {min((place + 1) * CELLS, len(cells))}", links.shard_page(name))
            for place, name in enumerate(names)
        ],
    }


def campaign_head(campaign: CampaignRecord, cells: Sequence[CellRecord]) -> dict[str, Any]:
    """Return a campaign with how many of its cells are right, of each state, and unfinished."""
    counts, unfinished = cell_counts(cells)
    return {"record": campaign, "right": title_of(cells).right, "counts": counts, "unfinished": unfinished}


def cell_counts(cells: Sequence[ComparedCell]) -> tuple[str, int]:
    """Say how many cells there are of each state, and return how many are unfinished."""
    # Each cell once: one that is struck out is `failed` as well.
    counts = Counter(_STRUCK_OUT if cell.struck_out else cell.status for cell in cells)
    states = (*_ORDER, *sorted(set(counts) - {*_ORDER}))
    words = [f"{counts[state]} {state}" for state in states if counts[state]]
    return " · ".join(words) or "no cells", sum(counts[state] for state in OPEN)


def devices(cells: Sequence[CellRecord]) -> list[list[dict[str, Any]]]:
    """Return the environments of each device with results, in order of first appearance."""
    groups: dict[str, dict[str, list[CellRecord]]] = {}
    for cell in cells:
        if cell.environment_id is not None:
            groups.setdefault(cell.device, {}).setdefault(cell.environment_id, []).append(cell)
    return [_environments(tuple(members.values())) for members in groups.values()]


def _environments(environments: Sequence[Sequence[CellRecord]]) -> list[dict[str, Any]]:
    """Return each with its first cell, what differs from the one before, and the facts that all cells share:
    the rest is on the cells' pages."""
    # The first is compared with itself, so that nothing of it differs.
    before = [environments[0], *environments]
    return [
        {
            "first": cells[0],
            "cells": cells,
            "changes": differences(previous[0].environment, cells[0].environment),
            "facts": sorted(
                (k, v) for k, v in cells[0].facts.items() if all(c.facts.get(k) == v for c in cells)
            ),
        }
        for cells, previous in zip(environments, before, strict=False)
    ]
