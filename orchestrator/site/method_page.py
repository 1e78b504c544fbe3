"""Builds the method page: the meaning of every figure, and the sample floors of the newest result."""

from typing import Any

from orchestrator.results import metrics
from orchestrator.site.figures import json_object


def method_page(sample_floors: str) -> dict[str, Any]:
    """Gather the method page: every metric, and the floors below which a percentile is missing.

    `sample_floors`: those of the newest result that records them, as JSON. The measuring core sets them and
    the farm may not import it, so they come from the results.
    """
    floors = json_object(sample_floors)
    return {"terms": metrics.METRICS, "floors": tuple((name, str(count)) for name, count in floors.items())}
