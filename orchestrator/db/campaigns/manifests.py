"""Keeps the campaign file of a campaign as it was submitted."""

from collections.abc import Mapping
from dataclasses import asdict

from sqlmodel import col, select

from orchestrator.db import tables
from orchestrator.db.engine.sessions import Session
from orchestrator.db.engine.turn import Turn
from orchestrator.db.results.records import find_campaign
from orchestrator.manifest.campaign import Written
from orchestrator.results.records import ManifestRecord, ModelOrigin


def manifest(session: Session, ref: str | None) -> ManifestRecord | None:
    """Return the campaign file of a campaign; None if it was submitted without one, or before files were
    kept.

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


def keep(turn: Turn, campaign_id: str, written: Written, origins: Mapping[str, ModelOrigin]) -> None:
    """Store the file of a campaign that was just added, and where its models come from."""
    number = turn.exec(
        select(tables.Campaign.no).where(col(tables.Campaign.campaign_id) == campaign_id)
    ).one()
    turn.add(
        tables.Manifest(
            campaign_no=number or 0,
            file=written.file,
            document=written.document,
            chosen={
                "delegates": list(written.delegates),
                "models": list(written.only),
                "devices": list(written.devices),
                "level": written.level,
            },
            origins={name: asdict(origin) for name, origin in origins.items()},
        )
    )
