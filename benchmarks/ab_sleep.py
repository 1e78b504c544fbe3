"""Are known differences found? LiteRT against itself with a wait of 0, 2, 5 and 10 % behind each invoke.

    python -m benchmarks.ab_sleep [--model NAME] [--shares 0 0.02 ...] [--repeats 20] [--levels quick ...]

The contender is a delegate of another package (`benchmarks/slower_delegate.py`), measured through
`farm submit` as any other. A repeat is a model entry of its own, and so blocks of its own. Writes
results/ab_sleep.{json,md}. The machine must run nothing else: about half a minute for a repeat of `quick`,
half an hour for all of its repeats and shares.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from benchmarks import slower_delegate
from benchmarks.skeletons import REPOSITORY, restored
from runtime.common.verdict import grade, verdict
from tests.reports import write_report
from tests.tree import tree

RESULT: Final = REPOSITORY / "benchmarks/results/ab_sleep.json"
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
                print(_row(rows[-1]), flush=True)
    report = {"model": args.model, "repeats": args.repeats, "rows": rows}
    args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    write_report(args.out.with_suffix(".md"), _markdown(report), began, 0)
    print(_markdown(report))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--model", default=MODEL, metavar="NAME", help="a model of the zoo")
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES, help="what an invoke is longer by")
    parser.add_argument("--repeats", type=int, default=20, help="comparisons of each share and level")
    parser.add_argument("--levels", nargs="+", default=["quick"], help="levels of measuring")
    parser.add_argument("--out", type=Path, default=RESULT)
    return parser.parse_args()


def _measured(folder: Path, level: str, share: float, repeats: int) -> list[dict[str, Any]]:
    """Submit a campaign of two delegates to a farm of its own, and return what each repeat says."""
    name = f"{level}-{round(1000 * share)}"
    campaign = {
        "version": 1,
        "campaign": name,
        "level": level,
        "defaults": {"reuse": "never"},
        "models": [{"id": f"repeat{n}", "source": str(folder / "model.tflite")} for n in range(repeats)],
        "delegates": {
            "litert": {"kind": "litert", "threads": 1},
            "slower": {"kind": slower_delegate.NAME, "threads": 1, "share": share},
        },
        "baseline": {"delegate": "litert"},
        "devices": [{"name": "*host-cpu"}],
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(campaign), encoding="utf-8")
    paths = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"FARM_HOME": str(folder / name), "PYTHONPATH": os.pathsep.join(paths)}
    farm = [sys.executable, "-c", "from orchestrator.cli import main; main()"]
    subprocess.run([*farm, "submit", str(path)], env=environment, cwd=REPOSITORY, check=False)
    asked = [*farm, "results", "--format", "json"]
    said = subprocess.run(asked, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [_comparison(cell) for cell in json.loads(said.stdout) if cell["delegate"] == "slower"]


def _comparison(cell: dict[str, Any]) -> dict[str, Any]:
    ratio = cell["ratio"]
    if ratio is None:
        return {"status": cell["status"], "reason": cell["reason"], "verdict": "no ratio"}
    low, high = ratio["ci95"] or (0.0, math.inf)
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


def _markdown(report: dict[str, Any]) -> str:
    lines = [
        "# Are known differences found?",
        "",
        f"`python -m benchmarks.ab_sleep --repeats {report['repeats']}`: LiteRT, and LiteRT with a wait",
        f"behind each invoke, on {report['model']} with one thread. Off: the median ratio over the true one.",
        "",
        "| level | longer by | slower | same | open | faster | off | H | at least fair | blocks | s each |",
        "|" + "---|" * 11,
        *(_row(row) for row in report["rows"]),
    ]
    return "\n".join(lines) + "\n"


def _row(row: dict[str, Any]) -> str:
    cells, share = row["cells"], row["share"]
    said = Counter(cell["verdict"] for cell in cells)
    known = [cell for cell in cells if cell.get("half") is not None]
    figures = ["-"] * 4
    if known:
        off = median(cell["median"] for cell in known) * (1.0 + share) - 1.0
        reach = median(cell["half"] + cell["allowance"] for cell in known)
        fair = fmean(cell["grade"] in ("good", "fair") for cell in known)
        figures = [f"{off:+.2%}", f"{reach:.1%}", f"{fair:.0%}", f"{fmean(c['blocks'] for c in known):.1f}"]
    counts = [str(said[word]) for word in ("slower", "same", "open", "faster")]
    each_s = row["seconds"] / max(1, len(cells))
    return f"| {row['level']} | {share:.0%} | {' | '.join(counts + figures)} | {each_s:.0f} |"


if __name__ == "__main__":
    main()
