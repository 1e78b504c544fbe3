"""Submits a campaign without showing its plan: stores and sends its files, and queues its cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.farm.submit.preparation import files_of, prepared
from orchestrator.farm.submit.submission import Submitted
from orchestrator.manifest import Campaign
from orchestrator.manifest.load import parse_manifest
from orchestrator.policy.preview import CellPreview
from orchestrator.sources import check_all
from orchestrator.sources.store import Store


def submit_document(farm: AnyFarm, document: str, called: str, note: Callable[[str], None]) -> Submitted:
    """Store the campaign of a `models.yaml` text; `called`: what messages call it. Nothing is reused.

    `note` receives a line for each slow step. Raises as `farm submit` does.
    """
    return submit_campaign(farm, parse_manifest(document.encode(), called), note, force=True)


def submit_campaign(
    farm: AnyFarm,
    campaign: Campaign,
    note: Callable[[str], None],
    *,
    force: bool,
    require: Callable[[Sequence[CellPreview]], None] = lambda _: None,
) -> Submitted:
    """Store a campaign whose relative sources start at the working directory.

    `force`: nothing is reused; `require` raises where the planned cells are not those that were meant.
    """
    store = Store(farm.home.store, farm.lab.limits.artifact_bytes, farm.lab.limits)
    checked = check_all(campaign.models, Path(), None, farm.lab.limits.artifact_bytes)
    with store.in_use():
        campaign, models = prepared(campaign, checked, store, farm.lab, note)
        order = farm.submission.order(campaign, models, force=force)
        require(order.preview)
        farm.send(files_of(campaign, models), note)
        return order.submit()
