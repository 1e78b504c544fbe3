"""Does `benchmark_model` give what LiteRT's own benchmark gives?

    python -m benchmarks.benchmark_model [--models NAME ...] [--rounds 8] [--out JSON]

Our tool on LiteRT's interpreter, the same once more, and LiteRT's `litert-benchmark` take turns, each in a
fresh process with one thread and the same number of runs. The medians agree where they differ by at most 3 %,
or by twice what our tool differs from itself. Writes results/benchmark_model.{json,md}. The machine must run
nothing else.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.interleaved import agreement, agreement_table, measure, ratio
from benchmarks.output import RESULTS, parser, restored, write_report
from tests.tree import tree

MODELS: Final = ("torchvision_mobilenet_v3_small", "torchvision_squeezenet1_1")

_RUNS: Final = 50
"""Timed runs of a process: the default of both tools. Ours goes on for no second beyond them."""

_ARMS: Final = ("ours", "again", "litert")


def main() -> int:
    """Measure every model, print, write."""
    options = parser(__doc__, RESULTS / "benchmark_model.json")
    options.add_argument("--models", nargs="*", default=MODELS, metavar="NAME", help="models of the zoo")
    options.add_argument("--rounds", type=int, default=8, help="processes of each")
    args = options.parse_args()
    began, rows = tree(), {}
    for name in args.models:
        with tempfile.TemporaryDirectory(prefix="farm-bench-") as folder:
            file = Path(folder) / "model.tflite"
            file.write_bytes(restored(name))
            rows[name] = _row(file, args.rounds)
        print(name, json.dumps(rows[name]), flush=True)
    write_report(args.out, rows, _page(rows), began)
    return 0


def _row(model: Path, rounds: int) -> dict[str, Any]:
    ours, litert = partial(_ours, model), partial(_litert, model)
    seconds = measure({"ours": ours, "again": ours, "litert": litert}, rounds).seconds
    return agreement(seconds, {name: ratio(seconds[name], seconds["ours"]) for name in _ARMS[1:]})


def _ours(model: Path) -> float:
    """Return the median of a process of our tool in seconds."""
    result = model.with_suffix(".json")
    _run("runtime.evaluation", "benchmark_model", f"--graph={model}", "--use_xnnpack=true", "--num_threads=1",
         f"--num_runs={_RUNS}", "--min_secs=0", "--warmup_runs=5", "--warmup_min_secs=0",
         f"--result_file_path={result}")  # fmt: skip
    return float(json.loads(result.read_text())["latency_metrics"]["median_ms"]) / 1000


def _litert(model: Path) -> float:
    """Return the same of LiteRT's tool."""
    result = model.with_suffix(".litert.json")
    _run("ai_edge_litert.tools.benchmark_litert_model", "--model", str(model), "--num_threads", "1",
         "--num_runs", str(_RUNS), "--warmup_runs", "5", "--result_json", str(result))  # fmt: skip
    return float(json.loads(result.read_text())["latency"]["median_ms"]) / 1000


def _run(module: str, *words: str) -> None:
    # On one CPU: processes that take turns must not differ by the core that they get.
    pinned = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    subprocess.run([*pinned, sys.executable, "-m", module, *words], check=True, capture_output=True)


def _page(rows: dict[str, dict[str, Any]]) -> list[str]:
    return [
        "# benchmark_model beside LiteRT's own benchmark",
        "",
        "Medians of fresh processes with one thread that took turns; ratios over our first one.",
        "Written by `python -m benchmarks.benchmark_model`.",
        "",
        *agreement_table(("ours, ms", "ours once more", "litert-benchmark"), _ARMS, rows),
    ]


if __name__ == "__main__":
    sys.exit(main())
