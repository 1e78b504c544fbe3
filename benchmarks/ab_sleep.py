"""Are known differences found? LiteRT against itself with a wait of 0, 2, 5 and 10 % behind each invoke.

    python -m benchmarks.ab_sleep [--model NAME] [--shares 0 0.02 ...] [--repeats 20] [--levels quick ...]

The contender is a delegate of another package (`benchmarks/slower_delegate.py`), measured through
`farm submit` as any other. A repeat is a model entry of its own, and so blocks of its own. Writes
results/ab_sleep.{json,md}. The machine must run nothing else: about half a minute for a repeat of `quick`,
half an hour for all of its repeats and shares.
"""

import argparse
import math
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from benchmarks import slower_delegate
from benchmarks.campaign import measured
from benchmarks.output import RESULTS, parser, restored, table, write_report
from runtime.common.verdict import grade, verdict
from tests.tree import tree

SHARES: Final = (0.0, 0.02, 0.05, 0.10)
MODEL: Final = "torchvision_mobilenet_v2"


def main() -> None:
    """Measure every share at every level, then write the report."""
    args, began = _arguments(), tree()
    rows = []
    with tempfile.TemporaryDirectory(prefix="farm-ab-") as temporary:
        folder = Path(temporary)
        slower_delegate.install(folder / "site")
        (folder / "model.tflite").write_bytes(restored(args.model))
        for level in args.levels:
            for share in args.shares:
                began_s = time.monotonic()
                cells = _measured(folder, level, share, args.repeats)
                took_s = time.monotonic() - began_s
                rows.append({"level": level, "share": share, "seconds": took_s, "cells": cells})
                print(*_row(rows[-1]), flush=True)
    report = {"model": args.model, "repeats": args.repeats, "rows": rows}
    lines = _page(report)
    write_report(args.out, report, lines, began)
    print("\n".join(lines))


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, RESULTS / "ab_sleep.json")
    options.add_argument("--model", default=MODEL, metavar="NAME", help="a model of the zoo")
    options.add_argument(
        "--shares", nargs="+", type=float, default=SHARES, help="by which an invoke is longer"
    )
    options.add_argument("--repeats", type=int, default=20, help="comparisons of each share and level")
    options.add_argument("--levels", nargs="+", default=["quick"], help="levels of measuring")
    return options.parse_args()


def _measured(folder: Path, level: str, share: float, repeats: int) -> list[dict[str, Any]]:
    """Submit a campaign of two delegates to a farm of its own, and return what each repeat says."""
    name = f"{level}-{round(1000 * share)}"
    campaign = {
        "version": 1,
        "campaign": name,
        "level": level,
        # All repeats have the same bytes, of which the farm would reuse the first result.
        "defaults": {"reuse": "never"},
        "models": [{"id": f"repeat{n}", "source": str(folder / "model.tflite")} for n in range(repeats)],
        "delegates": {
            "litert": {"kind": "litert", "threads": 1},
            "slower": {"kind": slower_delegate.NAME, "threads": 1, "share": share},
        },
        "baseline": {"delegate": "litert"},
        "devices": [{"name": "*host-cpu"}],
    }
    paths = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    _, cells = measured(campaign, home=folder / name, PYTHONPATH=os.pathsep.join(paths))
    return [_comparison(cell) for cell in cells if cell["delegate"] == "slower"]


def _comparison(cell: dict[str, Any]) -> dict[str, Any]:
    ratio = cell["ratio"]
    if ratio is None:
        return {"status": cell["status"], "reason": cell["reason"], "verdict": "no ratio"}
    low, high = ratio["ci95"] or (0.0, math.inf)
    # Intervals of ratios are symmetric in the logarithm.
    half = None if ratio["ci95"] is None else math.log(high / low) / 2.0
    log = math.log(ratio["median"])
    return {
        "median": ratio["median"],
        "half": half,
        "allowance": ratio["allowance"],
        "blocks": ratio["blocks"],
        "verdict": verdict(log, half, ratio["allowance"]),
        "grade": grade(half, ratio["allowance"]),
    }


def _page(report: dict[str, Any]) -> list[str]:
    heads = ("level", "longer by", "slower", "same", "open", "faster", "off", "H", "at least fair", "blocks")
    return [
        "# Are known differences found?",
        "",
        f"`python -m benchmarks.ab_sleep --repeats {report['repeats']}`: LiteRT, and LiteRT with a wait",
        f"behind each invoke, on {report['model']} with one thread. Off: the median ratio over the true one.",
        "",
        *table((*heads, "s each"), map(_row, report["rows"])),
    ]


def _row(row: dict[str, Any]) -> list[str]:
    cells, share = row["cells"], row["share"]
    said = Counter(cell["verdict"] for cell in cells)
    known = [cell for cell in cells if cell.get("half") is not None]
    figures = ["-"] * 4
    if known:
        # A contender that takes 1 + share as long has the true ratio 1 / (1 + share).
        off = median(cell["median"] for cell in known) * (1.0 + share) - 1.0
        reach = median(cell["half"] + cell["allowance"] for cell in known)
        fair = fmean(cell["grade"] in ("good", "fair") for cell in known)
        figures = [f"{off:+.2%}", f"{reach:.1%}", f"{fair:.0%}", f"{fmean(c['blocks'] for c in known):.1f}"]
    counts = [str(said[word]) for word in ("slower", "same", "open", "faster")]
    each_s = row["seconds"] / max(1, len(cells))
    return [row["level"], f"{share:.0%}", *counts, *figures, f"{each_s:.0f}"]


if __name__ == "__main__":
    main()
