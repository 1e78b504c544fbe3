"""Builds the method page: the meaning of every figure, and the sample floors of the newest result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.results import metrics
from orchestrator.site.figures import Facts, json_object


def method_page(settings: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Gather the method page: every metric, and the floors below which a percentile is missing; `settings`
    of results, the newest first.
    """
    return {"terms": metrics.METRICS, "floors": _floors(settings)}


def _floors(settings: Iterable[Mapping[str, str]]) -> Facts:
    """Return (percentile, fewest samples), or nothing before the first result that records them.

    The measuring core sets the floors and the farm may not import it, so they come from the results.
    """
    recorded = (json_object(one["sample_floors"]) for one in settings if "sample_floors" in one)
    floors: Mapping[str, object] = next(filter(None, recorded), {})
    return tuple((name, str(count)) for name, count in floors.items())
