"""Builds the method page: the meaning of every figure, and the sample floors of the newest result."""

from __future__ import annotations

from typing import Any

from orchestrator.results import metrics
from orchestrator.site.archive import Archive
from orchestrator.site.figures import Facts, json_object


def method_page(archive: Archive) -> dict[str, Any]:
    """Gather the method page: every metric, and the floors below which a percentile is missing."""
    return {"terms": metrics.METRICS, "floors": _floors(archive)}


def _floors(archive: Archive) -> Facts:
    """Return (percentile, fewest samples), or nothing before the first result that records them.

    The measuring core sets the floors and the farm may not import it, so they come from the results.
    """
    for campaign in archive.campaigns:
        for cell in archive.cells[campaign.campaign_id]:
            recorded = "" if cell.measurement is None else cell.measurement.settings.get("sample_floors", "")
            floors = json_object(recorded)
            if floors:
                return tuple((name, str(count)) for name, count in floors.items())
    return ()
