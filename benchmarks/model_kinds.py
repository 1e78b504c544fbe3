"""One network in every kind of file against LiteRT: what suits a float32, fp16, dynamic-range, integer model.

    python -m benchmarks.model_kinds [--out JSON] [option of `farm submit` ...]

Submits `benchmarks/model_kinds.yaml` and writes its report (`benchmarks.campaign`), and the measured.json
that `farm model info` prints, which stays as it is where `--out` names another report.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final

from benchmarks import output
from benchmarks.campaign import Row, run_and_report
from benchmarks.kind_models import FOLDER
from runtime.model.facts import kind_of
from runtime.model.reader import read_model

CAMPAIGN: Final = output.REPOSITORY / "benchmarks/model_kinds.yaml"
MEASURED: Final = output.REPOSITORY / "runtime/tools/model_info/measured.json"


def main() -> int:
    """Measure every kind, then write what is told of them."""
    parser = output.parser(__doc__)
    args, options = parser.parse_known_args()
    report = run_and_report(CAMPAIGN, (None,), args.out, options)
    if args.out is None:
        output.write_figures(MEASURED, measured_kinds(report))
    return 0


def measured_kinds(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `farm model info` prints: milliseconds by delegate, and who refuses a kind."""
    rows: list[Row] = report["rows"]
    models = dict.fromkeys(row["model"] for row in rows)
    return {
        "source": str((output.RESULTS / f"{report['campaign']}.json").relative_to(output.REPOSITORY)),
        "machine": ", ".join(dict.fromkeys(row["device_name"] for row in rows if row["device_name"])),
        "threads": next(row["threads"] for row in rows if row["threads"]),
        "rows": [
            _row(name, report["baseline"], [row for row in rows if row["model"] == name]) for name in models
        ],
    }


def _row(name: str, baseline: str, rows: list[Row]) -> dict[str, Any]:
    """Milliseconds are those of the baseline by the ratio, in which the machine's state cancels."""
    base_ms = next(row["p50_ms"] for row in rows if row["delegate"] == baseline)
    counted = [row for row in rows if row["status"] == "done" and row["p50_ms"]]
    # The baseline has no ratio over itself.
    speeds = {row["delegate"]: row["ratio"]["median"] if row["ratio"] else 1.0 for row in counted}
    return {
        "model": name,
        "kind": kind_of(read_model((FOLDER / f"{name}.tflite").read_bytes())),
        "milliseconds": {delegate: round(base_ms / speed, 3) for delegate, speed in speeds.items()},
        "partial": {row["delegate"]: row["delegated"] for row in counted if _is_partial(row)},
        "refused": {row["delegate"]: row["reason"] or row["status"] for row in rows if row not in counted},
    }


def _is_partial(row: Row) -> bool:
    """Return whether a delegate took some of the operators; one that runs whole models tells nothing."""
    taken, _, total = (row.get("delegated") or "").partition("/")
    return taken != total


if __name__ == "__main__":
    sys.exit(main())
