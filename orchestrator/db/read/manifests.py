"""Reads the campaign file that a campaign was submitted with."""

from __future__ import annotations

from orchestrator.db import tables
from orchestrator.db.engine.sessions import Session
from orchestrator.db.read.records import find_campaign
from orchestrator.results.records import ManifestRecord, ModelOrigin


def manifest(session: Session, ref: str | None) -> ManifestRecord | None:
    """The campaign file of a campaign; None where it was submitted without one, or before files were kept.

    Raises `UsageError` as `find_campaign`.
    """
    campaign = find_campaign(session, ref)
    row = session.get(tables.Manifest, campaign.no)
    if row is None:
        return None
    return ManifestRecord(
        campaign_id=campaign.campaign_id,
        name=campaign.name,
        file=row.file,
        document=row.document,
        chosen=dict(row.chosen),
        origins={name: ModelOrigin(**origin) for name, origin in row.origins.items()},
    )
