"""A history of LiteRT over its published releases: what each measured, and at which one a change is told.

    python -m benchmarks.release_history [--releases 2.1.0 ...] [--models NAME ...] [--site FOLDER]

Fetches the wheels from the package index and allows them as docs/lab.md says. Each release is a campaign of
its own, oldest first, with the label `release`: `litert` of that release by turns with this farm's `cpu`, the
same for all, so that ratios of different days are comparable. Writes results/release_history.{json,md}, and
the site with its trends to FOLDER. The machine must run nothing else.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks import output
from benchmarks.campaign import Row, environment, farm, measured, row_of, wheel_list
from tests.tree import tree

RELEASES: Final = ("2.0.3", "2.1.0", "2.1.6", "2.2.0", "2.3.0")
MODELS: Final = ("torchvision_squeezenet1_1", "torchvision_mobilenet_v3_small")

MEASURE: Final = {
    "blocks": {"min": 6, "max": 6},
    "rounds": 5,
    "slice": {"min_runs": 3, "seconds": 0.1},
    "warmup": {"runs": 2, "min_seconds": 0},
}
"""Counts of a cell. Chosen: some 15 s for a model and a release, on a quiet machine 2 % to either side."""


def main() -> int:
    """Fetch, measure and report."""
    parser = output.parser(__doc__, output.RESULTS / "release_history.json")
    parser.add_argument("--releases", nargs="+", default=RELEASES, help="oldest first")
    parser.add_argument("--models", nargs="+", default=MODELS, help="of the zoo")
    parser.add_argument("--site", type=Path, help="a folder for the pages")
    args = parser.parse_args()
    began = tree()
    with tempfile.TemporaryDirectory(prefix="farm-releases-") as name:
        folder = Path(name)
        fetch(folder / "wheels", args.releases)
        more = {"home": folder / "home", "FARM_RUNNER_WHEELS": wheel_list(folder / "wheels")}
        for model in args.models:
            (folder / f"{model}.tflite").write_bytes(output.restored(model))
        rows = [row for one in args.releases for row in measured_release(folder, one, args.models, more)]
        site = args.site or folder / "site"
        if ended := farm("site", "build", "--out", str(site), **more).returncode:
            return ended
        changes = changes_of(site)
        report = {"releases": list(args.releases), "rows": rows, "changes": changes}
        report["environment"] = environment(**more)
    output.write_report(args.out, report, page(report), began)
    print("\n".join(page(report)))
    return 0


def fetch(wheels: Path, releases: Iterable[str]) -> None:
    """Fetch the wheels for this Python."""
    for release in releases:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(wheels)]
        subprocess.run([*command, f"ai-edge-litert=={release}"], check=True)


def measured_release(folder: Path, release: str, models: Iterable[str], more: Mapping[str, Any]) -> list[Row]:
    """Measure a release by turns with this farm's `cpu`; return its rows."""
    campaign = {
        "version": 1,
        "campaign": "litert-releases",
        "labels": {"release": release},
        "defaults": {"measure": MEASURE},
        "models": [{"id": one, "source": str(folder / f"{one}.tflite")} for one in models],
        "delegates": {
            "cpu": {"kind": "cpu", "threads": 1},
            "litert": {"kind": "litert", "threads": 1, "version": release},
        },
        "baseline": {"delegate": "cpu"},
        "devices": [{"name": "*host-cpu"}],
    }
    # Cells that fail are rows with their reason; `cpu` is measured again, by turns with this release.
    _, cells = measured(campaign, ["--force"], **more)
    return [{"release": release} | row_of(cell) for cell in cells if cell["delegate"] == "litert"]


def changes_of(site: Path) -> list[dict[str, str]]:
    """Return the changes of level that the page of trends shows."""
    summaries = json.loads((site / "data/summaries.json").read_text(encoding="utf-8"))
    shifts = [shift for summary in summaries.values() for shift in summary.get("shifts", ())]
    return [
        {name: shift[name] for name in ("model", "delegate", "said", "state", "over")} for shift in shifts
    ]


def page(report: Mapping[str, Any]) -> list[str]:
    """Return the report in Markdown."""
    rows = []
    for row in report["rows"]:
        ratio = row["ratio"] or {"median": None, "ci95": None}
        interval = " to ".join(f"{end:.2f}" for end in ratio["ci95"] or ())
        shown = (
            (f"{row['p50_ms']:.2f}", f"{ratio['median']:.2f}", interval)
            if row["p50_ms"] and row["ratio"]
            else ("", "", "")
        )
        rows.append((row["model"], row["release"], *shown, row["accuracy"] or "", row["reason"] or ""))
    told = [
        f"- {one['model']} on {one['delegate']}: {one['said']} ({one['state']}, {one['over']})"
        for one in report["changes"]
    ]
    return [
        "# LiteRT over its releases",
        "",
        "Each release of `ai-edge-litert` by turns with this farm's `cpu`, at one thread.",
        "A ratio above 1: LiteRT is faster.",
        "",
        *output.table(
            ("model", "release", "p50, ms", "over cpu", "95 % interval", "outputs", "why not"),
            # By model; the sort is stable, so that releases stay in their order.
            sorted(rows, key=lambda row: row[0]),
        ),
        "",
        "Changes of level that the site tells:",
        "",
        *(told or ["- none"]),
        *output.environment_lines(report),
    ]


if __name__ == "__main__":
    sys.exit(main())
