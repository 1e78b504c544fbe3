"""Does `farm tune` recommend what an exhaustive run finds best, and in which share of its time?

    python -m benchmarks.tune_marks [--models NAME ...] [--blocks 16] [--out JSON]

For each model `farm tune` chooses among the columns of `SPACE`; then a campaign measures each of them in as
many blocks as tune's last two may have, beside the recommended one as the baseline. So the farm itself says,
by blocks, how much faster the best column is than the recommended one. Each begins in an empty home. Writes
results/tune_marks.{json,md}; the exit code is 1 where a mark is missed. The machine must run nothing else.
"""

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import yaml

from benchmarks import output
from benchmarks.campaign import farm, measured, row_of
from orchestrator.cli.tune import MOST_BLOCKS, product_of
from tests.tree import tree

MODELS: Final = ("torchvision_squeezenet1_1", "torchvision_mobilenet_v2")

SPACE: Final = {
    "threads": ["1", "2"],
    "precision": ["fp32", "fp16"],
    "wait_type": ["passive", "active"],
    "api": ["interpreter", "compiled_model"],
}
"""The options whose product over `KINDS` is chosen from, as far as a delegate has them."""

KINDS: Final = ("cpu", "gpu", "litert")

WITHIN: Final = 0.02
"""Share by which the exhaustive best may be faster than the recommended column: the mark."""

SHARE: Final = 1 / 3
"""Share of the exhaustive run's time that tune may take: the mark."""


def main() -> int:
    """Tune, measure exhaustively and report."""
    parser = output.parser(__doc__, output.RESULTS / "tune_marks.json")
    parser.add_argument("--models", nargs="+", default=MODELS, help="names of examples/zoo")
    parser.add_argument("--blocks", type=int, default=MOST_BLOCKS, help="of each column, exhaustively")
    args = parser.parse_args()
    began = tree()
    rows = [compared(name, args.blocks) for name in args.models]
    missed = int(not all(row["within"] and row["in_time"] for row in rows))
    report = {"blocks": args.blocks, "rows": rows}
    output.write_report(args.out, report, _page(report), began, missed)
    print("\n".join(_page(report)))
    return missed


def compared(name: str, blocks: int) -> dict[str, Any]:
    """Tune one model, measure all columns, and compare what the two found."""
    with tempfile.TemporaryDirectory(prefix="farm-tune-") as folder:
        model = Path(folder) / f"{name}.tflite"
        model.write_bytes(output.restored(name))
        began_s = time.monotonic()
        tuned = _tuned(model, Path(folder) / "tune")
        between_s = time.monotonic()
        cells = _exhausted(model, tuned["recommended"], blocks, Path(folder) / "all")
        ended_s = time.monotonic()
    (recommended,) = yaml.safe_load(tuned["recommended"])
    found = best(cells, recommended)
    tune_s, exhaustive_s = between_s - began_s, ended_s - between_s
    return {
        "model": name,
        "columns": len(cells),
        "ran": sum(cell["status"] == "done" for cell in cells),
        "recommended": recommended,
        **found,
        "tune_s": tune_s,
        "exhaustive_s": exhaustive_s,
        "within": found["over_recommended"][1] <= 1 + WITHIN,
        "in_time": tune_s <= SHARE * exhaustive_s,
        "cells": [row_of(cell) for cell in cells],
    }


def best(cells: Sequence[Mapping[str, Any]], recommended: str) -> dict[str, Any]:
    """Return the fastest column by its ratio over the recommended one, with the interval of that ratio."""
    if not any(cell["ratio"] for cell in cells if cell["status"] == "done"):
        raise SystemExit(f"no column of the exhaustive run has a ratio over {recommended}")
    best, over = recommended, [1.0, 1.0, 1.0]
    for cell in cells:
        ratio = cell["ratio"]
        if cell["status"] == "done" and ratio is not None and ratio["median"] > over[1]:
            low, high = ratio["ci95"]
            best, over = cell["delegate"], [low, ratio["median"], high]
    return {"best": best, "over_recommended": over}


def _tuned(model: Path, home: Path) -> dict[str, Any]:
    options = [word for name, values in SPACE.items() for word in ("--option", f"{name}={','.join(values)}")]
    ran = farm("tune", str(model), "--delegates", ",".join(KINDS), *options, "--json", home=home, stdout=PIPE)
    if ran.returncode:
        raise SystemExit(ran.returncode)
    return dict(json.loads(ran.stdout))


def _exhausted(model: Path, recommended: str, blocks: int, home: Path) -> list[dict[str, Any]]:
    campaign = {
        "version": 1,
        "campaign": "exhaustive",
        "defaults": {"measure": {"blocks": blocks}},
        "models": [{"id": model.stem, "source": str(model)}],
        "delegates": {one.name: {"kind": one.kind, **one.options} for one in product_of(KINDS, SPACE)},
        "baseline": {"delegate": next(iter(yaml.safe_load(recommended)))},
    }
    # Whatever the exit code says: columns that could not run are counted, and do not end the comparison.
    return measured(campaign, home=home)[1]


def _page(report: Mapping[str, Any]) -> list[str]:
    heads = (
        "model",
        "columns (ran)",
        "recommended",
        "best of all",
        "best over recommended",
        "tune",
        "all",
        "share",
    )
    rows = [
        (
            row["model"], f"{row['columns']} ({row['ran']})", row["recommended"], row["best"],
            "{1:.3f} ({0:.3f} to {2:.3f})".format(*row["over_recommended"]),
            f"{row['tune_s']:.0f} s", f"{row['exhaustive_s']:.0f} s",
            f"{row['tune_s'] / row['exhaustive_s']:.0%}",
        )
        for row in report["rows"]
    ]  # fmt: skip
    return [
        "# What farm tune recommends, and what it costs",
        "",
        f"`farm tune` beside a campaign that measures every column in {report['blocks']} blocks. Marks: the",
        f"best column at most {WITHIN:.0%} faster than the recommended, at most {SHARE:.0%} of the time.",
        "",
        *output.table(heads, rows),
    ]


if __name__ == "__main__":
    sys.exit(main())
