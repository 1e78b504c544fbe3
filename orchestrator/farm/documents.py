"""Submits a campaign whose document the program has written itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator.farm.preparation import files_of, prepared
from orchestrator.farm.remote import AnyFarm
from orchestrator.farm.submission import Submitted
from orchestrator.manifest.load import parse_manifest
from orchestrator.sources import check_all
from orchestrator.sources.store import Store


def submit_document(farm: AnyFarm, document: str, called: str, note: Callable[[str], None]) -> Submitted:
    """Store the campaign of a `models.yaml` text; `called`: what messages call it. Nothing is reused.

    `note` receives a line for each slow step. Raises as `farm submit` does.
    """
    campaign = parse_manifest(document.encode(), called)
    store = Store(farm.home.store, farm.lab.limits.artifact_bytes, farm.lab.limits)
    checked = check_all(campaign.models, Path(), None, farm.lab.limits.artifact_bytes)
    with store.in_use():
        campaign, models = prepared(campaign, checked, store, farm.lab, note)
        order = farm.submission.order(campaign, models, force=True)
        farm.send(files_of(campaign, models), note)
        return order.submit()
