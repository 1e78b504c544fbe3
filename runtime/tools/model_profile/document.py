"""The profile as JSON. docs/model-plan.md describes it; `SCHEMA` counts its incompatible changes."""

from dataclasses import asdict
from typing import Any, Final

from runtime.measure.profile import Profiled

SCHEMA: Final = 1
"""The version of the document. It grows where a field goes or changes its meaning; readers of an older
number must not be given a newer document unseen."""


def document(found: Profiled, file: str) -> dict[str, Any]:
    """Return the whole profile as `json.dumps` takes it."""
    profile = found.profile
    rows = [
        asdict(row) | {"gflops": row.gflops, "gigabytes_per_second": row.gigabytes} for row in profile.rows
    ]
    return {
        "schema": SCHEMA,
        "file": file,
        "delegate": found.delegate,
        "settings": dict(found.settings),
        "rounds": profile.rounds,
        "run_ns": profile.run_ns,
        "sum_ns": profile.sum_ns,
        "caution": profile.caution,
        "sums_ns": list(profile.sums_ns),
        "stages_ns": dict(profile.stages_ns),
        "peaks": None if profile.peaks is None else asdict(profile.peaks),
        "no_peaks": profile.no_peaks,
        "rows": rows,
        "operators": [asdict(operator) for operator in profile.operators],
        "types": [asdict(one) for one in profile.types],
    }
